"""Gives rows of one key to a step function in the order of (time, id); Spark's workers run this."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import cached_property
from typing import Any, Final, NamedTuple

import orjson

from headwater.eventlog.envelope import EPOCH
from headwater.projections.limits import MAX_STATE_BYTES
from headwater.projections.table.types import ColumnType, canonical, exact_value

Rows = Sequence[Mapping[str, Any]]
Step = Callable[[Any, Any], tuple[Any, Rows] | tuple[Any, Rows, datetime | None]]
"""From the state and a row to the new state, the rows to send, and when to go on if nothing comes; see in_order."""
OnTime = Callable[[Any, datetime], tuple[Any, Rows] | tuple[Any, Rows, datetime | None]]
"""From the state and that time to the same."""

_MICROSECOND: Final = timedelta(microseconds=1)
_MAX_INTEGER: Final = 2**63 - 1
_STRICT: Final = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS


class Unchanged(Enum):
    """See UNCHANGED."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED
"""What a step returns in place of a state that it has not changed; a large one need not be written and read then."""


class StepFailed(Exception):
    """A step function raised, or returned what it must not. The message names the function, the row and the problem."""


@dataclass(frozen=True)
class Memory:
    """What is kept of a key.

    state: the step's, as JSON; None for none. last_us: time of the last row, or of the last call of `on_time`. wake_us:
    when `on_time` is to be called.
    """

    state: bytes | None = None
    last_us: int | None = None
    wake_us: int | None = None


@dataclass(frozen=True)
class Steps:
    """Runs a step.

    given: columns of its rows.
    made: columns that it returns.
    forget_after, on_time: see in_order.
    """

    step: Step
    given: Mapping[str, ColumnType]
    made: Mapping[str, ColumnType]
    forget_after: timedelta
    on_time: OnTime | None = None

    def run(self, memory: Memory, records: Iterable[Mapping[str, Any]]) -> tuple[Memory, list[str]]:
        """Give all these records to the step; returns what to keep, and the rows that it made, as JSON.

        records: the members are the columns, and times are microseconds since 1970. Raises StepFailed.
        """
        made = list[str]()
        for record in ordered(records):
            memory, rows = self.wake(memory, record["time"])
            made += rows
            last_us, state = memory.last_us, memory.state
            if last_us is not None and record["time"] - last_us > self.forget_after_us:
                state = None
            times = {name: time_at(record[name]) for name in self._times if record[name] is not None}
            after, rows = self._call(self.step, state, self._row(**{**record, **times}))
            made += rows
            wake_us = memory.wake_us if after.keeps_wake else self._checked(after.wake_us, record["time"], record["id"])
            memory = Memory(after.state, record["time"], wake_us)
        if not self._last.is_as_read:
            raise StepFailed(
                f'step "{_name(self.step)}" changed its state and returned UNCHANGED: return the new state'
            )
        return memory, made

    def wake(self, memory: Memory, before_us: int) -> tuple[Memory, list[str]]:
        """Call `on_time` if it is to be called before this time; what to keep, and the rows that it made, as JSON.

        All rows up to that time must have been given to the step. Raises StepFailed.
        """
        made, on_time = list[str](), self.on_time
        while on_time is not None and (due_us := memory.wake_us) is not None and due_us < before_us:
            time, name = time_at(due_us), _name(on_time)
            after, rows = self._call(on_time, memory.state, time)
            made += rows
            next_us = self._checked(after.wake_us, due_us, str(time))
            if next_us is not None and next_us <= due_us:
                raise StepFailed(f'"{name}" wants to be called again at the time of its call: return a later one')
            memory = Memory(after.state, due_us, next_us)
        return memory, made

    def _checked(self, wake_us: int | None, now_us: int, place: str) -> int | None:
        if wake_us is not None and wake_us - now_us > self.forget_after_us:
            raise StepFailed(
                f'"{_name(self.step)}" asks at "{place}" to go on at {time_at(wake_us)}, when its state is forgotten: '
                "raise forget_after"
            )
        return wake_us

    @cached_property
    def forget_after_us(self) -> int:
        return self.forget_after // _MICROSECOND

    @cached_property
    def _row(self) -> Any:
        return namedtuple("Row", self.given)

    @cached_property
    def _last(self) -> _LastRead:
        return _LastRead()

    @cached_property
    def _times(self) -> list[str]:
        return [name for name, kind in self.given.items() if kind is ColumnType.TIME]

    def _call(
        self, function: Callable[[Any, Any], Any], state: bytes | None, argument: Any
    ) -> tuple[_After, list[str]]:
        """What a function of the user returns for the state and a row or a time.

        The state is always read from JSON: otherwise a step that keeps a tuple could see it again or not, depending on
        what came in between. Only after UNCHANGED it is not read again."""
        try:
            before = self._last.take(state)
            after, rows, *wake = _returned(function(before, argument), timed=self.on_time is not None)
            if is_unchanged := after is UNCHANGED:
                self._last.keep(state, before)
            keeps_wake = is_unchanged and not wake and function is self.step
            kept = state if is_unchanged else _dumped(after)
            return _After(kept, _time_us(wake[0]) if wake else None, keeps_wake), [self._sent(row) for row in rows]
        except Exception as error:  # a user's function may raise anything
            problem = str(error) if isinstance(error, _Wrong) else f"{type(error).__name__}: {error}"
            is_time = isinstance(argument, datetime)
            place = f'time "{argument:%Y-%m-%dT%H:%M:%S.%fZ}"' if is_time else f'row "{argument.id}"'
            raise StepFailed(f'step "{_name(function)}" failed at {place}: {" ".join(problem.split())}') from error

    def _sent(self, row: Any) -> str:
        if not isinstance(row, Mapping) or row.keys() != self.made.keys():
            sent = ", ".join(map(str, row)) if isinstance(row, Mapping) else type(row).__name__
            raise _Wrong(f"a row must be a dict with {', '.join(self.made)}, not {sent}")
        return orjson.dumps({name: _value(name, kind, row[name]) for name, kind in self.made.items()}).decode()


