"""The properties that only Debezium's connectors for MariaDB and MySQL have."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Final

from headwater.eventlog.capturing.columns import Kind
from headwater.eventlog.capturing.declaring import Source, column_pattern
from headwater.eventlog.capturing.naming import HEARTBEATS, SCHEMA_HISTORY, SourceNames

KEEP_ALIVE_MS: Final = 20_000
"""If nothing changes, the server sends a sign of life after 0.8 of this, for which heartbeats and snapshots wait.

Not much shorter: if Kafka takes no records for so long, the connector connects again, and repeats a transaction.
"""
FIXED: Final[Mapping[str, str]] = {
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


MARIADB_DRIVER: Final[Mapping[str, str]] = {
    # snapshots read a timestamp in the zone of the worker's Java otherwise, and changes in UTC
    "driver.connectionTimeZone": "UTC",
    "driver.forceConnectionTimeZoneToSession": "true",
    "driver.preserveInstants": "true",
    "driver.yearIsDateType": "false",  # a snapshot would stop at the year 0000
}
"""How MariaDB's driver reads values in snapshots, whatever zone the worker has."""


def properties(source: Source, names: SourceNames, kafka: Mapping[str, str]) -> dict[str, str]:
    """The properties of a source's connector. kafka: of its own clients of Kafka."""
    history = "schema.history.internal"
    security = {name: value for name, value in kafka.items() if name != "bootstrap.servers"}
    return {
        **FIXED,
        **(MARIADB_DRIVER if source.engine == "mariadb" else {}),
        **_heartbeat(names),
        "database.server.id": str(server_id(names)),
        "database.include.list": ",".join(re.escape(each) for each in databases(source)),
        f"{history}.kafka.bootstrap.servers": kafka["bootstrap.servers"],
        f"{history}.kafka.topic": names.topic(SCHEMA_HISTORY),
        **{
            f"{history}.{client}.{name}": each for client in ("producer", "consumer") for name, each in security.items()
        },
        **_booleans(source),
    }


def server_id(names: SourceNames) -> int:
    """The number by which the server knows the connector, as it knows a replica: 32 bits that nobody else has."""
    digest = hashlib.blake2b(names.connector.encode(), digest_size=4).digest()
    return 2**31 + int.from_bytes(digest, "big") % 2**31


def databases(source: Source) -> list[str]:
    """The databases of the source's tables."""
    return sorted({table.table.partition(".")[0] for table in source.tables})


def _heartbeat(names: SourceNames) -> dict[str, str]:
    """Renames the topic of heartbeats, which has no setting before Debezium 3.6."""
    return {
        "transforms": "heartbeat",
        "transforms.heartbeat.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.heartbeat.regex": r"__debezium-heartbeat\..*",
        "transforms.heartbeat.replacement": names.topic(HEARTBEATS),
    }


def _booleans(source: Source) -> dict[str, str]:
    """Columns that are declared as bool: `tinyint(1)` is a number otherwise."""
    declared = [column_pattern(table, column) for table, column in source.columns() if column.kind is Kind.BOOLEAN]
    if not declared:
        return {}
    return {
        "converters": "boolean",
        "boolean.type": "io.debezium.connector.binlog.converters.TinyIntOneToBooleanConverter",
        "boolean.selector": ",".join(declared),
    }
