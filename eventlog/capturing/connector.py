"""The configuration of Debezium's connector: a pure function of a source's declaration and settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from headwater.eventlog.capturing.columns import Hashed, Truncated
from headwater.eventlog.capturing.declaring import Captured, Source, column_pattern
from headwater.eventlog.capturing.naming import HEARTBEATS, NOTIFICATIONS, SIGNALS, TRANSACTIONS, SourceNames
from headwater.eventlog.capturing.settings import SourceSettings, engine_of, is_reference
from headwater.eventlog.limits import MAX_RECORD_BYTES

UNAVAILABLE: Final = "unavailable.value.placeholder"
SECRETS: Final = re.compile(r"password|sasl\.jaas|ssl\.key|truststore|keystore|with\.salt")
"""Properties whose values, or names, are not shown."""
# each is explained in docs/decisions/0018-captured-databases.md
FIXED: Final[Mapping[str, str]] = {
    "tasks.max": "1",
    "exactly.once.support": "required",
    "snapshot.mode": "initial",
    "read.only": "true",  # incremental snapshots find their place by transaction ids, and write nothing to the source
    "incremental.snapshot.chunk.size": "4096",
    "poll.interval.ms": "10",
    "max.batch.size": "4096",
    "max.queue.size": "16384",
    "max.queue.size.in.bytes": str(64 * 1024 * 1024),
    "producer.override.max.request.size": str(MAX_RECORD_BYTES),
    "producer.override.compression.type": "lz4",
    "tombstones.on.delete": "true",
    "skipped.operations": "t",  # it has no key, so a compacted topic refuses it
    "provide.transaction.metadata": "true",
    "extended.headers.enabled": "false",
    "signal.enabled.channels": "kafka",
    "signal.poll.interval.ms": "1000",
    "signal.kafka.poll.timeout.ms": "500",  # by default it does not wait for the answers of Kafka between two polls
    "notification.enabled.channels": "sink",
    "decimal.handling.mode": "string",
    "time.precision.mode": "isostring",
    "binary.handling.mode": "bytes",  # base64 in JSON; with "base64", an unchanged long value becomes null
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
    "key.converter.replace.null.with.default": "false",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "value.converter.replace.null.with.default": "false",  # else NULL would become the column's DEFAULT
}


def connector_config(source: Source, settings: SourceSettings, server_version: int) -> dict[str, str]:
    """The connector's configuration. server_version: the database's, such as 18."""
    names, engine = SourceNames.of(source, settings.log.environment), engine_of(source)
    security = settings.connect_security.for_java()
    return {
        "connector.class": engine.connector_class,
        **FIXED,
        **settings.connect_database.for_debezium(),
        "topic.prefix": names.connector,
        "topic.heartbeat.name": names.topic(HEARTBEATS),
        "topic.transaction": TRANSACTIONS,
        "table.include.list": ",".join(re.escape(table.table) for table in source.tables),
        "column.include.list": ",".join(column_pattern(table, column) for table, column in source.columns()),
        "message.key.columns": ";".join(map(_key_columns, source.tables)),
        **_masks(source, settings.salt),
        "heartbeat.interval.ms": str(source.heartbeat_ms),
        "signal.kafka.topic": names.topic(SIGNALS),
        "signal.kafka.groupId": names.connector,
        "signal.kafka.bootstrap.servers": settings.connect_kafka,
        **{f"signal.consumer.{name}": value for name, value in security.items()},
        "notification.sink.topic.name": names.topic(NOTIFICATIONS),
        **engine.properties(source, names, server_version, {"bootstrap.servers": settings.connect_kafka, **security}),
    }


def _key_columns(table: type[Captured]) -> str:
    """The key of a table. Debezium takes the names of its columns for regular expressions."""
    return f"{re.escape(table.table)}:{','.join(map(re.escape, table.key))}"


def _masks(source: Source, salt: str) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for table, column in source.columns():
        match column.mask:
            case Hashed():
                found.setdefault(f"column.mask.hash.v2.SHA-256.with.salt.{salt}", []).append(
                    column_pattern(table, column)
                )
            case Truncated(characters):
                found.setdefault(f"column.truncate.to.{characters}.chars", []).append(column_pattern(table, column))
    return {name: ",".join(columns) for name, columns in found.items()}


def tables_to_read_again(wanted: Mapping[str, str], found: Mapping[str, str]) -> set[str]:
    """Tables with a column that `found` does not capture, or masks otherwise, so that their rows must be read again.

    Also those with shortened columns, if `found` has another placeholder: their values may look like its start.
    """
    new, old = _captured(wanted), _captured(found)
    other_placeholder = wanted.get(UNAVAILABLE) != found.get(UNAVAILABLE)
    changed = [
        column
        for column, mask in new.items()
        if old.get(column) != mask or (other_placeholder and mask.startswith("column.truncate."))
    ]
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


def captures(config: Mapping[str, str], table: str) -> bool:
    """Whether a configuration captures a table."""
    return re.escape(table) in config.get("table.include.list", "").split(",")


def changed_keys(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Tables that both configurations capture, with different keys."""
    new, old = (
        dict(each.split(":") for each in config.get("message.key.columns", "").split(";") if ":" in each)
        for config in (wanted, found)
    )
    return [table.replace("\\", "") for table, key in new.items() if old.get(table, key) != key]


def new_databases(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Databases of MariaDB or MySQL that `found` does not capture a table of, and has no history of."""
    name = "database.include.list"
    if name not in found:
        return []
    return sorted(set(wanted.get(name, "").split(",")) - set(found[name].split(",")))


def differences(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """A line per property that `found` has otherwise than `wanted`, without secrets."""
    lines = []
    for name in sorted((wanted.keys() | found.keys()) - {"name"}):
        new, old = wanted.get(name), found.get(name)
        if new == old:
            continue
        shown = name.partition("with.salt.")[0] + "with.salt.…" if "with.salt." in name else name
        if SECRETS.search(name) and "with.salt." not in name:
            new, old = (None if each is None else "…" for each in (new, old))
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
