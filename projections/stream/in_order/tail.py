"""What in_order with early keeps of a key: the rows that may still get one before them, and what came of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import orjson

from headwater.projections.stream.in_order.row_history import InMemory, RowHistory, Segments

Rows = dict[str, str]
"""Rows of the view as JSON, by the text of their key."""
Place = tuple[int, str]
"""Where a row of the source is: its time in microseconds since 1970, and its id."""
NEVER: Final = 0
"""The number of the state None."""
NEW: Final = -1
"""In place of a state's number: the step has not been given the row."""
CHUNK_ROWS: Final = 200
"""Twice as many rows, and more, are divided: the older ones are not read in every batch."""


class State(NamedTuple):
    """A step's state after some row. number: equal for equal states of one key. text: JSON; None for none."""

    number: int = NEVER
    text: bytes | None = None


NO_STATE: Final = State()


class Kept(NamedTuple):
    """A row of the source. before, after: the numbers of the step's state before and after it. made: what it made."""

    record: dict[str, Any]
    before: int = NEW
    after: int = NEW
    made: Rows = {}  # noqa: RUF012 - never changed

    @property
    def place(self) -> Place:
        """Its time and id."""
        return self.record["time"], self.record["id"]

    @property
    def time_us(self) -> int:
        """Its time in microseconds since 1970."""
        time: int = self.record["time"]
        return time


class Chunk(NamedTuple):
    """Rows that are stored apart. last_us, last_id: the place of the last one. after: as of that row."""

    number: int
    last_us: int
    last_id: str
    after: int


@dataclass
class Tail:
    """What is kept of a key.

    start: the state after the last row that is complete, which was at `start_us`.
    chunks, rows: the rows after it, in the order of their places; those in `rows` are the last ones.
    end: the state after the last of them.
    numbers: how many numbers states and chunks have had.
    newest_us: the highest time of any row.
    past: the complete rows of the view.
    """

    start: State = NO_STATE
    start_us: int | None = None
    chunks: list[Chunk] = field(default_factory=list)
    rows: list[Kept] = field(default_factory=list)
    end: State = NO_STATE
    numbers: int = NEVER
    newest_us: int | None = None
    past: RowHistory = field(default_factory=RowHistory)
    stored: Segments = field(default_factory=InMemory, compare=False)

    def number(self) -> int:
        """A number that was not used before."""
        self.numbers += 1
        return self.numbers

    def read(self, chunk: Chunk) -> list[Kept]:
        """The rows of a chunk."""
        return unpacked(orjson.loads(self.stored.read(chunk.number)))

    def open_from(self, place: Place) -> None:
        """Take back chunks, so that all rows behind `place` are in `rows`."""
        while self.chunks and (self.chunks[-1].last_us, self.chunks[-1].last_id) >= place:
            self._open()

    def open_all(self) -> None:
        """Take back all chunks."""
        while self.chunks:
            self._open()

    def divide(self) -> None:
        """Store the older rows apart if there are many."""
        while len(self.rows) >= 2 * CHUNK_ROWS:
            apart, self.rows = self.rows[:CHUNK_ROWS], self.rows[CHUNK_ROWS:]
            last = apart[-1]
            chunk = Chunk(self.number(), *last.place, last.after)
            self.stored.write(chunk.number, orjson.dumps(packed(apart)).decode())
            self.chunks.append(chunk)

    def remove_first(self) -> list[Kept]:
        """Remove the first chunk; returns its rows."""
        chunk = self.chunks.pop(0)
        rows = self.read(chunk)
        self.stored.remove(chunk.number)
        return rows

    def _open(self) -> None:
        chunk = self.chunks.pop()
        self.rows = self.read(chunk) + self.rows
        self.stored.remove(chunk.number)


def packed(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows or chunks as JSON can have them, each as an array."""
    return [tuple(each) for each in rows]


def unpacked(stored: Iterable[Any]) -> list[Kept]:
    """Rows from their JSON, in which each is an array."""
    return [Kept(*each) for each in stored]


def last_rows(rows: Iterable[Kept]) -> Rows:
    """The last row of the view of each key."""
    return {key: row for each in rows for key, row in each.made.items()}
