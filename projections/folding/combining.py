"""Rows that are combined by key, and rows as bytes. Beyond a bound they wait in sorted runs on disk, merged by key."""

from __future__ import annotations

import errno
import heapq
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import reduce
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

import msgspec

from headwater.projections.limits import ENTRIES_COMBINED, ENTRIES_IN_MEMORY, MAX_RUNS, ROWS_COMBINED, ROWS_IN_MEMORY
from headwater.projections.reading.fold_records import FoldedView, Row, Rows
from headwater.projections.reading.program import Program
from headwater.projections.table.layout import DELETED
from headwater.projections.table.monoids import State

BIG: Final = 1
"""The code of an integer over 64 bits, as text."""
CHECKED_BYTES: Final = 4 * 1024 * 1024
"""Encoded rows between two counts of entries."""
RUN_BUFFER: Final = 64 * 1024
_LENGTH: Final = 4
Item = tuple[str, Row]
ENTRY_BYTES: Final = 20
"""Of a value in a tally, about."""


def encode(value: Any) -> bytes:
    """Rows as bytes."""
    try:
        return msgspec.msgpack.encode(value)
    except OverflowError:  # rare, and slow to look for in every value
        return msgspec.msgpack.encode(_portable(value))


def decoder(kind: Any) -> Any:
    """A decoder of what `encode` made of such a value."""
    return msgspec.msgpack.Decoder(kind, ext_hook=lambda _, text: int(bytes(text)))


def _portable(value: Any) -> Any:
    match value:
        case int() if not -(2**63) <= value < 2**64:
            return msgspec.msgpack.Ext(BIG, str(value).encode())
        case list() | tuple():
            return [_portable(item) for item in value]
        case dict():
            return {name: _portable(item) for name, item in value.items()}
        case _:
            return value


class DiskFull(OSError):
    """The disk has no room left for folded rows."""

    def __init__(self, folder: str) -> None:
        super().__init__(
            f'no room is left in "{folder}" for folded rows: free some, or set HEADWATER_STATE to a larger disk'
        )


@contextmanager
def on_disk(folder: str) -> Iterator[None]:
    """Raise DiskFull if what is written in this context does not fit on the disk of `folder`."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DiskFull(folder) from error


class Combined:
    """The rows of some chunks, combined; a context manager that removes its runs.

    Runs are files without a name, so they end with their process.
    """

    def __init__(self, program: Program) -> None:
        self._fold = FoldedView(program)
        self._runs: list[IO[bytes]] = []
        self._opened = ExitStack()
        self._unchecked = 0

    def __enter__(self) -> Combined:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._opened.close()

    def add(self, rows: Rows, size: int, folder: Path | None) -> None:
        """Combine rows that took `size` bytes. folder: for runs; None: the system's. Raises DiskFull."""
        self._fold.take_in(rows)
        self._unchecked += size
        full = len(self._fold.made) > ROWS_COMBINED
        if self._unchecked > CHECKED_BYTES:
            self._unchecked = 0
            full = full or self._fold.entries() > ENTRIES_COMBINED
        if full:
            on = str(folder or tempfile.gettempdir())
            if len(self._runs) >= MAX_RUNS:
                merged = self._run(self._merged(map(_items, self._runs)), on)
                for run in self._runs:
                    run.close()
                self._runs = [merged]
            self._runs.append(self._run(_sorted(self._fold.made), on))
            self._fold.made = {}

    @property
    def is_empty(self) -> bool:
        """Whether there are no rows."""
        return not self._runs and not self._fold.made

    def items(self) -> Iterator[Item]:
        """Each key with its row; one iteration at a time."""
        if not self._runs:
            return iter(self._fold.made.items())
        # rows in memory come last, so that they are not changed
        return self._merged([*map(_items, self._runs), _sorted(self._fold.made)])

    def _run(self, items: Iterable[Item], folder: str) -> IO[bytes]:
        with on_disk(folder):
            run = tempfile.TemporaryFile(buffering=RUN_BUFFER, dir=folder)  # noqa: SIM115 - it outlives this function
            self._opened.callback(_close, run)
            for item in items:
                encoded = encode(item)
                run.write(len(encoded).to_bytes(_LENGTH, "big"))
                run.write(encoded)
            run.flush()
        return run

    def _merged(self, runs: Iterable[Iterator[Item]]) -> Iterator[Item]:
        for key, rows in groupby(heapq.merge(*runs, key=itemgetter(0)), itemgetter(0)):
            yield key, reduce(self._fold.combine, (row for _, row in rows))


def _close(run: IO[bytes]) -> None:
    """What is still buffered after an error, and is tried again here, is of no use."""
    with suppress(OSError):
        run.close()


def _sorted(rows: Rows) -> Iterator[Item]:
    return ((key, rows[key]) for key in sorted(rows))


def _items(run: IO[bytes]) -> Iterator[Item]:
    run.seek(0, os.SEEK_SET)
    decode = decoder(Item).decode
    while length := run.read(_LENGTH):
        yield decode(run.read(int.from_bytes(length, "big")))


@contextmanager
def grouped(program: Program, rows: Combined) -> Iterator[Callable[[], Iterator[Item]]]:
    """A function that returns all rows that are stored: the given ones, and if they are contributions, their groups.

    rows: all that change common groups.
    """
    retraction = program.retraction
    if retraction is None:
        yield rows.items
        return
    names = [field.name for field in program.fields]
    with Combined(program) as groups:
        held: dict[str, State] = {}
        read = 0
        for _, row in rows.items():
            group = retraction.group(dict(zip(names, row, strict=True)))
            if group is not None:
                key, adds = group
                retraction.merge(held.setdefault(key, {DELETED: False}), adds)
                read += 1
            if len(held) > ROWS_IN_MEMORY or read > ENTRIES_IN_MEMORY:
                groups.add(_rows(held, names), read * ENTRY_BYTES, None)
                held, read = {}, 0
        groups.add(_rows(held, names), read * ENTRY_BYTES, None)
        yield lambda: chain(rows.items(), groups.items())


def _rows(states: dict[str, State], names: Sequence[str]) -> Rows:
    return {key: [state.get(name) for name in names] for key, state in states.items()}
