"""The configuration of Debezium's connector: a pure function of a source's declaration and settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from headwater.eventlog.capturing.columns import Hashed, Kind, Truncated
from headwater.eventlog.capturing.declaring import Source, column_pattern
from headwater.eventlog.capturing.naming import (
    COMMAND_PREFIX,
    HEARTBEAT_PREFIX,
    HEARTBEATS,
    NOTIFICATIONS,
    SCHEMA_HISTORY,
    SIGNALS,
    TRANSACTIONS,
    SourceNames,
)
from headwater.eventlog.capturing.postgres.sql import HEARTBEAT
from headwater.eventlog.capturing.settings import SourceSettings, engine_of, is_reference
from headwater.eventlog.capturing.values import PLACEHOLDER
from headwater.eventlog.limits import MAX_RECORD_BYTES

SECRETS: Final = re.compile(r"password|sasl\.jaas|ssl\.key|truststore|keystore|with\.salt")
"""Properties whose values, or names, are not shown."""
DECLARED: Final = ("message.key.columns", "message.prefix.include.list", "heartbeat.interval.ms")
"""Properties that declarations alone decide, beside those of columns."""
RESELECT: Final = "post.processors.reselector"
"""What reads long values that an update did not change, which PostgreSQL does not send, from the table by the key."""
POSTGRES_SESSION: Final = "SET idle_session_timeout = 0; SET tcp_keepalives_idle = 60; SET row_security = off"
"""Keeps the connection of RESELECT. Debezium 3.6 does not notice that it is lost, and fills no value from then on.

A snapshot fails instead of leaving out rows that a policy hides.
"""
POSTGRES_OUTPUT: Final = "-c bytea_output=hex -c IntervalStyle=postgres -c lc_monetary=C -c extra_float_digits=1"
"""How PostgreSQL writes values to Debezium, whatever a database or a role has as its own setting.

Its driver sets DateStyle and the time zone by itself.
"""
FAILOVER_VERSION: Final = 17
"""PostgreSQL from this version on can copy a logical slot to its standbys."""
KEEP_ALIVE_MS: Final = 20_000
"""If nothing changes, the server sends a sign of life after 0.8 of this, for which heartbeats and snapshots wait.

Not much shorter: if Kafka takes no records for so long, the connector connects again, and repeats a transaction.
"""
FIXED: Final[Mapping[str, str]] = {
    "tasks.max": "1",
    "exactly.once.support": "required",  # fails on a worker without it, instead of repeating records silently
    "snapshot.mode": "initial",
    "read.only": "true",  # incremental snapshots find their place by transaction ids, and write nothing to the source
    "incremental.snapshot.chunk.size": "4096",
    "poll.interval.ms": "10",  # by default 500, which is most of the latency
    "max.batch.size": "4096",
    "max.queue.size": "16384",
    "max.queue.size.in.bytes": str(64 * 1024 * 1024),  # bounds the memory of a worker for wide rows
    "producer.override.max.request.size": str(MAX_RECORD_BYTES),
    "producer.override.compression.type": "lz4",
    "tombstones.on.delete": "true",
    "skipped.operations": "t",  # it has no key, so a compacted topic refuses it
    "provide.transaction.metadata": "true",  # the rows of one COPY share a position; their order tells them apart
    "extended.headers.enabled": "false",
    "signal.enabled.channels": "kafka",
    "signal.poll.interval.ms": "1000",  # by default 5,000
    "signal.kafka.poll.timeout.ms": "500",  # by default it does not wait for the answers of Kafka between two polls
    "notification.enabled.channels": "sink",
    # exact, and readable without a schema: integers of microseconds or days could not be told apart
    "decimal.handling.mode": "string",
    "time.precision.mode": "isostring",
    "binary.handling.mode": "bytes",  # base64 in JSON; with "base64", an unchanged long value becomes null
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",  # the class has the types; a schema is twenty times the row
    "key.converter.replace.null.with.default": "false",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "value.converter.replace.null.with.default": "false",  # else NULL would become the column's DEFAULT
}
"""Of all connectors."""
POSTGRES: Final[Mapping[str, str]] = {
    "plugin.name": "pgoutput",
    "publication.autocreate.mode": "disabled",  # `apply` creates it, with exactly the declared tables
    "slot.drop.on.stop": "false",
    # fails if somebody has dropped and created the slot, where Debezium by default goes on and skips changes
    "offset.mismatch.strategy": "trust_offset",
    "interval.handling.mode": "string",
    "hstore.handling.mode": "json",
    "unavailable.value.placeholder": f"hex:{PLACEHOLDER.encode().hex()}",
    "driver.options": POSTGRES_OUTPUT,
    "post.processors": "reselector",
    f"{RESELECT}.type": "io.debezium.processors.reselect.ReselectColumnsPostProcessor",
    f"{RESELECT}.reselect.unavailable.values": "true",
    f"{RESELECT}.reselect.null.values": "false",  # one query per record with a NULL
    f"{RESELECT}.reselect.use.event.key": "true",
    f"{RESELECT}.reselect.error.handling.mode": "warn",  # "fail" stops at rows that were deleted in the meantime
    "database.initial.statements": POSTGRES_SESSION,
    "heartbeat.action.query": HEARTBEAT,
}
"""Of the connector for PostgreSQL."""
BINLOG: Final[Mapping[str, str]] = {
    "include.schema.changes": "false",  # their topic would have the name of the source, which is not made beforehand
    "snapshot.locking.mode": "minimal",
    "bigint.unsigned.handling.mode": "precise",  # as a signed number, half of the values would be negative
    "key.converter.decimal.format": "NUMERIC",  # else base64
    "value.converter.decimal.format": "NUMERIC",
    "enable.time.adjuster": "false",  # else the years 1 to 99 become 2001 and so on
    "connect.keep.alive.interval.ms": str(KEEP_ALIVE_MS),
    "schema.history.internal.store.only.captured.tables.ddl": "false",  # a table may be declared later
    "schema.history.internal.store.only.captured.databases.ddl": "true",
}
"""Of those for MariaDB and MySQL."""
MARIADB_DRIVER: Final[Mapping[str, str]] = {
    # snapshots read a timestamp in the zone of the worker's Java otherwise, and changes in UTC
    "driver.connectionTimeZone": "UTC",
    "driver.forceConnectionTimeZoneToSession": "true",
    "driver.preserveInstants": "true",
    "driver.yearIsDateType": "false",  # a snapshot would stop at the year 0000
}
"""How MariaDB's driver reads values in snapshots, whatever zone the worker has."""


