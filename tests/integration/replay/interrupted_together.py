"""A process that rebuilds views in one pass, and is killed: after SLICES slices, or when the second view would swap."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.settings import LogSettings
from headwater.projections.engines import SparkQueries
from headwater.projections.folding.engine import FoldingEngine
from headwater.projections.folding.pool import Pool
from headwater.projections.folding.tasks import FoldTask, Share
from headwater.projections.generations.rebuild.rebuild import Step
from headwater.projections.generations.rebuild.rebuilder import Rebuilder
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.settings import StoreSettings
from headwater.replay.deployment import start_spark
from tests.integration.replay.interruptible import INTERRUPTED

SLICE = 20
"""Offsets; of all partitions together."""
SLICES = 2


class Dying(Pool):
    """Workers that are killed, with this process, instead of folding another slice. left: slices before."""

    left = SLICES

    def fold(self, tasks: Sequence[FoldTask]) -> list[Share]:
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1
        return super().fold(tasks)


@contextmanager
def dying(_: int) -> Iterator[Pool]:
    with closing(Dying(1)) as workers:
        yield workers


@contextmanager
def lasting(_: int) -> Iterator[Pool]:
    with closing(Pool(1)) as workers:
        yield workers


def main(phase: str) -> int:
    logging.basicConfig(level=logging.INFO)
    settings, stores = LogSettings.from_environment(os.environ), StoreSettings.from_environment(os.environ)
    log, swapping = KafkaLog(settings), list[str]()
    workers = dying if phase == "bulk" else lasting
    engine = FoldingEngine(settings, log, workers, None, SLICE)
    generations, queries = Generations(stores.postgres, settings.environment), SparkQueries(settings, start_spark)
    rebuilder = Rebuilder(settings, stores, log, generations, engine, queries)

    def die_at_second_swap(step: Step) -> None:
        if step.phase == "swap" and step.view not in swapping:
            swapping.append(step.view)
        if len(swapping) == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    for view, outcome in rebuilder.rebuild_all(list(INTERRUPTED.values()), die_at_second_swap):
        print(view.name, outcome, file=sys.stderr)
    return 1


def slices_of(state: Path) -> set[Path]:
    """The complete slices that are kept."""
    return set(state.glob("replays/**/shares.msgpack"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
