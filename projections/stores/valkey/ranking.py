"""A ranking, as a view declares it, and its checks; each raises ValueError that says what to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headwater.eventlog.declaring import word
from headwater.projections.table.types import ColumnType

SCORES: Final = (ColumnType.INTEGER, ColumnType.FLOAT, ColumnType.TIME, ColumnType.DATE)
GROUPS: Final = (
    ColumnType.TEXT,
    ColumnType.INTEGER,
    ColumnType.BOOLEAN,
    ColumnType.TIME,
    ColumnType.DATE,
    ColumnType.UUID,
)


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
    able = _columns(types, SCORES, decimals=True)
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
    key, able = next(iter(types)), _columns(types, GROUPS)
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


def _columns(types: Mapping[str, ColumnType], kinds: Sequence[ColumnType], *, decimals: bool = False) -> str:
    found = [
        name
        for number, (name, kind) in enumerate(types.items())
        if number and (kind in kinds or (decimals and kind.is_decimal))
    ]
    names = [*(kind.name for kind in kinds), *(["DECIMAL"] if decimals else [])]
    return ", ".join(found) or f"a column of {', '.join(names)}, of which this view has none"