def connector_config(source: Source, settings: SourceSettings, server_version: int) -> dict[str, str]:
    """The connector's configuration. server_version: the database's, such as 18."""
    names, engine = SourceNames.of(source, settings.log.environment), engine_of(source)
    security, masks = settings.connect_security.for_java(), dict[str, list[str]]()
    for table, column in source.columns():
        match column.mask:
            case Hashed():
                masks.setdefault(f"column.mask.hash.v2.SHA-256.with.salt.{settings.salt}", []).append(
                    column_pattern(table, column)
                )
            case Truncated(characters):
                masks.setdefault(f"column.truncate.to.{characters}.chars", []).append(column_pattern(table, column))
    if source.engine == "postgresql":
        of_engine = _properties_of_postgres(source, names, server_version)
    else:
        of_engine = _properties_of_binlog(source, names, settings.connect_kafka, security)
    return {
        "connector.class": engine.connector_class,
        **FIXED,
        **settings.connect_database.for_debezium(),
        "topic.prefix": names.connector,
        "topic.heartbeat.name": names.topic(HEARTBEATS),
        "topic.transaction": TRANSACTIONS,
        "table.include.list": ",".join(re.escape(table.table) for table in source.tables),
        "column.include.list": ",".join(column_pattern(table, column) for table, column in source.columns()),
        # Debezium takes the names of a key's columns for regular expressions
        "message.key.columns": ";".join(
            f"{re.escape(table.table)}:{','.join(map(re.escape, table.key))}" for table in source.tables
        ),
        **{name: ",".join(columns) for name, columns in masks.items()},
        "heartbeat.interval.ms": str(source.heartbeat_ms),
        "signal.kafka.topic": names.topic(SIGNALS),
        "signal.kafka.groupId": names.connector,
        "signal.kafka.bootstrap.servers": settings.connect_kafka,
        **{f"signal.consumer.{name}": value for name, value in security.items()},
        "notification.sink.topic.name": names.topic(NOTIFICATIONS),
        **of_engine,
    }


def _properties_of_postgres(source: Source, names: SourceNames, server_version: int) -> dict[str, str]:
    # a message of another program that is larger than a record would stop the connector
    prefixes = [HEARTBEAT_PREFIX, *([COMMAND_PREFIX] if source.outbox else [])]
    # values that Debezium reads again pass no mask
    masked = [f"{re.escape(table.table)}:{re.escape(column.name)}" for table, column in source.columns() if column.mask]
    return {
        **POSTGRES,
        "message.prefix.include.list": ",".join(map(re.escape, prefixes)),
        "slot.name": names.slot,
        "slot.failover": str(server_version >= FAILOVER_VERSION).lower(),
        "publication.name": names.slot,
        **({f"{RESELECT}.reselect.columns.exclude.list": ",".join(masked)} if masked else {}),
    }


def _properties_of_binlog(
    source: Source, names: SourceNames, bootstrap: str, security: dict[str, str]
) -> dict[str, str]:
    """bootstrap, security: of the connector's own clients of Kafka."""
    history = "schema.history.internal"
    # `tinyint(1)` is a number otherwise
    booleans = [column_pattern(table, column) for table, column in source.columns() if column.kind is Kind.BOOLEAN]
    converter = {
        "converters": "boolean",
        "boolean.type": "io.debezium.connector.binlog.converters.TinyIntOneToBooleanConverter",
        "boolean.selector": ",".join(booleans),
    }
    return {
        **BINLOG,
        **(MARIADB_DRIVER if source.engine == "mariadb" else {}),
        # renames the topic of heartbeats, which has no setting before Debezium 3.6
        "transforms": "heartbeat",
        "transforms.heartbeat.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.heartbeat.regex": r"__debezium-heartbeat\..*",
        "transforms.heartbeat.replacement": names.topic(HEARTBEATS),
        "database.server.id": str(names.server_id),  # a random one may be that of another replica
        "database.include.list": ",".join(map(re.escape, source.databases)),
        f"{history}.kafka.bootstrap.servers": bootstrap,
        f"{history}.kafka.topic": names.topic(SCHEMA_HISTORY),
        **{
            f"{history}.{client}.{name}": value
            for client in ("producer", "consumer")
            for name, value in security.items()
        },
        **(converter if booleans else {}),
    }


