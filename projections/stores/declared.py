"""The stores that a view can declare; a folder here has how each works.

A new store is added here and to `STORES`, and its word to `headwater`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from headwater.eventlog.declaring import must_be_texts, word
from headwater.projections.table.declared_store import DeclaredStore, check_named, refuse_points
from headwater.projections.table.mistaken import must_be
from headwater.projections.table.types import ColumnType

EXAMPLE = 'Postgres(indexes=(("city", "-price"),))'

TEXTS: Final = (ColumnType.TEXT, ColumnType.JSON)
"""What full-text search can read."""
SCORES: Final = (ColumnType.INTEGER, ColumnType.FLOAT, ColumnType.TIME, ColumnType.DATE)
GROUPS: Final = (
    ColumnType.TEXT,
    ColumnType.INTEGER,
    ColumnType.BOOLEAN,
    ColumnType.TIME,
    ColumnType.DATE,
    ColumnType.UUID,
)


@word('Postgres(indexes=(("city", "price"),))')
@dataclass(frozen=True)
class Postgres(DeclaredStore):
    """The view is a table of this name.

    indexes: columns of each secondary index, with "-" before a column by which queries sort in descending order:
    `("day", "-cents")` serves `?day=…&sort=-cents`.
    clear: columns with a personal value that the table has in plaintext, to read them by SQL and to find rows by them.
    """

    indexes: tuple[tuple[str, ...], ...] = ()
    clear: tuple[str, ...] = ()
    name = "postgres"

    @property
    def declaration(self) -> str:
        clear = f"clear={self.clear!r}, " if self.clear else ""
        return f"Postgres({clear}indexes={self.indexes!r})"

    @classmethod
    def of_rows(cls, declaration: str) -> str:
        return declaration.partition("indexes=")[0].rstrip("(, ")  # indexes are added while the table is in use

    def check(self, types: Mapping[str, ColumnType]) -> None:
        must_be((tuple, list), self.indexes, f"Postgres(indexes={{}}) is no tuple of indexes: write {EXAMPLE}")
        for index in self.indexes:
            if isinstance(index, str):
                columns = ", ".join(f'("{index}",)' for index in self.indexes if isinstance(index, str))
                raise ValueError(
                    f'Postgres(indexes=…) has the text "{index}" for an index, which is a tuple of columns: write '
                    f"Postgres(indexes=({columns},))"
                )
            must_be_texts("an index in Postgres(indexes=…)", index, EXAMPLE)
            names = _columns(index)
            if not names:
                raise ValueError(f"an index in Postgres(indexes=…) has no column: write {EXAMPLE}")
            check_named("Postgres(indexes=…)", names, EXAMPLE, types)
            refuse_points("Postgres(indexes=…)", names, types, "has no order")

    def narrowed(self, columns: Collection[str], key: str) -> Postgres:
        indexes = tuple(index for index in self.indexes if set(columns).issuperset(_columns(index)))
        return replace(self, indexes=indexes, clear=tuple(column for column in self.clear if column in columns))


@dataclass(frozen=True)
class PostgresWithPersons(Postgres):
    """The same, with rows that are found by the keys of a person, too.

    sealed: the column of JSON whose ciphertexts say whose they are.
    """

    sealed: str = ""


def _columns(index: Collection[str]) -> list[str]:
    """The columns of an index, without their directions."""
    return [column.removeprefix("-") for column in index]


@word('Elasticsearch(text=("description",), facets=("city",))')
@dataclass(frozen=True)
class Elasticsearch(DeclaredStore):
    """The view is an index. `text`: columns for full-text search; `facets`: columns to count by; `clear`: columns with
    a personal value that the index has in plaintext, to find rows by them, also with `text`."""

    text: tuple[str, ...] = ()
    facets: tuple[str, ...] = ()
    clear: tuple[str, ...] = ()
    name = "elasticsearch"
    searches = True

    @property
    def declaration(self) -> str:
        clear = f"clear={self.clear!r}, " if self.clear else ""
        return f"Elasticsearch({clear}text={self.text!r}, facets={self.facets!r})"

    @classmethod
    def of_rows(cls, declaration: str) -> str:
        return declaration.partition(", facets=")[0]  # every column of an index can be counted by

    def check(self, types: Mapping[str, ColumnType]) -> None:
        check_named("Elasticsearch(text=…)", self.text, 'Elasticsearch(text=("description",))', types)
        check_named("Elasticsearch(facets=…)", self.facets, 'Elasticsearch(facets=("city",))', types)
        for name in self.text:
            if types[name] not in TEXTS:
                readable = ", ".join(name for name, kind in types.items() if kind in TEXTS)
                problem = f'names "{name}", which is {types[name].name} and no text'
                raise ValueError(f"Elasticsearch(text=…) {problem}: use {readable}")
        for name in self.facets:
            if name in self.clear:
                problem = f'names "{name}", which is personal: its values would be shown to every caller: remove it'
                raise ValueError(f"Elasticsearch(facets=…) {problem}")
        refuse_points("Elasticsearch(facets=…)", self.facets, types, "has no values to count")
        for name in self.facets:
            if types[name] is ColumnType.JSON:  # stored, and not indexed
                raise ValueError(f'Elasticsearch(facets=…) names "{name}", which is JSON and not indexed: remove it')

    def narrowed(self, columns: Collection[str], key: str) -> Elasticsearch:
        text, facets, clear = (
            tuple(name for name in names if name in columns) for names in (self.text, self.facets, self.clear)
        )
        return replace(self, text=text, facets=facets, clear=clear)


def has_score(kind: ColumnType) -> bool:
    """Whether a sorted set can have the order of columns of this type."""
    return kind in SCORES or kind.is_decimal


@word('Ranking("-price", within=("city",))')
@dataclass(frozen=True)
class Ranking:
    """The order of the rows by one column, kept in a sorted set, for queries that sort by it: a leaderboard.

    sort: a column of numbers, times or dates; with "-" the highest come first, as in `?sort=-cents`. Rows with equal
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


