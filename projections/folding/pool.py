"""Local processes as workers of a fold."""

from __future__ import annotations

import logging
import os
import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, TypeVar

from headwater.eventlog.programs.cores import cores
from headwater.eventlog.programs.workers import call_without_parent
from headwater.projections.folding.forking import FORKED, start_server
from headwater.projections.folding.tasks import FoldTask, Share, TaskFailed, Written, fold, groups, write
from headwater.projections.reading.program import Decoders, Program
from headwater.projections.stores.store import BulkWriter

Result = TypeVar("Result")

logger = logging.getLogger(__name__)


class Pool:
    """Workers; see `opened`. size: of processes."""

    on_one_disk = True

    def __init__(self, size: int) -> None:
        self.size = size
        self._count = FORKED.Value("q", 0)
        self._executor = self._started()

    @property
    def read(self) -> int:
        """Records that were read so far."""
        return int(self._count.value)

    def refuses(self, program: Program, decoders: Decoders) -> str:
        try:
            pickle.dumps((program, decoders))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            return f"one of its folds or upcasters cannot be sent to another process ({error})"
        return ""

    def fold(self, tasks: Sequence[FoldTask]) -> list[Share]:
        return [share for shares in self._run(_fold, [(task,) for task in tasks]) for share in shares]

    def write(self, view: int, program: Program, shares: Sequence[Share], writers: Sequence[BulkWriter]) -> Written:
        tasks = [(program, writers, pieces) for pieces in groups(shares, view, program, self.size)]
        return Written.together(self._run(write, tasks))

    def close(self) -> None:
        """End the processes."""
        self._executor.shutdown()

    def _started(self) -> ProcessPoolExecutor:
        start_server()
        return ProcessPoolExecutor(self.size, FORKED, _begin, (self._count,))

    def _run(self, task: Callable[..., Result], arguments: Sequence[tuple[Any, ...]]) -> list[Result]:
        running: list[Future[Result]] = []
        try:
            for given in arguments:
                running.append(self._executor.submit(_run, task, *given))
            return [future.result() for future in running]
        except BrokenProcessPool as error:
            # the others have ended too; the next tasks have new ones
            self._executor.shutdown()
            self._executor = self._started()
            raise TaskFailed("a process was killed, maybe for lack of memory") from error
        finally:
            for future in running:
                future.cancel()
            wait(running)  # one that still runs would not find its files


@contextmanager
def opened(size: int | None = None) -> Iterator[Pool]:
    """A pool that starts its processes with their first tasks. size: None: one process per core."""
    with closing(Pool(size or cores())) as pool:
        yield pool


_count: Any = None


def _begin(count: Any) -> None:
    """The start of a process: it ends with its parent, and leaves interrupts to it."""
    global _count  # noqa: PLW0603 - what a process of the pool has for its life
    _count = count
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    call_without_parent(partial(os._exit, 1))


def _fold(task: FoldTask) -> list[Share]:
    return list(fold(task, _add))


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
