"""Rows of a stream in the order of their time, per key: for a function that keeps a state, and for patterns."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, Final

from headwater.commands.declaring.observation import Observation
from headwater.projections.durations import duration
from headwater.projections.limits import MAX_ROWS
from headwater.projections.stream.checks import is_column_type, is_key_type
from headwater.projections.stream.steps import UNCHANGED, OnTime, Step, Steps, microseconds, time_at
from headwater.projections.table.expressions import identifier, literal
from headwater.projections.table.types import SPARK_TYPES, ColumnType, finite, spark_value_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_READABLE: Final[Mapping[str, ColumnType]] = {
    "string": ColumnType.TEXT,
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), ColumnType.INTEGER),
    **dict.fromkeys(("float", "double"), ColumnType.FLOAT),
    "boolean": ColumnType.BOOLEAN,
    "timestamp": ColumnType.TIME,
}
"""The types of Spark that a step can be given, and what they are in Python."""
_SENT: Final = {ColumnType.TIME: "bigint"}
"""How some types are written in what Python returns, if not as in Spark."""
_NEEDED: Final = {"id": ColumnType.TEXT, "time": ColumnType.TIME}
Where = Callable[[Any], bool]
Describe = Callable[[Sequence[Any]], Mapping[str, Any]]


def in_order(
    rows: DataFrame,
    *,
    key: str | Sequence[str],
    step: Step,
    columns: Mapping[str, ColumnType],
    forget_after: str,
    on_time: OnTime | None = None,
) -> DataFrame:
    """The rows that `step` returns when it is given `rows` in the order of `(time, id)`, per key, each once.

    For the query of a view with `final=True`: a row is given to `step` when no admitted row can come before it any
    more. Of rows with the same `id` and `time`, the one that was recorded last counts, if they have `recordedtime`;
    else the one whose JSON text is the greatest. Rows whose key is null are left out.

    rows: has at least `id` and `time`, as every source has; of observations, keep `recordedtime` too.
    key: its column or columns.
    step: `step(state, row)` returns the new state and a list of rows, each a dict with the names in `columns`. `state`
    is the value that it returned for the previous row of this key, or None; it must be made of dicts, lists, texts,
    numbers, booleans and None. `row` has the columns of `rows` as attributes; times are datetimes in UTC.
    columns: what `step` returns, with their types. A TIME is a datetime with a time zone, a POINT is
    `(latitude, longitude)`, and JSON is any value of which a JSON text can be made.
    forget_after: such as "30d". A row that comes longer than this after the previous one of its key finds the state
    None; so the state of a key is not kept for longer.
    on_time: `on_time(state, time)` is called at the time that `step` returned as a third value, after all rows up to it
    and before any later one, unless the step has returned another time, or none, since. It returns what a step does.
    A step that returns two values asks for no time, but with UNCHANGED it stays.

    Raises ValueError that says what to change. What `step` raises stops the query of this view.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    from headwater.projections.stream.ordered_state import WINDOW_S, OrderedRows  # noqa: PLC0415

    keys = (key,) if isinstance(key, str) else tuple(key)
    kinds = _kinds(rows)
    _check(kinds, keys, columns)
    steps = Steps(step, dict(kinds), dict(columns), duration(forget_after), on_time)
    values = ", ".join(f"{_plain(name, kind)} as {identifier(name)}" for name, kind in kinds.items())
    documents = rows.where(" and ".join(f"{identifier(field)} is not null" for field in keys)).selectExpr(
        f"to_json(struct({', '.join(map(identifier, keys))})) as key",
        "time",
        f"to_json(struct({values}), map('ignoreNullFields', 'false')) as record",
    )
    ddl = ", ".join(f"{identifier(name)} {_SENT.get(kind, SPARK_TYPES[kind])}" for name, kind in columns.items())
    windows = (
        documents.groupBy("key", f.window("time", f"{WINDOW_S} seconds").alias("seconds"))
        .agg(f.collect_list("record").alias("records"))
        .selectExpr(
            "key",
            "window_time(seconds) as time",
            "unix_millis(seconds.start) as start_ms",
            "concat_ws(',', records) as records",
        )
    )
    ordered = windows.groupBy("key").transformWithState(OrderedRows(steps), "made string", "Append", "EventTime")
    read = ordered.selectExpr(f"from_json(made, {literal(ddl)}) as made")
    return read.selectExpr(*(f"{_typed(name, kind)} as {identifier(name)}" for name, kind in columns.items()))


