"""Local processes as workers of a fold."""

from __future__ import annotations

import logging
import os
import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from eventlog.workers import SPAWN, call_without_parent
from projections.folding.compiled import OnlySpark, Program
from projections.folding.tasks import FoldTask, Share, fold, groups, write
from projections.folding.workers import TaskFailed
from projections.stores.store import BulkWriter

Result = TypeVar("Result")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pool:
    """Workers; see `opened`."""

    size: int
    on_one_disk = True
    _executor: ProcessPoolExecutor
    _count: Any

    @property
    def read(self) -> int:
        """Records that were read so far."""
        return int(self._count.value)

    def fold(self, tasks: Sequence[FoldTask]) -> list[Share]:
        """See Workers.fold; raises OnlySpark if another process cannot have the program."""
        try:
            pickle.dumps(tasks[0].programs)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise OnlySpark(f"one of its folds cannot be sent to another process ({error})") from error
        return self._run(_fold, [(task,) for task in tasks])

    def write(self, view: int, program: Program, shares: Sequence[Share], writers: Sequence[BulkWriter]) -> int:
        """See Workers.write."""
        return sum(self._run(write, [(program, writers, pieces) for pieces in groups(shares, view, self.size)]))

    def _run(self, task: Callable[..., Result], arguments: Sequence[tuple[Any, ...]]) -> list[Result]:
        running = [self._executor.submit(_run, task, *each) for each in arguments]
        try:
            return [each.result() for each in running]
        except BrokenProcessPool as error:
            raise TaskFailed("a process was killed, maybe for lack of memory") from error
        finally:
            for each in running:
                each.cancel()
            wait(running)  # one that still runs would not find its files


@contextmanager
def opened(size: int | None = None) -> Iterator[Pool]:
    """A pool that starts its processes with their first tasks. size: of processes; None: one per core."""
    count = SPAWN.Value("q", 0)
    size = size or _cores()
    with ProcessPoolExecutor(size, SPAWN, _begin, (count,)) as executor:
        yield Pool(size, executor, count)


_count: Any = None


def _begin(count: Any) -> None:
    """The start of a process: it ends with its parent, and leaves interrupts to it."""
    global _count  # noqa: PLW0603 - what a process of the pool has for its life
    _count = count
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    call_without_parent(partial(os._exit, 1))


def _fold(task: FoldTask) -> Share:
    return fold(task, _add)


def _add(records: int) -> None:
    with _count.get_lock():
        _count.value += records


def _run(task: Callable[..., Result], *arguments: Any) -> Result:
    """Errors with several arguments cannot be sent between processes."""
    try:
        return task(*arguments)
    except Exception as error:
        logger.exception("a task failed")
        raise TaskFailed(f"{type(error).__name__}: {error}"[:500]) from None


def _cores() -> int:
    """Processes that can work at a time."""
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