def tables_to_read_again(wanted: Mapping[str, str], current: Mapping[str, str]) -> set[str]:
    """Tables with a column that `current` does not capture, or masks otherwise, so their rows must be read again."""
    new, old = _captured(wanted), _captured(current)
    changed = [column for column, mask in new.items() if old.get(column) != mask]
    return {column.replace("\\", "").rpartition(".")[0] for column in changed}


def _captured(config: Mapping[str, str]) -> dict[str, str]:
    """The captured columns of a configuration, each with the property that masks it; empty if none does."""
    masks = {
        column: name
        for name, columns in config.items()
        if name.startswith(("column.mask.", "column.truncate."))
        for column in columns.split(",")
    }
    return {column: masks.get(column, "") for column in config.get("column.include.list", "").split(",")}


def undeclared(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """What a connector captures otherwise than declared, a clause each; what an address or a secret in this shell says
    is left out."""
    new, old = (  # without the salt, which may differ in a shell that only looks
        {column: mask.partition("with.salt.")[0] for column, mask in _captured(config).items()}
        for config in (wanted, found)
    )
    clauses = {
        "lacks": [column for column in new if column not in old],
        "has, though no class does,": [column for column in old if column not in new],
        "has in plaintext": [column for column, mask in new.items() if mask and old.get(column) == ""],
        "masks otherwise": [column for column, mask in new.items() if old.get(column) not in (None, "", mask)],
        "masks, though no class does,": [column for column, mask in new.items() if not mask and old.get(column)],
    }
    listed = [f"it {what} {', '.join(columns)}".replace("\\", "") for what, columns in clauses.items() if columns]
    others = [name for name in DECLARED if wanted.get(name, "") != found.get(name, "")]
    return [*listed, *(f"its {name} differs" for name in others)]


def captures(config: Mapping[str, str], table: str) -> bool:
    """Whether a configuration captures a table."""
    return re.escape(table) in config.get("table.include.list", "").split(",")


def changed_keys(wanted: Mapping[str, str], current: Mapping[str, str]) -> list[str]:
    """Tables that both configurations capture, with different keys."""
    new, old = (
        dict(entry.split(":") for entry in config.get("message.key.columns", "").split(";") if ":" in entry)
        for config in (wanted, current)
    )
    return [table.replace("\\", "") for table, key in new.items() if old.get(table, key) != key]


def new_databases(wanted: Mapping[str, str], current: Mapping[str, str]) -> list[str]:
    """Databases of MariaDB or MySQL that `current` does not capture a table of, and has no history of."""
    name = "database.include.list"
    if name not in current:
        return []
    return sorted(set(wanted.get(name, "").split(",")) - set(current[name].split(",")))


def differences(wanted: Mapping[str, str], current: Mapping[str, str]) -> list[str]:
    """A line per property that `current` has otherwise than `wanted`, without secrets."""
    lines = []
    for name in sorted((wanted.keys() | current.keys()) - {"name"}):
        new, old = wanted.get(name), current.get(name)
        if new == old:
            continue
        shown = name.partition("with.salt.")[0] + "with.salt.…" if "with.salt." in name else name
        if SECRETS.search(name) and "with.salt." not in name:
            new, old = (None if document is None else "…" for document in (new, old))
        if old is None:
            lines.append(f"+ {shown} = {new}")
        elif new is None:
            lines.append(f"- {shown} = {old}")
        else:
            lines.append(f"~ {shown} = {new} (was {old})")
    return lines


def plain_secrets(settings: SourceSettings, source: Source) -> list[str]:
    """Secrets that Connect would store in plain text, each with the variable that prevents it.

    The salt of hashed columns cannot be a reference, because Debezium takes it in the name of a property.
    """
    address = settings.connect_database.for_debezium()
    security = settings.connect_security
    secrets = (
        ("the password of the database", address.get("database.password", ""), f"{source.prefix}_CONNECT_DATABASE"),
        ("the password of its key", address.get("database.sslpassword", ""), f"{source.prefix}_CONNECT_DATABASE"),
        ("Kafka's password", security.password, "HEADWATER_CONNECT_KAFKA_PASSWORD"),
        ("Kafka's key", security.key, "HEADWATER_CONNECT_KAFKA_KEY"),
    )
    return [
        f"{what} will be stored in plain text by Kafka Connect, which shows it to everybody who may use it: let "
        f"{variable} have a reference to a config provider of its workers, such as ${{env:NAME}}"
        for what, secret, variable in secrets
        if secret and not is_reference(secret)
    ]
