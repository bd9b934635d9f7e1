"""The properties that only Debezium's connector for PostgreSQL has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from headwater.eventlog.capturing.declaring import Source
from headwater.eventlog.capturing.naming import SourceNames
from headwater.eventlog.capturing.values import PLACEHOLDER

CONNECTOR_CLASS: Final = "io.debezium.connector.postgresql.PostgresConnector"
HEARTBEAT_PREFIX: Final = "headwater"
HEARTBEAT_SQL: Final = "SELECT pg_logical_emit_message(true, 'headwater', extract(epoch FROM now())::text)"
"""A message in the write-ahead log, with the time of the database: it changes no table.

It is a transaction of its own, because Debezium 3.6 fails in a read-only incremental snapshot if the last thing in the
log has no transaction.
"""
RESELECT: Final = "post.processors.reselector"
"""What reads long values that an update did not change, which PostgreSQL does not send, from the table by the key."""
SESSION: Final = "SET idle_session_timeout = 0; SET tcp_keepalives_idle = 60; SET row_security = off"
"""Keeps the connection of RESELECT. Debezium 3.6 does not notice that it is lost, and fills no value from then on.

A snapshot fails instead of leaving out rows that a policy hides.
"""
OUTPUT: Final = "-c bytea_output=hex -c IntervalStyle=postgres -c lc_monetary=C -c extra_float_digits=1"
"""How PostgreSQL writes values to Debezium, whatever a database or a role has as its own setting.

Its driver sets DateStyle and the time zone by itself.
"""
COMMAND_PREFIX: Final = "headwater.command"
"""Of the messages in the write-ahead log that are commands; see `commands/reacting/outbox.py`."""
FAILOVER_VERSION: Final = 17
"""PostgreSQL from this version on can copy a logical slot to its standbys."""

# each is explained in docs/decisions/0018-captured-databases.md
FIXED: Final[Mapping[str, str]] = {
    "plugin.name": "pgoutput",
    "publication.autocreate.mode": "disabled",  # `apply` makes it, with exactly the declared tables
    "slot.drop.on.stop": "false",
    "offset.mismatch.strategy": "trust_offset",  # fails if somebody has dropped and created the slot
    "interval.handling.mode": "string",
    "hstore.handling.mode": "json",
    "unavailable.value.placeholder": f"hex:{PLACEHOLDER.encode().hex()}",
    "driver.options": OUTPUT,
    "post.processors": "reselector",
    f"{RESELECT}.type": "io.debezium.processors.reselect.ReselectColumnsPostProcessor",
    f"{RESELECT}.reselect.unavailable.values": "true",
    f"{RESELECT}.reselect.null.values": "false",  # one query per record with a NULL
    f"{RESELECT}.reselect.use.event.key": "true",
    f"{RESELECT}.reselect.error.handling.mode": "warn",  # "fail" stops at rows that were deleted in the meantime
    "database.initial.statements": SESSION,
    "heartbeat.action.query": HEARTBEAT_SQL,
}


def properties(source: Source, names: SourceNames, version: int) -> dict[str, str]:
    """The properties of a source's connector; version: of the server, such as 18."""
    prefixes = [HEARTBEAT_PREFIX, *([COMMAND_PREFIX] if source.outbox else [])]
    return {
        **FIXED,
        "message.prefix.include.list": ",".join(map(re.escape, prefixes)),
        "slot.name": names.slot,
        "slot.failover": str(version >= FAILOVER_VERSION).lower(),
        "publication.name": names.slot,
        **_not_reselected(source),
    }


def _not_reselected(source: Source) -> dict[str, str]:
    """Masked columns: values that Debezium reads again pass no mask."""
    masked = [f"{re.escape(table.table)}:{re.escape(column.name)}" for table, column in source.columns() if column.mask]
    return {f"{RESELECT}.reselect.columns.exclude.list": ",".join(masked)} if masked else {}
