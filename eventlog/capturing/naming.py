"""The names and topics of a source in one deployment; each carries HEADWATER_ENVIRONMENT."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from headwater.eventlog.access import Program
from headwater.eventlog.capturing.declaring import TOPICS, Captured, Source
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import DAY_MS, TopicSpec, compact_settings, delete_settings

TRANSACTIONS: Final = "transaction"
MESSAGES: Final = "message"
HEARTBEATS: Final = "heartbeat"
SIGNALS: Final = "signals"
NOTIFICATIONS: Final = "notifications"
SCHEMA_HISTORY: Final = "schema-history"
"""The definitions of tables, in the order of changes, by which Debezium reads a binary log."""
HEARTBEAT_PREFIX: Final = "headwater"
COMMAND_PREFIX: Final = "headwater.command"
"""Of the messages in PostgreSQL's write-ahead log that are commands; see `commands/reacting/outbox.py`."""
EMPTIED: Final = (TRANSACTIONS, SCHEMA_HISTORY, SIGNALS, NOTIFICATIONS)
"""Topics that are emptied if a source is removed: they have places in the database's log, or what is to be read or was.
"""
_WATCHED: Final = frozenset({Program.SOURCES, Program.OPERATOR})
_CAPTURED: Final = frozenset({Program.CONNECT})
USERS: Final[Mapping[str, tuple[frozenset[Program], frozenset[Program]]]] = {
    TRANSACTIONS: (_WATCHED | {Program.API}, _CAPTURED),
    MESSAGES: (_WATCHED, _CAPTURED),
    HEARTBEATS: (_WATCHED, _CAPTURED),
    SIGNALS: (_WATCHED | _CAPTURED, _WATCHED),  # also who only looks at a source notes there what the connector says
    NOTIFICATIONS: (_WATCHED | {Program.API}, _CAPTURED),
    SCHEMA_HISTORY: (_WATCHED | _CAPTURED, _CAPTURED),
}
"""Who reads the topics about a source, and who writes them."""


@dataclass(frozen=True, slots=True)
class SourceNames:
    """What a source is called outside of its declaration.

    connector: in Kafka Connect; also how the source's topics begin. slot: the replication slot and the
    publication in PostgreSQL.
    """

    connector: str
    slot: str

    @classmethod
    def of(cls, source: Source, environment: str) -> SourceNames:
        """The names of `source` in this environment."""
        return cls(connector=f"{environment}.{TOPICS}.{source.name}", slot=f"{environment}_{TOPICS}_{source.name}")

    @property
    def server_id(self) -> int:
        """The number by which a MariaDB or MySQL server knows the connector, as it knows a replica: 32 bits that nobody
        else has."""
        digest = hashlib.blake2b(self.connector.encode(), digest_size=4).digest()
        return 2**31 + int.from_bytes(digest, "big") % 2**31

    def topic(self, name: str) -> str:
        """The full name of a topic that the source has beside those of its tables."""
        return f"{self.connector}.{name}"


def table_topic(table: type[Captured], settings: LogSettings) -> TopicSpec:
    """The topic of a captured table; its name is without the environment."""
    spec = TopicSpec(table.topic(), settings.partitions, compact_settings(settings))
    # `sweep` appends deletes
    return replace(spec, readers=_WATCHED | {Program.API}, writers=_CAPTURED | {Program.SOURCES})


def followed_topic(table: type[Captured], settings: LogSettings) -> TopicSpec:
    """Likewise, of a table that a view reads: whoever builds views also appends heartbeats to it."""
    spec, users = table_topic(table, settings), frozenset({Program.PROJECTIONS, Program.OPERATOR})
    return replace(spec, readers=spec.readers | users, writers=spec.writers | users)


def topic_about(source: Source, name: str) -> str:
    """A topic of a source that is not a table's, such as TRANSACTIONS; its name is without the environment."""
    return f"{TOPICS}.{source.name}.{name}"


def source_topics(source: Source, settings: LogSettings) -> tuple[TopicSpec, ...]:
    """The topics of a source; their names are without the environment.

    A table's topic is compacted: it keeps the last change of each row. The others are about the source itself: commits
    of transactions, messages and heartbeats of the connector, signals to it and its notifications, each in order. A
    source with a binary log has the history of its schema instead of messages, which must be kept for ever. So must
    signals, because a connector that is stopped may read them much later.
    """
    tables = [table_topic(table, settings) for table in source.tables]
    own = {MESSAGES: 7 * DAY_MS} if source.engine == "postgresql" else {SCHEMA_HISTORY: -1}
    kept = own | {TRANSACTIONS: DAY_MS, HEARTBEATS: DAY_MS, SIGNALS: -1, NOTIFICATIONS: 7 * DAY_MS}
    about = [
        TopicSpec(topic_about(source, name), 1, delete_settings(settings, kept_ms), *USERS[name])
        for name, kept_ms in kept.items()
    ]
    return (*tables, *about)
