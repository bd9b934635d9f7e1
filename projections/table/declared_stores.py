"""The stores that a view can declare."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Postgres:
    """The view is a table of this name. `indexes`: columns of each secondary index."""

    indexes: tuple[tuple[str, ...], ...] = ()
    name = "postgres"

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

    @property
    def declaration(self) -> str:
        """Its text in a fingerprint."""
        return f"Elasticsearch(text={self.text!r}, facets={self.facets!r})"


@dataclass(frozen=True)
class Cache:
    """The view is a Valkey hash per key, for look-ups by key only."""

    name = "valkey"

    @property
    def declaration(self) -> str:
        """Its text in a fingerprint."""
        return "Cache()"


Store = Postgres | Elasticsearch | Cache
