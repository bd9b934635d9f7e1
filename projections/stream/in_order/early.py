"""Rows of in_order before they are final: what came lately is given to the step again if a row comes before it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from headwater.projections.stream.in_order.steps import Steps, rank
from headwater.projections.stream.in_order.tail import NO_STATE, Kept, Place, Rows, State, Tail, last_rows
from headwater.projections.table.types import ColumnType

SHARE: Final = 4
"""Complete rows are taken out when they are this share of all, because all may have to be given to the step again."""
_UNKNOWN: Final = b"?"
"""The text of a state that is not kept."""


class _Unknown(Exception):
    """A state is needed that is not kept."""


@dataclass(frozen=True)
class EarlySteps:
    """Runs a step on rows as they come, so that the rows of the view are always those of all source rows in order.

    row_key: the columns that identify a row of the view; deleted_by: the one that deletes it. complete_us: how long
    after a row's time no row can come any more that is before it, in microseconds.
    """

    steps: Steps
    row_key: tuple[str, ...]
    deleted_by: str
    complete_us: int

    def add(self, tail: Tail, records: Sequence[dict[str, Any]], watermark_us: int) -> list[str]:
        """Take in these records; returns the rows of the view that have changed, as JSON.

        watermark_us: no later record has an earlier time. Raises StepFailed.
        """
        if not records:
            return []
        tail.newest_us = max(tail.newest_us or 0, *(each["time"] for each in records), 0)
        until_us = max(watermark_us, tail.newest_us - self.complete_us)
        tail.open_from(min((each["time"], each["id"]) for each in records))
        try:
            changed = self._add(tail, _merged(tail.rows, records), until_us)
        except _Unknown:
            tail.open_all()
            again = [Kept(each.record) for each in _merged(tail.rows, records)]
            changed = self._add(tail, again, until_us)
        self.steps.check_unchanged()
        tail.divide()
        return changed

    def forget(self, tail: Tail) -> None:
        """Forget the state: the next row is so much later that it does not find it."""
        tail.open_all()
        self._settle(tail, tail.rows, NO_STATE)
        tail.rows, tail.start, tail.start_us, tail.end = [], NO_STATE, None, NO_STATE

    def _add(self, tail: Tail, rows: list[Kept], until_us: int) -> list[str]:
        """Put these rows in place of those of `tail`, and take out complete ones. Raises _Unknown before it does."""
        complete = self._complete(rows, until_us) if not tail.chunks else 0
        start, end = self._folded(tail, rows, complete)
        chunks = sum(each.last_us < until_us for each in tail.chunks)
        if chunks * SHARE < len(tail.chunks):
            chunks = 0
        if chunks:
            start = _known(tail, end).get(tail.chunks[chunks - 1].after) or State(text=_UNKNOWN)
        if _UNKNOWN in (start.text, end.text):
            raise _Unknown
        changed = self._changed(tail, rows)
        for _ in range(chunks):
            self._settle(tail, tail.remove_first(), start)
        self._settle(tail, rows[:complete], start)
        tail.rows, tail.end = rows[complete:], end
        return changed

    def _complete(self, rows: list[Kept], until_us: int) -> int:
        """How many of these rows to take out."""
        number = sum(each.time_us < until_us for each in rows)
        return number if number * SHARE >= len(rows) else 0

    def _folded(self, tail: Tail, rows: list[Kept], complete: int) -> tuple[State, State]:
        """Give the step each of these rows whose state before it is another one than last time.

        Returns the state after the first `complete` rows, and after all.
        """
        known = _known(tail, tail.end)
        state, last_us = tail.start, tail.start_us
        if tail.chunks:
            state, last_us = _numbered(known, tail.chunks[-1].after), tail.chunks[-1].last_us
        start = state
        for place, each in enumerate(rows):
            if place == complete:
                start = state
            if self.steps.is_forgotten(last_us, each.time_us):
                state = NO_STATE
            if each.before == state.number:
                state = _numbered(known, each.after)
            else:
                state, rows[place] = self._step(tail, each, state, known)
            last_us = each.time_us
        return state if complete == len(rows) else start, state

    def _step(self, tail: Tail, row: Kept, before: State, known: Mapping[int, State]) -> tuple[State, Kept]:
        if before.text is _UNKNOWN:
            raise _Unknown
        text, made = self.steps.one(before.text, row.record)
        after = next((each for each in (before, *known.values()) if each.text == text), None)
        after = after or State(tail.number(), text)
        return after, Kept(row.record, before.number, after.number, {self._key(values): text for values, text in made})

    def _changed(self, tail: Tail, rows: list[Kept]) -> list[str]:
        """The rows of the view that are not as they were sent, in place of those of `tail.rows`."""
        before, after = last_rows(tail.rows), last_rows(rows)
        changed = {key: row for key, row in after.items() if before.get(key) != row}
        taken_back = before.keys() - after.keys()
        found = self._earlier(tail, taken_back) if taken_back else {}
        changed |= {key: found.get(key) or self._deleted(key) for key in sorted(taken_back)}
        return list(changed.values())

    def _earlier(self, tail: Tail, keys: Collection[str]) -> Rows:
        """The last rows with these keys before `tail.rows`."""
        found = Rows()
        for chunk in reversed(tail.chunks):
            rows = last_rows(tail.read(chunk))
            found |= {key: rows[key] for key in keys if key in rows and key not in found}
        return {**tail.past.find([key for key in keys if key not in found]), **found}

    def _settle(self, tail: Tail, rows: list[Kept], state: State) -> None:
        """Take out these complete rows; `state` is the one after them."""
        if rows:
            tail.start, tail.start_us = state, rows[-1].time_us
            tail.past.add({key: None if self._is_deleted(row) else row for key, row in last_rows(rows).items()})

    def _key(self, values: Mapping[str, Any]) -> str:
        """As exact as the key of the view, whose times have milliseconds."""
        parts = [values[name] for name in self.row_key]
        kinds = [self.steps.made[name] for name in self.row_key]
        exact = [
            part // 1_000 * 1_000 if kind is ColumnType.TIME and part is not None else part
            for part, kind in zip(parts, kinds, strict=True)
        ]
        return orjson.dumps(exact).decode()

    def _deleted(self, key: str) -> str:
        values = dict(zip(self.row_key, orjson.loads(key), strict=True))
        return orjson.dumps({name: values.get(name) for name in self.steps.made} | {self.deleted_by: True}).decode()

    def _is_deleted(self, row: str) -> bool:
        return orjson.loads(row).get(self.deleted_by) is True


def _known(tail: Tail, end: State) -> dict[int, State]:
    """The states whose texts are known."""
    return {each.number: each for each in (NO_STATE, tail.start, tail.end, end)}


def _numbered(known: Mapping[int, State], number: int) -> State:
    return known.get(number) or State(number, _UNKNOWN)


def _merged(rows: list[Kept], records: Iterable[dict[str, Any]]) -> list[Kept]:
    """These rows and new ones, in the order of (time, id); of several with the same, the one that was recorded last."""
    found: dict[Place, Kept] = {}
    for each in sorted([*rows, *map(Kept, records)], key=lambda each: each.place):
        known = found.get(each.place)
        if known is None or rank(known.record) < rank(each.record):
            found[each.place] = each
    return list(found.values())
