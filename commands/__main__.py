"""`python -m commands`: handle commands until SIGTERM or SIGINT."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading

from commands.errors import CommandError
from commands.registry import CommandRegistry
from commands.service import HandlerService
from eventlog.admin import prepare
from eventlog.errors import EventLogError
from eventlog.kafka import KafkaLog
from eventlog.settings import LogSettings

logger = logging.getLogger("commands")


def main() -> int:
    """Run the handler of the environment's deployment; returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    # batches make many short-lived objects and no cycles; scanning the long-lived ones again and again costs 6 %
    gc.set_threshold(100_000, 20, 100)
    log: KafkaLog | None = None
    try:
        settings = LogSettings.from_environment(os.environ)
        registry = CommandRegistry.load(settings.modules)
        prepare(settings)
        log = KafkaLog(settings)
        HandlerService(log, registry).run(stopped)
    except (EventLogError, CommandError) as error:
        logger.error("%s", error)
        return 1
    finally:
        if log is not None:
            log.close()
    logger.info("stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
