"""Reads the log up to its end into the local store of process instances, before their owner works."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable

from headwater.commands.declaring.process import AnyProcess, ProcessRegistry
from headwater.commands.errors import UnreadableProcess
from headwater.commands.handling.torn_batch import has_lost_batch
from headwater.commands.reacting.instance import read_instance
from headwater.commands.reacting.instance_index import scheduled_of
from headwater.commands.reacting.instance_store import PARKED_PREFIX, InstanceStore, parked_place
from headwater.eventlog import topics
from headwater.eventlog.ports import NEXT_OFFSET, EventLog, Record
from headwater.eventlog.times import now_ms

_LAYOUT = "1"
"""The layout of the store; a store with another layout is not used."""

logger = logging.getLogger(__name__)


def instances_origin(log: EventLog) -> str:
    """The topic that a store is a copy of. A store with another origin is not used."""
    text = f"{_LAYOUT}\n{log.incarnation(topics.PROCESSES)}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class InstanceRestore:
    """Reads what a store does not have yet, and looks again at instances that other code has read.

    Call it as the owner. A store that is ahead of the log is rebuilt. If it ends early, the store has what was read.
    """

    def __init__(self, log: EventLog, processes: ProcessRegistry, partition: int, store: InstanceStore) -> None:
        self._log, self._processes, self._partition, self._store = log, processes.processes, partition, store

    def run(self, stopped: Callable[[], bool]) -> int:
        """Read until the end, or until `stopped`; returns how many records of `processes` were read."""
        self._store.open()
        start = self._start()
        records = self._read_log(start, stopped)
        if not stopped():
            self._read_again(stopped, is_new=start == 0)
        for key in self._store.waiting_keys():
            self._store.touch(key)
            self._flush_if_full()
        self._store.flush({}, now_ms())
        return records

    def _start(self) -> int:
        """The first offset that the store does not have."""
        end, start = self._log.end(topics.PROCESSES, self._partition), self._store.position(topics.PROCESSES)
        if start <= end and not has_lost_batch(self._log, topics.PROCESSES, self._partition, self._store.position):
            return start
        logger.warning(
            'partition %d: the local state has "%s" up to offset %d, which the log has lost: rebuilding it',
            self._partition, topics.PROCESSES, start,
        )  # fmt: skip
        self._store.clear()
        return 0

    def _read_log(self, start: int, stopped: Callable[[], bool]) -> int:
        end = self._log.end(topics.PROCESSES, self._partition)
        count, changed = 0, set[str]()
        for record in self._log.read(topics.PROCESSES, self._partition, start, end):
            count += record.key != NEXT_OFFSET
            self._take(record, changed)
            if self._store.is_full:
                self._flush(changed, record.offset + 1)
                if stopped():
                    return count
        self._flush(changed, end)
        return count

    def _take(self, record: Record, changed: set[str]) -> None:
        if record.key.startswith(PARKED_PREFIX):
            key, inbox_offset = parked_place(record.key)
            if record.value is None:
                self._store.release(key, inbox_offset)
            else:
                self._store.park(key, inbox_offset, record.offset)
        elif record.key != NEXT_OFFSET:
            self._store.put(record.key, record.value)
            changed.add(record.key)

    def _flush(self, changed: set[str], position: int) -> None:
        for key in changed:
            value = self._store.instance(key)
            if value is None:
                self._store.mark_readable(key)
            else:
                self._look(key, value)
        changed.clear()
        self._store.flush({topics.PROCESSES: position}, now_ms())

    def _read_again(self, stopped: Callable[[], bool], *, is_new: bool) -> None:
        """Look at the instances of processes whose state has another shape than when they were read.

        is_new: whether this code has read all of them just now.
        """
        for key, value in self._store.unreadables():  # other validators may read the same shape
            self._look(key, value, completely=True)
            self._flush_if_full()
        known = self._store.shapes()
        for name in {*known, *self._processes}:
            process = self._processes.get(name)
            shape = process.shape if process else ""
            if known.get(name, "") == shape:
                continue
            for key, value in () if is_new else self._store.instances(name):
                self._look(key, value)
                self._flush_if_full()
                if stopped():
                    return
            self._store.put_shape(name, shape)

    def _look(self, key: str, value: bytes, *, completely: bool = False) -> None:
        """Note whether this code can read an instance. completely: also if its state has the shape that it declares."""
        name = key.partition("/")[0]
        process = self._processes.get(name)
        reason = None if process is None else _problem(process, key, value, completely=completely)
        if process is None or reason is not None:
            if reason is not None and self._store.unreadable(key) is None:
                logger.error("%s/%d/%s: %s", topics.PROCESSES, self._partition, key, reason)
            self._store.mark_unreadable(key, value, reason)
        else:
            self._store.mark_readable(key)

    def _flush_if_full(self) -> None:
        if self._store.is_full:
            self._store.flush({}, now_ms())


def _problem(process: AnyProcess, key: str, value: bytes, *, completely: bool) -> str | None:
    """Why an instance cannot be read; None if it can."""
    if not completely and scheduled_of(value).shape == process.shape:
        return None
    try:
        read_instance(process, key.partition("/")[2], value)
    except UnreadableProcess as error:
        return str(error)
    return None
