"""Rankings in sorted sets: in which sets a row is, and where. Shared by those who write the sets and who read them.

A sorted set orders its members by score, a double, and those with equal scores by their bytes. So:

- the member is the row's key, and if the order is descending, the score is the negative value: rows with equal values
  are in the order of their keys in both directions;
- nulls have the score +inf, so they come last in both directions;
- integers from 2**53 on are not exact in a double, so their members begin with the exact number, in EXACT_BYTES
  bytes that sort like it;
- a time is the number of milliseconds since 1970, a date the number of its day;
- a decimal is the integer of all its digits, which has DECIMAL_BYTES bytes where it is not exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from operator import index
from typing import Any, Final, NamedTuple

import orjson

from headwater.projections.limits import CHUNK_ROWS
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.backend import Rows, Size
from headwater.projections.stores.declared import Cache, Ranking
from headwater.projections.stores.documents import DocumentForm, is_deleted
from headwater.projections.stores.names import cache_ranking
from headwater.projections.stores.store import Target
from headwater.projections.stores.valkey.client import connect, translated
from headwater.projections.table.decimals import EXACT
from headwater.projections.table.monoids import State
from headwater.projections.table.types import ColumnType, format_time
from headwater.projections.view import View

INEXACT: Final = 2.0**53
"""From here on, in both directions, a double may stand for several integers."""
EXACT_BYTES: Final = 9
"""Of the exact number before a key: also of a sum that does not fit in 64 bits, and of -2**63 in descending order."""
DECIMAL_BYTES: Final = 17
"""The same for decimals, which have up to 38 digits."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class Member(NamedTuple):
    """A row in a sorted set. exact: the number before its key, if the score is inexact, in so many bytes."""

    key: str
    exact: int | None = None
    exact_bytes: int = EXACT_BYTES

    @property
    def raw(self) -> bytes:
        """As it is stored."""
        if self.exact is None:
            return self.key.encode()
        return (self.exact + _offset(self.exact_bytes)).to_bytes(self.exact_bytes, "big") + self.key.encode()


class ScoredMember(NamedTuple):
    """Where a row is in a sorted set: its member, and the score by which it is ordered."""

    score: float
    member: bytes


@dataclass(frozen=True)
class Ranked:
    """One ranking of a view; unlike a view, it can be pickled to executors. kind: of the column that it sorts by."""

    ranking: Ranking
    kind: ColumnType

    @property
    def name(self) -> str:
        """Of this ranking among those of the view."""
        return self.ranking.declaration

    @property
    def exact_bytes(self) -> int:
        """The number of bytes before the key in a member whose score is inexact."""
        if self.kind.is_decimal:
            return DECIMAL_BYTES
        return EXACT_BYTES if self.kind is ColumnType.INTEGER else 0

    def place(self, value: Any, key: str) -> ScoredMember:
        """Where the row with this key and value is. Raises TypeError or ValueError if the type is not the column's."""
        score = self._number(value)
        if score is None:
            return ScoredMember(math.inf, key.encode())
        if self.ranking.descending:
            score = -score
        exact = int(score) if self.exact_bytes and abs(score) >= INEXACT else None
        return ScoredMember(float(score), Member(key, exact, self.exact_bytes).raw)

    def read(self, member: bytes, score: float) -> Member:
        """The row at a place."""
        if self.exact_bytes and INEXACT <= abs(score) < math.inf:
            exact = int.from_bytes(member[: self.exact_bytes], "big") - _offset(self.exact_bytes)
            if float(exact) == score:  # or others than Headwater wrote it
                return Member(_text(member[self.exact_bytes :]), exact, self.exact_bytes)
        return Member(_text(member))

    def group(self, values: Sequence[Any]) -> str | None:
        """The text of these values of `within`, for the name of their set; None if one is null: then there is none."""
        if any(value is None for value in values):
            return None
        texts = [format_time(value) if isinstance(value, datetime) else value for value in values]
        return orjson.dumps(texts).decode() if texts else ""

    def _number(self, value: Any) -> float | None:
        """The value as an integer or a float; None if it is null, as numbers that are not finite are in JSON."""
        if value is None:
            return None
        if self.kind is ColumnType.TIME:
            time = value if isinstance(value, datetime) else datetime.fromisoformat(value)
            return (time - _EPOCH) / _MILLISECOND
        if self.kind is ColumnType.INTEGER:
            return int(value) if isinstance(value, float) and value.is_integer() else index(value)
        if self.kind is ColumnType.DATE:
            return (value if isinstance(value, date) else date.fromisoformat(value)).toordinal()
        if self.kind.is_decimal:
            return int(EXACT.scaleb(Decimal(value), self.kind.places))
        number = float(value)
        return number if math.isfinite(number) else None


