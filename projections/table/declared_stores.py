"""The stores that a view can declare. `answers`: whether the API reads views from it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Postgres:
    """The view is a table of this name. `indexes`: columns of each secondary index."""

    indexes: tuple[tuple[str, ...], ...] = ()
    name = "postgres"
    answers = True

    @property
    def declaration(self) -> str:
        """Its text in a fingerprint."""
        return f"Postgres(indexes={self.indexes!r})"


@dataclass(frozen=True)
class Elasticsearch:
    """The view is an index. `text`: columns for full-text search; `facets`: columns to count by."""

    text: tuple[str, ...] = ()
    facets: tuple[str, ...] = ()
    name = "elasticsearch"
    answers = True

    @property
    def declaration(self) -> str:
        """Its text in a fingerprint."""
        return f"Elasticsearch(text={self.text!r}, facets={self.facets!r})"


@dataclass(frozen=True)
class Cache:
    """The view is a Valkey hash per key, for look-ups by key only."""

    name = "valkey"
    answers = True

    @property
    def declaration(self) -> str:
        """Its text in a fingerprint."""
        return "Cache()"


@dataclass(frozen=True)
class Topic:
    """The rows of a stream view as a Kafka topic, `<environment>.views.<view>`, for programs that follow it.

    It is compacted: the last record of a key is the row, a tombstone a deleted row. Another store answers queries.
    """

    name = "topic"
    answers = False

    @property
    def declaration(self) -> str:
        """Its text in a fingerprint."""
        return "Topic()"


Store = Postgres | Elasticsearch | Cache | Topic
