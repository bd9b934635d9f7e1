"""A process that rebuilds a view for each phase, stops each rebuild where its phase begins, and is killed then.

Of the swap, the moment after the registry was updated: the aliases lead to the old generation still.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from functools import cache

from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.settings import LogSettings
from headwater.projections.engines import EngineChoice, SparkQueries, new_engine
from headwater.projections.generations.rebuild.rebuild import Step
from headwater.projections.generations.rebuild.rebuilder import Rebuilder
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.settings import StoreSettings
from headwater.projections.table.view import TableView
from headwater.replay.deployment import start_spark
from tests.integration.replay.interruptible import INTERRUPTED

BOUND_S = 300


def main(choice: EngineChoice) -> int:
    settings, stores = LogSettings.from_environment(os.environ), StoreSettings.from_environment(os.environ)
    session = cache(start_spark)
    generations = Generations(stores.postgres, settings.environment)
    log = KafkaLog(settings)
    engine = new_engine(settings, log, session, choice)
    rebuilder = Rebuilder(settings, stores, log, generations, engine, SparkQueries(settings, session))
    reached = {phase: threading.Event() for phase in INTERRUPTED}

    def rebuild(view: TableView, phase: str) -> None:
        def stop_there(step: Step) -> None:
            if step.phase == phase and (phase != "swap" or step.done == 1):
                reached[phase].set()
                threading.Event().wait()

        rebuilder.rebuild(view, stop_there)

    for phase, view in INTERRUPTED.items():
        threading.Thread(target=rebuild, args=[view, phase], daemon=True).start()
        # one after another: a process starts the workers of one rebuild at a time
        if not reached[phase].wait(BOUND_S):
            print(f"never reached: {phase}", file=sys.stderr)
            return 1
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


if __name__ == "__main__":
    sys.exit(main(EngineChoice(sys.argv[1])))