def _offset(exact_bytes: int) -> int:
    """What is added to a number so that it is positive in so many bytes."""
    return 1 << (8 * (exact_bytes - 1))


def ranked_of(view: View) -> tuple[Ranked, ...]:
    """The rankings that a view declares."""
    store = view.store(Cache.name)
    declared = store.rankings if isinstance(store, Cache) else ()
    return tuple(Ranked(ranking, view.types[ranking.column]) for ranking in declared)


@dataclass(frozen=True)
class Rankings:
    """The rankings of one generation, as it has them in Valkey; can be pickled to executors."""

    environment: str
    view: str
    generation: int
    ranked: tuple[Ranked, ...]

    @classmethod
    def of(cls, environment: str, view: View, generation: int) -> Rankings:
        """Those that the view declares."""
        return cls(environment, view.name, generation, ranked_of(view))

    def places(self, form: DocumentForm, key: str, state: State) -> dict[str, ScoredMember]:
        """By sorted set, the place of a row in it. Raises TypeError or ValueError if a column is not of its type."""
        places: dict[str, ScoredMember] = {}
        for ranked in () if is_deleted(state) else self.ranked:
            group = ranked.group([form.columns[name].value(state) for name in ranked.ranking.within])
            if group is not None:
                value = form.columns[ranked.ranking.column].value(state)
                places[self.set_name(ranked, group)] = ranked.place(value, key)
        return places

    def set_name(self, ranked: Ranked, group: str) -> str:
        """The Valkey key of the sorted set of a group."""
        return cache_ranking(self.environment, self.view, self.generation, ranked.name, group)


def changed_places(
    old: Mapping[str, ScoredMember], new: Mapping[str, ScoredMember]
) -> Iterator[tuple[str, float | str, bytes]]:
    """What changes in sorted sets: name, score and member; the score is "" of a member to be removed."""
    for name, place in old.items():
        if name not in new or new[name].member != place.member:
            yield name, "", place.member
    for name, place in new.items():
        if old.get(name) != place:
            yield name, place.score, place.member


def _text(key: bytes) -> str:
    return key.decode(errors="backslashreplace")  # those that others than Headwater wrote


class ValkeyRankings:
    """See RowReader. Its rows are entries of sorted sets, each with its score, or null if that is infinite.

    The key of an entry is a JSON list: the ranking, the values of the group, and the row's key; then the exact number,
    if the score is inexact.
    """

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings

    def rows(self, target: Target) -> Rows:
        ranked = {ranked.name: ranked for ranked in self._rankings(target).ranked}
        prefix = cache_ranking(self._settings.environment, *target.id, "", "")
        with translated(), closing(connect(self._settings.valkey)) as client:
            for name in set(client.scan_iter(match=f"{prefix}*", count=CHUNK_ROWS)):
                ranking, _, group = name.decode().removeprefix(prefix).partition(":")
                if ranking not in ranked:
                    continue  # nobody reads it
                for raw, score in client.zscan_iter(name, count=CHUNK_ROWS):
                    member = ranked[ranking].read(raw, score)
                    exact = [] if member.exact is None else [str(member.exact)]  # it may not fit in 64 bits
                    entry = [ranking, orjson.loads(group or "[]"), member.key, *exact]
                    yield orjson.dumps(entry).decode(), _state(score)

    def rows_of(self, target: Target, keys: Sequence[str]) -> dict[str, State]:
        with translated(), closing(connect(self._settings.valkey)) as client, client.pipeline(False) as pipeline:
            for name, member in self._members(target, keys):
                pipeline.zscore(name, member)
            scores: list[float | None] = pipeline.execute()
        return {key: _state(score) for key, score in zip(keys, scores, strict=True) if score is not None}

    def size(self, target: Target) -> Size:
        return Size(None, None)

    def _members(self, target: Target, keys: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """The sorted set and the member of each entry."""
        rankings = self._rankings(target)
        ranked = {ranked.name: ranked for ranked in rankings.ranked}
        for key in keys:
            ranking, group, member, *exact = orjson.loads(key)
            name = rankings.set_name(ranked[ranking], orjson.dumps(group).decode() if group else "")
            number = int(exact[0]) if exact else None
            yield name, Member(member, number, ranked[ranking].exact_bytes).raw

    def _rankings(self, target: Target) -> Rankings:
        return Rankings.of(self._settings.environment, target.view, target.generation)


def row_of(entry: str) -> str:
    """The key of the row that an entry is about."""
    key: str = orjson.loads(entry)[2]
    return key


def _state(score: float) -> State:
    return {"score": score if math.isfinite(score) else None}
