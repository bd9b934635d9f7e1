"""One handler process, alone or as one of several."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable

from commands.declaring.process import ProcessRegistry
from commands.declaring.registry import CommandRegistry
from commands.errors import CommandError
from commands.handling.command_task import CommandTask
from commands.handling.ownership import PartitionOwner, PartitionTask, run_together
from commands.handling.restore import origin
from commands.local_state.disk_state import DiskBudget, DiskStore
from commands.local_state.slots import Slot
from commands.reacting.process_task import ProcessTask
from commands.reacting.router import RoutingTask
from commands.reacting.starts import settle_starts
from eventlog.admin import prepare
from eventlog.errors import EventLogError
from eventlog.kafka import KafkaLog
from eventlog.logs import log_to_stderr
from eventlog.ports import HANDLER, PROCESSES, ROUTER
from eventlog.settings import LogSettings
from eventlog.workers import call_without_parent

logger = logging.getLogger("commands")


def work(settings: LogSettings) -> None:
    """Be one of several handlers, until a stop signal or the end of the process that started this one."""
    log_to_stderr(os.environ)
    stopped = threading.Event()
    call_without_parent(stopped.set)
    sys.exit(handle(settings, stopped))


def handle(settings: LogSettings, stopped: threading.Event) -> int:
    """Run one handler until `stopped` is set or a stop signal comes; returns the exit code."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    # batches make many short-lived objects and no cycles; scanning the long-lived objects repeatedly costs 6 %
    gc.set_threshold(100_000, 20, 100)
    log: KafkaLog | None = None
    try:
        registry = CommandRegistry.load(settings.modules)
        prepare(settings)
        log = KafkaLog(settings)
        owners = [PartitionOwner(log, HANDLER, command_tasks(log, registry))]
        run_together([*owners, *process_owners(log, registry)], stopped)
    except (EventLogError, CommandError) as error:
        logger.error("%s", error)
        return 1
    finally:
        if log is not None:
            log.close()
    logger.info("stopped")
    return 0


def command_tasks(log: KafkaLog, registry: CommandRegistry) -> Callable[[int], CommandTask]:
    """Makes the task of a partition, with its state in the folder that this process holds."""
    settings = log.settings
    slot = Slot(settings.state.absolute() / "handler" / settings.environment)
    budget, copied = DiskBudget(), origin(log)
    logger.info('local state: "%s"', slot.folder)

    def new_task(partition: int) -> CommandTask:
        store = DiskStore(slot.folder / str(partition), copied, budget, settings.receipts_days)
        return CommandTask(log, registry, partition, store)

    return new_task


def process_owners(log: KafkaLog, registry: CommandRegistry) -> list[PartitionOwner]:
    """The owners that run processes; empty if no process is declared."""
    processes = ProcessRegistry.load(log.settings.modules)
    if not processes.processes:
        return []

    starts = settle_starts(log, processes)

    def new_router(partition: int) -> PartitionTask:
        return RoutingTask(log, registry, processes, partition, starts)

    def new_task(partition: int) -> PartitionTask:
        return ProcessTask(log, registry, processes, partition)

    return [PartitionOwner(log, ROUTER, new_router), PartitionOwner(log, PROCESSES, new_task)]
