"""Where in `events` each process begins: stored once, before the first handler that knows the process starts.

Handlers that start at the same time may each propose an offset; the first record of a process counts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Final

import orjson

from commands.declaring.process import AnyProcess, ProcessRegistry
from commands.handling.deleted_unread import commit_position
from eventlog import topics
from eventlog.errors import LogUnavailable
from eventlog.ports import ROUTER, Entry, EventLog

TIMEOUT_S: Final = 30.0

Starts = Mapping[str, Mapping[int, int]]
"""By process and partition, the offset of its first event."""

logger = logging.getLogger(__name__)


def settle_starts(log: EventLog, registry: ProcessRegistry) -> Starts:
    """Where each process begins; for new processes it is decided now. Raises EventLogError.

    Call it before any handler of this program serves: an event that such a handler appends comes after "now".
    """
    known = read_starts(log)
    new = [process for name, process in registry.processes.items() if name not in known]
    routed = {partition: log.next_offset(partition, ROUTER) for partition in range(log.partitions)} if new else {}
    earlier_version = not known and any(routed.values())
    for process in new:
        # if nothing is stored yet, the deployment's processes are those whose events were routed until now
        offsets = routed if earlier_version else _proposed(log, process)
        value = {"begins": process.begins, "offsets": [offsets[partition] for partition in range(log.partitions)]}
        entry = Entry(topics.STARTS, process.name, orjson.dumps(value), time.time_ns() // 1_000_000)
        log.submit(entry, 0).result(TIMEOUT_S)
    if new:
        known = read_starts(log)
        for process in new:
            if process.name not in known:
                raise LogUnavailable("storing where processes begin", f'"{process.name}" was not stored')
            places = ", ".join(f"{partition}:{offset}" for partition, offset in known[process.name].items())
            logger.info('process "%s" begins at %s', process.name, places)
    _skip(log, {name: known[name] for name in registry.processes})
    return known


def read_starts(log: EventLog) -> Starts:
    """The stored offsets."""
    found: dict[str, dict[int, int]] = {}
    for record in log.read(topics.STARTS, 0, 0):
        if record.value is not None and record.key not in found:
            found[record.key] = dict(enumerate(orjson.loads(record.value)["offsets"]))
    return found


def _proposed(log: EventLog, process: AnyProcess) -> dict[int, int]:
    if process.begins == "origin":
        return dict.fromkeys(range(log.partitions), 0)
    return {partition: log.end(topics.EVENTS, partition) for partition in range(log.partitions)}


def _skip(log: EventLog, starts: Starts) -> None:
    """Let routers that have never run begin where the first process begins: they need not read earlier events."""
    for partition in range(log.partitions) if starts else ():
        first = min(offsets[partition] for offsets in starts.values())
        if first == 0 or log.next_offset(partition, ROUTER):
            continue
        with closing(log.own(partition, ROUTER)) as writer:
            if not log.next_offset(partition, ROUTER):
                commit_position(writer, first)
