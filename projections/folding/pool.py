"""The tasks of a fold, and the local processes that run them."""

from __future__ import annotations

import functools
import gc
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Final, ParamSpec, TypeVar

import msgspec

from eventlog.settings import LogSettings
from projections.folding.compiled import Program
from projections.folding.folder import Erased, Folder, Part, Rows, Times, TooMuch, UnclearRecord, by_share, fold_parts
from projections.stores.store import BulkWriter

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

logger = logging.getLogger(__name__)

_SPAWNED: Final = multiprocessing.get_context("spawn")
"""Not forked: the parent has threads and connections."""


class Share(msgspec.Struct):
    """What one process folded. rows: encoded, by the process that combines them."""

    rows: list[bytes]
    unclear: list[UnclearRecord]
    tombstones: dict[int, dict[bytes, int]]


class Progress:
    """The number of records read so far, by all processes of a pool."""

    def __init__(self) -> None:
        self._count = _SPAWNED.Value("q", 0)

    @property
    def read(self) -> int:
        """Records."""
        return int(self._count.value)

    @property
    def shared(self) -> Any:
        """For the processes of the pool."""
        return self._count


_count: Any = None


class TaskFailed(Exception):
    """A task failed; the message says how. Errors with several arguments cannot be sent between processes."""


def _begin(count: Any) -> None:
    """The start of a process: it ends with its parent, and leaves interrupts to it."""
    global _count  # noqa: PLW0603 - what a process of the pool has for its life
    _count = count
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()  # rows make no cycles, and looking for them takes a fifth of a fold
    threading.Thread(target=_end_with, args=[multiprocessing.parent_process()], name="parent", daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _plainly(task: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    @functools.wraps(task)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return task(*args, **kwargs)
        except TooMuch:
            raise
        except Exception as error:
            logger.exception("a task failed")
            raise TaskFailed(f"{type(error).__name__}: {error}"[:500]) from None

    return run


def new_pool(processes: int, progress: Progress) -> ProcessPoolExecutor:
    """A pool that starts its processes with their first tasks."""
    return ProcessPoolExecutor(processes, _SPAWNED, _begin, (progress.shared,))


def cores() -> int:
    """Processes that can work at a time."""
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


@_plainly
def fold(
    program: Program, settings: LogSettings, parts: Sequence[Part], times: Times, erased: Erased | None, shares: int
) -> Share:
    """Task: fold parts of the log. shares: the number of processes that will combine rows."""

    def count(records: int) -> None:
        with _count.get_lock():
            _count.value += records

    folded = fold_parts(program, settings, parts, times, erased, count)
    return Share(by_share(folded.rows, shares), folded.unclear, folded.tombstones)


@_plainly
def write(program: Program, encoded: Sequence[bytes], writers: Sequence[BulkWriter]) -> int:
    """Task: combine rows with the same keys, write them to every store, and return their number."""
    from projections.folding.arrow_rows import batches  # noqa: PLC0415 - Arrow is large, and a fold needs none

    folder = Folder(program)
    for each in encoded:
        folder.take_in(msgspec.msgpack.decode(each, type=Rows))
    rows = folder.folded.rows
    for writer in writers:
        writer.write(batches(program, rows))
    return len(rows)


def divided(ranges: Sequence[Part], processes: int) -> list[list[Part]]:
    """The ranges for each process, about as many offsets for each; a large one is cut."""
    total = sum(part.end - part.start for part in ranges)
    each = -(-total // processes) if total else 0
    shares: list[list[Part]] = [[] for _ in range(processes)]
    left, at = each, 0
    for partition, begin, end in ranges:
        start = begin
        while start < end:
            taken = min(left, end - start)
            shares[at].append(Part(partition, start, start + taken))
            start, left = start + taken, left - taken
            if not left:
                left, at = each, min(at + 1, processes - 1)
    return [share for share in shares if share]