def check_rankings(rankings: Any, types: Mapping[str, ColumnType]) -> None:
    """Check the rankings of a view with these columns, the key first."""
    if not isinstance(rankings, tuple):
        raise ValueError(f'rankings={rankings!r} is not a tuple: write Cache(rankings=(Ranking("-column"),))')
    seen = set[tuple[str, frozenset[str]]]()
    for ranking in rankings:
        if not isinstance(ranking, Ranking):
            raise ValueError(f'{ranking!r} is not a ranking: write Cache(rankings=(Ranking("-column"),))')
        try:
            _check_sort(ranking, types)
            _check_within(ranking, types)
        except ValueError as error:
            raise ValueError(f"{ranking!r}: {error}") from error
        what = (ranking.sort, frozenset(ranking.within))
        if what in seen:
            raise ValueError(f"{ranking!r} is declared more than once: remove one")
        seen.add(what)


def _check_sort(ranking: Ranking, types: Mapping[str, ColumnType]) -> None:
    able = _able_columns(types, SCORES, decimals=True)
    if not isinstance(ranking.sort, str):
        raise ValueError(f'sort is not a text: write the name of a column ({able}), such as Ranking("-column")')
    if "," in ranking.sort:
        raise ValueError("it sorts by one column, and rows with equal values are in the order of their keys: name one")
    if ranking.column not in types:
        raise ValueError(f'"{ranking.column}" is not a column that is stored: sort by {able}')
    kind = types[ranking.column]
    if not has_score(kind):
        raise ValueError(f'"{ranking.column}" is {kind.name}, which has no place in a sorted set: sort by {able}')


def _check_within(ranking: Ranking, types: Mapping[str, ColumnType]) -> None:
    if not isinstance(ranking.within, tuple) or not all(isinstance(name, str) for name in ranking.within):
        raise ValueError('within is not a tuple of columns: write within=("column",)')
    key, able = next(iter(types)), _able_columns(types, GROUPS)
    for name in ranking.within:
        if name not in types:
            raise ValueError(f'within names "{name}", which is not a column that is stored: use {able}')
        if types[name] not in GROUPS:
            raise ValueError(f'within names "{name}", which is {types[name].name} and cannot be equal: use {able}')
        if name == key:
            raise ValueError(f'within names the key "{name}", so each row would be alone: use other columns')
        if name == ranking.column:
            raise ValueError(f'within names "{name}", by which it also sorts: remove one of both')
    if len(set(ranking.within)) < len(ranking.within):
        raise ValueError("within names a column more than once: name it once")


def _able_columns(types: Mapping[str, ColumnType], kinds: Sequence[ColumnType], *, decimals: bool = False) -> str:
    able = [
        name
        for number, (name, kind) in enumerate(types.items())
        if number and (kind in kinds or (decimals and kind.is_decimal))
    ]
    names = [*(kind.name for kind in kinds), *(["DECIMAL"] if decimals else [])]
    return ", ".join(able) or f"a column of {', '.join(names)}, of which this view has none"


@word('Cache(rankings=(Ranking("-price"),))')
@dataclass(frozen=True)
class Cache(DeclaredStore):
    """The view is a Valkey hash per key, for look-ups by key. `rankings`: orders in which it also finds rows."""

    rankings: tuple[Ranking, ...] = ()
    name = "valkey"
    finds = False

    @property
    def declaration(self) -> str:
        return f"Cache(rankings={[ranking.declaration for ranking in self.rankings]!r})" if self.rankings else "Cache()"

    def check(self, types: Mapping[str, ColumnType]) -> None:
        check_rankings(self.rankings, types)

    def narrowed(self, columns: Collection[str], key: str) -> Cache:
        dividing = set(columns) - {key}
        rankings = (
            ranking for ranking in self.rankings if ranking.column in columns and dividing.issuperset(ranking.within)
        )
        return replace(self, rankings=tuple(rankings))


@word("Topic()")
@dataclass(frozen=True)
class Topic(DeclaredStore):
    """The rows of a view as a Kafka topic, `<environment>.views.<view>`, for programs that follow it.

    It is compacted: the last record of a key is the row, a tombstone a deleted row. Another store answers queries.
    """

    name = "topic"
    answers = False
    keeps_partitions = True

    @property
    def declaration(self) -> str:
        return "Topic()"

    def check(self, types: Mapping[str, ColumnType]) -> None:
        """It names no columns."""


STORES: Final[Mapping[str, type[DeclaredStore]]] = MappingProxyType(
    {store.name: store for store in (Postgres, Elasticsearch, Cache, Topic)}
)
"""By name."""
