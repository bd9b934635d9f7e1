"""Owners of a partition of counters, over a log in memory: they restore, and decide what is in `commands`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

from headwater.commands.codec import read_snapshot
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.handling.command_task import CommandTask
from headwater.commands.handling.erasing import Erasure
from headwater.commands.local_state.state import MemoryStore, StateStore
from headwater.commands.owning.resume_offset import resume_offset
from headwater.commands.receipt import Receipt
from headwater.eventlog.envelope import Envelope, encode
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import HANDLER, Entry
from headwater.eventlog.topics import COMMANDS, EVENTS, RECEIPTS, SNAPSHOTS
from tests.support.receipt_keys import short_key
from tests.unit.commands.test_handler import REGISTRY, TIME, counter


def with_state_version(version: int) -> CommandRegistry:
    """The counters after a change of what `evolve` makes."""
    return CommandRegistry([("here", replace(counter, state_version=version))])


class Counters:
    """A log with one partition, and its owners, one after another."""

    def __init__(self) -> None:
        self.log = MemoryLog(partitions=1)
        self.sent = 0

    def send(self, name: str = "c", by: int = 1, **more: Any) -> str:
        """Send a command to a counter; returns its id."""
        self.sent += 1
        time = more.pop("time", TIME)
        envelope = {"expected_version": more.pop("expected_version")} if "expected_version" in more else {}
        data = {"counter_id": name, "by": by, **more}
        command = Envelope(f"id{self.sent}", "counter.count", f"counter/{name}", time, data, **envelope)
        self.log.submit(Entry(COMMANDS, command.stream, encode(command), 1_000), 0)
        return command.id

    @contextmanager
    def owner(self, store: StateStore | None = None, registry: CommandRegistry = REGISTRY) -> Iterator[CommandTask]:
        """An owner that has decided everything, and has nothing more to write."""
        opened = MemoryStore() if store is None else store
        with closing(self.log.own(0)) as writer, closing(CommandTask(self.log, registry, 0, opened)) as task:
            task.restore(writer, lambda: False)
            self.work(writer, task)
            yield task

    def work(self, writer: Any, task: CommandTask) -> None:
        start = resume_offset(self.log, HANDLER, writer)
        rest = list(self.log.read(COMMANDS, 0, start))
        for _ in range(100):
            rest = list(task.work(writer, rest))
            assert task._pending is not None
            if not rest and task._pending.wait_s() is None:
                return
            task._pending._not_before = 0.0
        raise AssertionError("it does not end")

    def serve(self, store: StateStore | None = None, registry: CommandRegistry = REGISTRY) -> None:
        """Let an owner decide everything."""
        with self.owner(store, registry):
            pass

    def erase(self, erasure: Erasure, name: str = "c", expected_version: int | None = None) -> str:
        """Send a request to erase events of a counter; returns its id."""
        self.sent += 1
        request = erasure.envelope(
            id=f"erase/{self.sent}", stream=f"counter/{name}", time=TIME, expected_version=expected_version
        )
        self.log.submit(Entry(COMMANDS, request.stream, encode(request), 1_000), 0)
        return request.id

    def receipt(self, command_id: str) -> Receipt:
        latest = {record.key: record.value for record in self.log.read(RECEIPTS, 0, 0)}
        return next(Receipt.from_json(value or b"") for key, value in latest.items() if short_key(key) == command_id)

    def event_ids(self) -> list[str]:
        return [r.key for r in self.log.read(EVENTS, 0, 0) if r.key.startswith("counter/") and r.value is not None]

    def snapshot(self, name: str = "c", registry: CommandRegistry = REGISTRY) -> tuple[int, int] | None:
        """The total and version in the last snapshot of the log; None if there is none."""
        value = self.log.last(SNAPSHOTS, 0, f"counter/{name}")
        if value is None:
            return None
        state, version = read_snapshot(registry.aggregates["counter"], value)
        return state.total, version

    def tombstone(self, topic: str, *keys: str) -> None:
        for key in keys:
            self.log.submit(Entry(topic, key, None, 1_000), 0)

    def compact(self, topic: str, *keys: str) -> None:
        """Remove all records of these keys, as compaction does some time after their tombstones."""
        places = self.log._records[topic, 0]
        places[:] = [None if place is not None and place[0].key in keys else place for place in places]
