"""Patterns: observations of several types that follow one another within some time, per key."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from headwater.commands.declaring.observation import Observation
from headwater.projections.durations import duration
from headwater.projections.limits import MAX_ROWS
from headwater.projections.stream.in_order.ordered import in_order
from headwater.projections.stream.in_order.steps import UNCHANGED, microseconds, time_at
from headwater.projections.table.types import ColumnType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Where = Callable[[Any], bool]
Describe = Callable[[Sequence[Any]], Mapping[str, Any]]


@dataclass(frozen=True)
class Occurs:
    """Rows of one class; see occurs."""

    kind: type[Observation]
    times: int = 1
    where: Where | None = None

    def matches(self, row: Any) -> bool:
        """Whether this row is one of them. A source with one class has no column `type`."""
        return getattr(row, "type", self.kind.type) == self.kind.type and (self.where is None or bool(self.where(row)))


Unwanted = type[Observation] | Occurs | Sequence[type[Observation] | Occurs]
"""What must not come: one class or several."""


@dataclass(frozen=True)
class Pattern:
    """A pattern; see pattern. parts: one per row of a match."""

    parts: tuple[Occurs, ...]
    within: str
    without: tuple[Occurs, ...]
    unless: tuple[Occurs, ...] = ()

    def matches(
        self, rows: DataFrame, *, key: str | Sequence[str], row: Describe, columns: Mapping[str, ColumnType]
    ) -> DataFrame:
        """A row per match, for the query of a view with `final=True`.

        rows: of a source, with `id`, `time`, `recordedtime`, and if it has several classes, `type`. key: its column or
        columns that all rows of a match have in common. row: returns the row of a match, as a dict with the names in
        `columns`; it is given the matching rows in their order, each with the columns of `rows` as attributes. columns:
        see in_order.

        Raises ValueError that says what to change.
        """
        kinds = {each.kind for each in (*self.parts, *self.without, *self.unless)}
        if "type" not in rows.columns and len(kinds) > 1:
            raise ValueError(
                'a pattern needs the column "type": read its classes as one source, observations(A, B, late_after=…)'
            )
        times = tuple(name for name, kind in rows.dtypes if kind == "timestamp")
        step = Matcher(self, row, times, duration(self.within) // timedelta(microseconds=1))
        if not self.unless:
            return in_order(rows, key=key, step=step, columns=columns, forget_after=self.within)
        waiting = Waiting(step)
        return in_order(rows, key=key, step=waiting, on_time=waiting.report, columns=columns, forget_after=self.within)


@dataclass(frozen=True)
class Matcher:
    """The step of a pattern.

    Its state has, by number of rows, an unfinished match of so many rows: of all these, the one that began last, and
    then the one whose rows came first. That is enough: if any of them can be completed by a row, so can this one, and
    it is the last one to become too old. times: columns with times.
    """

    pattern: Pattern
    describe: Describe
    times: tuple[str, ...]
    within_us: int

    @property
    def __name__(self) -> str:
        """For errors."""
        return f"pattern with row={getattr(self.describe, '__name__', self.describe)}"

    def __call__(self, state: Any, row: Any) -> tuple[Any, list[Mapping[str, Any]]]:
        """Take in a row."""
        if any(each.matches(row) for each in self.pattern.without):
            return None, []
        after, match = self.extended(state, row)
        return after, [] if match is None else [self.described(match)]

    def extended(self, state: Any, row: Any) -> tuple[Any, list[Any] | None]:
        """The state after a row, and the stored rows of the match that it completes."""
        last, stored = len(self.pattern.parts), self._stored(row)
        found: list[Any] = [each if self._is_open(each, stored) else None for each in state or [None] * (last - 1)]
        for number in range(last, 0, -1):  # from the end, so that a row is not taken twice
            before = [] if number == 1 else found[number - 2]
            if before is None or not self.pattern.parts[number - 1].matches(row):
                continue
            longer = [*before, stored]
            if number == last:
                return None, longer
            if found[number - 1] is None or found[number - 1][0] != longer[0]:
                found[number - 1] = longer
        return (found if any(found) else None), None

    def described(self, match: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """The row of a match."""
        return self.describe([self._read(each) for each in match])

    def _is_open(self, match: Any, row: Mapping[str, Any]) -> bool:
        return match is not None and row["time"] - match[0]["time"] <= self.within_us

    def _stored(self, row: Any) -> dict[str, Any]:
        """A row in the state: times as microseconds."""
        values: dict[str, Any] = row._asdict()
        return values | {name: microseconds(values[name]) for name in self.times if values[name] is not None}

    def _read(self, stored: Mapping[str, Any]) -> Any:
        times = {name: time_at(stored[name]) for name in self.times if stored[name] is not None}
        return _row_type(tuple(stored))(**{**stored, **times})


@dataclass(frozen=True)
class Waiting:
    """The step of a pattern with `unless`.

    Its state has `rows`, the match that waits for the end of `within`, or `open`, the state of the matcher.
    """

    matcher: Matcher

    @property
    def __name__(self) -> str:
        """For errors."""
        return self.matcher.__name__

    def __call__(self, state: Any, row: Any) -> tuple[Any, list[Any]] | tuple[Any, list[Any], datetime]:
        """Take in a row."""
        known = state or {}
        if any(each.matches(row) for each in self.matcher.pattern.unless):
            return None, []
        if "rows" in known:
            return UNCHANGED, []
        after, match = self.matcher.extended(known.get("open"), row)
        if match is None:
            return (None if after is None else {"open": after}), []
        return {"rows": match}, [], time_at(match[0]["time"] + self.matcher.within_us)

    def report(self, state: Any, _: datetime) -> tuple[None, list[Mapping[str, Any]]]:
        """What must not come has not come."""
        return None, [self.matcher.described(state["rows"])]


@cache
def _row_type(columns: tuple[str, ...]) -> Any:
    return namedtuple("Row", columns)


def occurs(kind: type[Observation], *, times: int = 1, where: Where | None = None) -> Occurs:
    """Observations of a class in a pattern.

    times: how many, one after another. where: a function that is given a row and returns whether it counts. Raises
    ValueError that says what to change.
    """
    if not (isinstance(kind, type) and issubclass(kind, Observation) and kind.type):
        raise ValueError(f'"{getattr(kind, "__name__", repr(kind))}" is not a class of observations with a type')
    if isinstance(times, bool) or not isinstance(times, int) or times < 1:
        raise ValueError(f"times={times!r} of {kind.__name__}: use a whole number from 1")
    if where is not None and not callable(where):
        raise ValueError(f"where={where!r} of {kind.__name__}: use a function of a row")
    return Occurs(kind, times, where)


def pattern(
    *parts: type[Observation] | Occurs,
    within: str,
    without: Unwanted = (),
    unless: Unwanted = (),
) -> Pattern:
    """Rows that follow one another in the order of `(time, id)`; other rows may come in between.

    parts: classes of observations, or `occurs(…)`. within: such as "10m", the longest time from the first row to the
    last. without: what must not come between the first row and the last. unless: what must not come between the first
    row and the end of `within`; then one part is enough.

    A match is reported at the row that completes it, or with `unless` at the end of `within`; rows that come until then
    are in no other match. If several sequences end with this row, the one that begins last
    is reported, and of its other rows each is the earliest possible. A row is in one match at most: the next one begins
    after the last row of this one. Raises ValueError that says what to change.
    """
    wanted = [each if isinstance(each, Occurs) else occurs(each) for each in parts]
    single = tuple(Occurs(each.kind, 1, each.where) for each in wanted for _ in range(min(each.times, MAX_ROWS + 1)))
    least = 1 if unless else 2
    if not least <= len(single) <= MAX_ROWS:
        raise ValueError(f"a pattern has {least} to {MAX_ROWS} rows, counting those of times=…, not {len(single)}")
    duration(within)
    return Pattern(single, within, _excluded("without", without, single), _excluded("unless", unless, single))


def _excluded(word: str, given: Unwanted, parts: Sequence[Occurs]) -> tuple[Occurs, ...]:
    """What must not come. word: of the declaration."""
    classes = given if isinstance(given, Sequence) else [given]
    excluded = tuple(each if isinstance(each, Occurs) else occurs(each) for each in classes)
    for each in excluded:
        if each.times > 1:
            raise ValueError(f"{word}={each.kind.__name__} with times={each.times}: one is enough, leave out times")
        if any(part.kind is each.kind for part in parts):
            raise ValueError(f"{each.kind.__name__} is both a part of the pattern and in {word}: leave it out of one")
    return excluded
