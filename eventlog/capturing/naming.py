"""The names and topics of a source in one deployment; each carries HEADWATER_ENVIRONMENT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eventlog.capturing.declaring import TOPICS, Captured, Source
from eventlog.settings import LogSettings
from eventlog.topics import DAY_MS, TopicSpec, compact_settings, delete_settings

TRANSACTIONS: Final = "transaction"
MESSAGES: Final = "message"
HEARTBEATS: Final = "heartbeat"
SIGNALS: Final = "signals"
NOTIFICATIONS: Final = "notifications"
SCHEMA_HISTORY: Final = "schema-history"
"""The definitions of tables, in the order of changes, by which Debezium reads a binary log."""
EMPTIED: Final = (TRANSACTIONS, SCHEMA_HISTORY, SIGNALS, NOTIFICATIONS)
"""Topics that are emptied if a source is removed: they have places in the database's log, or what is to be read or was.
"""


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

    def topic(self, name: str) -> str:
        """The full name of a topic that the source has beside those of its tables."""
        return f"{self.connector}.{name}"


def table_topic(table: type[Captured], settings: LogSettings) -> TopicSpec:
    """The topic of a captured table; its name is without the environment."""
    return TopicSpec(table.topic(), settings.partitions, compact_settings(settings))


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
    about = {topic_about(source, name): delete_settings(settings, kept_ms) for name, kept_ms in kept.items()}
    return (*tables, *(TopicSpec(name, 1, config) for name, config in about.items()))