def _kinds(rows: DataFrame) -> dict[str, ColumnType]:
    """The columns of `rows` with their types; raises ValueError for those that a step cannot be given."""
    kinds = dict(rows.dtypes)
    for name, kind in kinds.items():
        if kind not in _READABLE:
            raise ValueError(
                f'in_order cannot pass column "{name}" of type {kind} to its step: cast it, or select other columns'
            )
        if not name.isidentifier() or iskeyword(name) or name.startswith("_"):
            raise ValueError(f'in_order cannot pass column "{name}" to its step: rename it to a Python name')
    if len(kinds) < len(rows.columns):
        raise ValueError(f"in_order is given a column twice: {', '.join(rows.columns)}")
    return {name: _READABLE[kind] for name, kind in kinds.items()}


def _check(kinds: Mapping[str, ColumnType], keys: Sequence[str], columns: Mapping[str, ColumnType]) -> None:
    for name, kind in _NEEDED.items():
        if kinds.get(name) is not kind:
            raise ValueError(f'in_order needs the columns "id" and "time" of the source: keep "{name}"')
    if not keys:
        raise ValueError("in_order has no key: name the column whose rows belong together")
    for name in keys:
        if name not in kinds:
            raise ValueError(f'in_order has the key "{name}", but its rows have {", ".join(kinds)}')
        if not is_key_type(kinds[name]):
            raise ValueError(f'in_order cannot take column "{name}" as key: its type is {kinds[name].name}')
    if not columns:
        raise ValueError("in_order has no columns: name what its step returns")
    for name, column in columns.items():
        if not is_column_type(column):
            raise ValueError(f'column "{name}" of in_order has the type {column!r}: use TEXT, INTEGER, FLOAT and such')


def _plain(name: str, kind: ColumnType) -> str:
    """Spark SQL of a column's value in JSON."""
    column = identifier(name)
    if kind is ColumnType.TIME:
        return f"unix_micros({column})"
    if kind is ColumnType.FLOAT:
        return finite(column)
    return column


def _typed(name: str, kind: ColumnType) -> str:
    column = f"made.{identifier(name)}"
    if kind is ColumnType.DATE or kind.is_decimal:
        return f"cast({column} as {'date' if kind is ColumnType.DATE else spark_value_type(kind)})"
    return f"timestamp_micros({column})" if kind is ColumnType.TIME else column


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
        kinds = {part.kind for part in (*self.parts, *self.without, *self.unless)}
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
        if any(excluded.matches(row) for excluded in self.pattern.without):
            return None, []
        after, match = self.extended(state, row)
        return after, [] if match is None else [self.described(match)]

    def extended(self, state: Any, row: Any) -> tuple[Any, list[Any] | None]:
        """The state after a row, and the stored rows of the match that it completes."""
        last, stored = len(self.pattern.parts), self._stored(row)
        since_us = stored["time"] - self.within_us
        state_now: list[Any] = [
            match if match is not None and match[0]["time"] >= since_us else None
            for match in state or [None] * (last - 1)
        ]
        for number in range(last, 0, -1):  # from the end, so that a row is not taken twice
            before = [] if number == 1 else state_now[number - 2]
            if before is None or not self.pattern.parts[number - 1].matches(row):
                continue
            longer = [*before, stored]
            if number == last:
                return None, longer
            if state_now[number - 1] is None or state_now[number - 1][0] != longer[0]:
                state_now[number - 1] = longer
        return (state_now if any(state_now) else None), None

    def described(self, match: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """The row of a match."""
        return self.describe([self._read(part) for part in match])

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
        if any(excluded.matches(row) for excluded in self.matcher.pattern.unless):
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
    wanted = [part if isinstance(part, Occurs) else occurs(part) for part in parts]
    single = tuple(Occurs(part.kind, 1, part.where) for part in wanted for _ in range(min(part.times, MAX_ROWS + 1)))
    least = 1 if unless else 2
    if not least <= len(single) <= MAX_ROWS:
        raise ValueError(f"a pattern has {least} to {MAX_ROWS} rows, counting those of times=…, not {len(single)}")
    duration(within)
    return Pattern(single, within, _excluded("without", without, single), _excluded("unless", unless, single))


def _excluded(word: str, given: Unwanted, parts: Sequence[Occurs]) -> tuple[Occurs, ...]:
    """What must not come. word: of the declaration."""
    classes = given if isinstance(given, Sequence) else [given]
    excluded = tuple(cls if isinstance(cls, Occurs) else occurs(cls) for cls in classes)
    for conflict in excluded:
        if conflict.times > 1:
            raise ValueError(
                f"{word}={conflict.kind.__name__} with times={conflict.times}: one is enough, leave out times"
            )
        if any(part.kind is conflict.kind for part in parts):
            raise ValueError(
                f"{conflict.kind.__name__} is both a part of the pattern and in {word}: leave it out of one"
            )
    return excluded
