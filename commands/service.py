"""One handler process, alone or as one of several."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from headwater.commands.declaring.process import AnyProcess, ProcessRegistry
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import CommandError
from headwater.commands.handling.command_task import CommandTask
from headwater.commands.handling.recorded_versions import settle_versions
from headwater.commands.handling.restore import origin
from headwater.commands.local_state.disk_state import DiskBudget, DiskStore
from headwater.commands.local_state.folders import PROCESSES_FOLDER, Slot, sweep
from headwater.commands.owning.ownership import PartitionOwner, PartitionTask, run_together
from headwater.commands.owning.running_code import running_facts
from headwater.commands.reacting.instance_restore import instances_origin
from headwater.commands.reacting.outbox import OutboxTask, outbox_role, outbox_topics, settle_start
from headwater.commands.reacting.process_task import ProcessTask
from headwater.commands.reacting.router import Router, Routes, RoutingTask
from headwater.commands.reacting.row_router import RowRouter, process_topics, row_role
from headwater.commands.reacting.starts import settle_inputs, settle_starts
from headwater.eventlog.audit.logged_keys import LoggedKeys
from headwater.eventlog.capturing.declaring import Source, SourceRegistry
from headwater.eventlog.errors import EventLogError
from headwater.eventlog.kafka.admin import prepare
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.personal.installed import vault_of
from headwater.eventlog.ports import HANDLER, PROCESSES, ROUTER, Role
from headwater.eventlog.programs.logs import log_to_stderr, take_facts_from
from headwater.eventlog.programs.metrics import serve_metrics
from headwater.eventlog.programs.stopping import Stopping, end_within
from headwater.eventlog.programs.workers import call_without_parent, number_of_worker
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.tracing.spans import traced

END_S: Final = 28.0
"""Less than supervisors give it. Partitions are given up in 15 s, and open transactions take 10 s at most."""

logger = logging.getLogger("headwater.commands")


def work(settings: LogSettings) -> None:
    """Be one of several handlers, until a stop signal or the end of the process that started this one."""
    log_to_stderr(os.environ, "handler")
    stopped = Stopping()
    call_without_parent(stopped.set)
    sys.exit(handle(settings, stopped))


def handle(settings: LogSettings, stopped: Stopping) -> int:
    """Run one handler until `stopped` is set or a stop signal comes; returns the exit code.

    A signal that comes before it serves, such as while it waits for Kafka, ends it at once.
    """

    def asked(*_: object) -> None:
        end_within(END_S)
        stopped.ask()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, asked)
    take_facts_from(running_facts)
    with traced(os.environ, settings.environment):
        return _handle(settings, stopped)


def _handle(settings: LogSettings, stopped: Stopping) -> int:
    try:
        registry, processes = CommandRegistry.load(settings.modules), ProcessRegistry.load(settings.modules)
        is_personal = bool(registry.personal) or any(process.is_personal for process in processes.processes.values())
        with vault_of(os.environ, settings.environment, LoggedKeys(os.environ), needed=is_personal):
            return _serve(settings, registry, processes, stopped)
    except (EventLogError, CommandError) as error:
        logger.error("%s", error)
        return 1
    except KeyboardInterrupt:
        logger.info("stopped before it served")
        return 0


def _serve(settings: LogSettings, registry: CommandRegistry, processes: ProcessRegistry, stopped: Stopping) -> int:
    # batches make many short-lived objects and no cycles; scanning the long-lived objects repeatedly costs 6 %
    gc.set_threshold(100_000, 20, 100)
    log: KafkaLog | None = None
    try:
        with stopped.interrupting():
            serve_metrics(os.environ, "handler", number_of_worker())
            sources = [source for source in SourceRegistry.load(settings.modules).sources.values() if source.outbox]
            prepare(settings, [*process_topics(settings, processes), *outbox_topics(settings, sources)])
            log = KafkaLog(settings)
            settle_versions(log, registry.events.values())
            slot, budget = Slot(settings.state.absolute() / "handler" / settings.environment), DiskBudget()
            logger.info('local state: "%s"', slot.folder)
            sweep(slot, stopped)
            owners = [PartitionOwner(log, HANDLER, command_tasks(log, registry, slot, budget), slot.check)]
            reacting = process_owners(log, registry, processes, slot, budget)
            senders = [_outbox_owner(log, registry, source) for source in sources]
        run_together([*owners, *reacting, *senders], stopped)
    finally:
        if log is not None:
            log.close()
    logger.info("stopped")
    return 0


def command_tasks(
    log: KafkaLog, registry: CommandRegistry, slot: Slot, budget: DiskBudget
) -> Callable[[int], CommandTask]:
    """Makes the task of a partition, with its state in the folder that this process holds."""
    copied = origin(log)

    def new_task(partition: int) -> CommandTask:
        store = DiskStore(slot.folder / str(partition), copied, budget, log.settings.receipts_days)
        return CommandTask(log, registry, partition, store)

    return new_task


def _outbox_owner(log: KafkaLog, registry: CommandRegistry, source: Source) -> PartitionOwner:
    """The owner that sends the commands in the outbox of a source."""
    role = outbox_role(source)
    settle_start(log, role)
    return PartitionOwner(log, role, lambda _: OutboxTask(registry, source.name))


def process_owners(
    log: KafkaLog, registry: CommandRegistry, processes: ProcessRegistry, slot: Slot, budget: DiskBudget
) -> list[PartitionOwner]:
    """The owners that run processes; empty if no process is declared."""
    if not processes.processes:
        return []
    copied = instances_origin(log)

    def new_task(partition: int) -> PartitionTask:
        store = DiskStore(slot.folder / PROCESSES_FOLDER / str(partition), copied, budget)
        return ProcessTask(log, registry, processes, removed, partition, store)

    routers = [
        _routers(log, ROUTER, lambda: Router(registry, processes), processes.processes),
    ]
    for topic, handling in processes.by_topic.items():
        role = row_role(topic, log.settings.patch_partitions)
        named = {process.name: process for process in handling}
        routers.append(_routers(log, role, partial(RowRouter, log, processes, topic), named))
    removed = settle_inputs(log, processes.processes)
    return [*routers, PartitionOwner(log, PROCESSES, new_task, slot.check)]


def _routers(
    log: KafkaLog, role: Role, new_router: Callable[[], Routes], processes: Mapping[str, AnyProcess]
) -> PartitionOwner:
    """The owner that routes what `role` reads. processes: those that handle it, by name."""
    starts = settle_starts(log, processes, role)

    def new_task(partition: int) -> PartitionTask:
        return RoutingTask(log, new_router, partition, starts, role)

    return PartitionOwner(log, role, new_task)