class _After(NamedTuple):
    """What a call leaves: the state as JSON, when to go on, and whether that is when it was to go on before."""

    state: bytes | None
    wake_us: int | None
    keeps_wake: bool


class _LastRead:
    """The state that was read last, so that many rows that do not change it need not read it again."""

    def __init__(self) -> None:
        self._text: bytes | None = None
        self._state: Any = None

    def take(self, text: bytes | None) -> Any:
        """A state from its JSON; the caller may change it."""
        kept, state = self._text, self._state
        self._text = self._state = None
        if text is None:
            return None
        return state if kept is text else orjson.loads(text)

    @property
    def is_as_read(self) -> bool:
        """Whether what is kept is what its JSON says."""
        return self._text is None or orjson.dumps(self._state) == self._text

    def keep(self, text: bytes | None, state: Any) -> None:
        """Say that `state` is still what this JSON says."""
        self._text, self._state = text, state


class _Wrong(Exception):
    """What a step returned is not what it must be."""


def ordered(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """In the order of time and id; of several with the same, the one that was recorded last.

    Compaction keeps the last one too. Their text decides if that time is unknown.
    """
    last = {(record["time"], record["id"]): record for record in sorted(records, key=_rank)}
    return list(last.values())


def _rank(record: Mapping[str, Any]) -> tuple[int, str, int, bytes]:
    """By which records are sorted; of those with equal time and id, the last one counts."""
    recorded = record.get("recordedtime")
    text = orjson.dumps(record, option=orjson.OPT_SORT_KEYS)
    return record["time"], record["id"], recorded if isinstance(recorded, int) else 0, text


def microseconds(time: datetime) -> int:
    """A time as records have it: microseconds since 1970."""
    return (time - EPOCH) // _MICROSECOND


def time_at(microseconds: int) -> datetime:
    """The time that a record has as these microseconds since 1970."""
    return EPOCH + timedelta(microseconds=microseconds)


def _name(function: object) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _returned(returned: Any, *, timed: bool) -> Sequence[Any]:
    """The state, the rows, and if there are three, the time."""
    if not isinstance(returned, tuple) or len(returned) not in ((2, 3) if timed else (2,)):
        with_time = ", or these and the time to call on_time at" if timed else ""
        without = "" if timed or not isinstance(returned, tuple) or len(returned) != 3 else "; a time needs on_time"
        raise _Wrong(f"it must return a pair: the new state, and a list of rows{with_time}{without}")
    if not isinstance(returned[1], list | tuple):
        raise _Wrong(f"its rows must be a list, not {type(returned[1]).__name__}")
    return returned


def _time_us(time: Any) -> int | None:
    if time is None:
        return None
    if not isinstance(time, datetime) or time.tzinfo is None:
        raise _Wrong(
            f"the time at which on_time is to be called must be a datetime with a time zone, not {time!r:.100}"
        )
    return microseconds(time)


def _dumped(state: Any) -> bytes | None:
    if state is None:
        return None
    try:
        text = orjson.dumps(state, option=_STRICT)
    except TypeError as error:
        raise _Wrong(f"its state must be made of dicts, lists, texts, numbers, booleans and None: {error}") from error
    if len(text) > MAX_STATE_BYTES:
        raise _Wrong(f"its state has {len(text):,} bytes: keep it below {MAX_STATE_BYTES:,}")
    return text


def _value(name: str, kind: ColumnType, value: Any) -> Any:
    """A value of a column as JSON for Spark."""
    match kind, value:
        case _, None:
            return None
        case ColumnType.JSON, _:
            return orjson.dumps(value).decode()
        case (ColumnType.TEXT, str()) | (ColumnType.BOOLEAN, bool()):
            return value
        case ColumnType.INTEGER, int() if not isinstance(value, bool) and abs(value) <= _MAX_INTEGER:
            return value
        case ColumnType.FLOAT, int() | float() if not isinstance(value, bool):
            return float(value)
        case ColumnType.TIME, datetime() if value.tzinfo is not None:
            return microseconds(value)
        case ColumnType.DATE, date() if not isinstance(value, datetime):
            return value.isoformat()
        case _, Decimal() | int() if kind.is_decimal and (made := exact_value(value, kind)) is not None:
            return canonical(made, kind)
        case ColumnType.POINT, (int() | float() as latitude, int() | float() as longitude):
            return {"lat": float(latitude), "lon": float(longitude)}
    hint = " with a time zone" if kind is ColumnType.TIME else ""
    raise _Wrong(f'column "{name}" is declared {kind.name}{hint}, but the value is {value!r:.100}')
