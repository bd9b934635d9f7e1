"""The stores that a view can declare. `answers`: whether the API reads views from it."""

from __future__ import annotations

from dataclasses import dataclass

from eventlog.declaring import word


@word('Postgres(indexes=(("city", "price"),))')
@dataclass(frozen=True)
class Postgres:
    """The view is a table of this name.

    indexes: columns of each secondary index, with "-" before a column by which queries sort in descending order:
    `("day", "-cents")` serves `?day=…&sort=-cents`.
    """

    indexes: tuple[tuple[str, ...], ...] = ()
    name = "postgres"
    answers = True

    @property
    def indexed(self) -> tuple[tuple[str, ...], ...]:
        """The columns of each index, without their directions."""
        return tuple(tuple(column.removeprefix("-") for column in index) for index in self.indexes)

    @property
    def declaration(self) -> str:
        """Its text in a fingerprint."""
        return f"Postgres(indexes={self.indexes!r})"


@word('Elasticsearch(text=("description",), facets=("city",))')
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


@word('Ranking("-price", within=("city",))')
@dataclass(frozen=True)
class Ranking:
    """The order of the rows by one column, kept in a sorted set, for queries that sort by it: a leaderboard.

    sort: an INTEGER, FLOAT or TIME column; with "-" the highest come first, as in `?sort=-cents`. Rows with equal
    values are in the order of their keys, and nulls come last.
    within: columns that divide the rows. Each combination of their values has an order of its own, for queries with a
    filter for each of them, as in `?day=…&sort=-cents`; a row in which one of them is null is in none.
    """

    sort: str
    within: tuple[str, ...] = ()

    @property
    def column(self) -> str:
        """The column that it sorts by."""
        return self.sort.removeprefix("-")

    @property
    def descending(self) -> bool:
        """Whether the highest come first."""
        return self.sort.startswith("-")

    @property
    def declaration(self) -> str:
        """Its text in a fingerprint, and in the names of its sorted sets."""
        return f"{self.sort}/{','.join(self.within)}" if self.within else self.sort


@word('Cache(rankings=(Ranking("-price"),))')
@dataclass(frozen=True)
class Cache:
    """The view is a Valkey hash per key, for look-ups by key. `rankings`: orders in which it also finds rows."""

    rankings: tuple[Ranking, ...] = ()
    name = "valkey"
    answers = True

    @property
    def declaration(self) -> str:
        """Its text in a fingerprint."""
        return f"Cache(rankings={[each.declaration for each in self.rankings]!r})" if self.rankings else "Cache()"


@word("Topic()")
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
