"""A whole write side in memory, run step by step in any order, with faults: handlers, routers and processes."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import orjson

from headwater.commands.codec import fold
from headwater.commands.declaring.process import AnyProcess, ProcessRegistry
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.handling.command_task import CommandTask
from headwater.commands.handling.torn_batch import BatchRecord, Ends
from headwater.commands.local_state.state import MemoryStore, StateStore
from headwater.commands.owning.ownership import PartitionTask
from headwater.commands.reacting.process_task import ProcessTask
from headwater.commands.reacting.router import COMMIT_IDLE_S, Router, Routes, RoutingTask
from headwater.commands.reacting.row_router import RowRouter, row_role
from headwater.commands.reacting.starts import read_starts, settle_inputs, settle_starts
from headwater.commands.receipt import Receipt
from headwater.eventlog import topics
from headwater.eventlog.capturing import Captured
from headwater.eventlog.envelope import (
    CLIENT,
    HEARTBEAT,
    PROCESS,
    Envelope,
    decode,
    encode,
    partition_of,
    stream_name,
    timestamp_ms,
)
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.letters import Letter
from headwater.eventlog.memory import MemoryLog, MemoryTransaction, MemoryWriter
from headwater.eventlog.ports import HANDLER, NEXT_OFFSET, PROCESSES, ROUTER, Entry, Record, Role, partitions_of_role
from tests.support.domains import SHIPPED

ROLES = (HANDLER, ROUTER, PROCESSES)
TURNS = 50
PATCH_PARTITIONS = 5
"""Of topics of views: more than of all others."""
START = datetime(2026, 1, 2, tzinfo=UTC)


class Failing:
    """A writer whose next transaction fails at its append, at its commit, or after it."""

    def __init__(self, writer: MemoryWriter, at: str | None) -> None:
        self._writer, self._at, self.partition = writer, at, writer.partition

    def begin(self) -> Failing:
        self._transaction: MemoryTransaction = self._writer.begin()
        return self

    def append(self, entries: Sequence[Entry]) -> list[int]:
        offsets = self._transaction.append(entries)
        if self._at == "append":
            raise LogUnavailable("appending", "a test")
        return offsets

    def commit(self, next_offset: int | None = None) -> None:
        if self._at == "commit":
            raise LogUnavailable("committing", "a test")
        self._transaction.commit(next_offset)
        if self._at == "after":
            raise LogUnavailable("committing", "a test: it is committed, but nobody was told")

    def abort(self) -> None:
        self._transaction.abort()

    def close(self) -> None:
        self._writer.close()


class World:
    """One deployment; `chance` decides who works next, on how much, and what fails.

    keeps_stores: whether owners of processes that are restarted find their local stores; None: now and then.
    """

    keeps_stores: bool | None = None

    def __init__(self, chance: random.Random, partitions: int = 3) -> None:
        self.now = START
        self.log = MemoryLog(partitions)
        self.commands, self.processes = CommandRegistry.load(SHIPPED), ProcessRegistry.load(SHIPPED)
        self._chance = chance
        self._tasks: dict[tuple[Role, int], tuple[PartitionTask, MemoryWriter]] = {}
        self._stores: dict[int, MemoryStore] = {}
        self._sent = 0
        self.restart_all()

    def restart(self, role: Role, partition: int) -> None:
        """A new owner takes the partition over: what was in memory is gone."""
        writer = self.log.own(partition, role=role)
        task = self._new_task(role, partition)
        task.restore(writer, lambda: False)
        self._tasks[role, partition] = task, writer

    def _new_task(self, role: Role, partition: int) -> PartitionTask:
        if role is HANDLER:
            return CommandTask(self.log, self.commands, partition, MemoryStore())
        if role is PROCESSES:
            store = self.process_store(partition)
            return ProcessTask(
                self.log, self.commands, self.processes, self.removed, partition, store, lambda: self.now
            )

        def new_router() -> Routes:
            if role is ROUTER:
                return Router(self.commands, self.processes)
            return RowRouter(self.log, self.processes, role.reads)

        # it may leave its place uncommitted for a while: in a world without time, it would look again for ever
        clock = count(0.0, COMMIT_IDLE_S).__next__
        return RoutingTask(self.log, new_router, partition, read_starts(self.log, role), role, clock)

    def process_store(self, partition: int) -> StateStore:
        """The local store of an owner: the kept one if it starts again, a new one if it is on another machine."""
        keeps = self._chance.random() < 0.5 if self.keeps_stores is None else self.keeps_stores
        kept = self._stores.get(partition) if keeps else None
        self._stores[partition] = kept or MemoryStore()
        return self._stores[partition]

    def send(self, command_type: str, **body: Any) -> str:
        """Append a command, as the API does; returns its id."""
        kind = self.commands.command(command_type)
        stream = stream_name(kind.aggregate.name, kind.aggregate.identity.of_data(body))
        self._sent += 1
        envelope = Envelope(f"c{self._sent}", command_type, stream, self.now, body, origin=CLIENT)
        partition = partition_of(stream, self.log.partitions)
        self.log.submit(Entry(topics.COMMANDS, stream, encode(envelope), timestamp_ms(self.now)), partition)
        return envelope.id

    def some_steps(self, number: int, faults: bool = True) -> None:
        """Let somebody work, so many times; some of them fail and are taken over."""
        for _ in range(number):
            role, partition = self._chance.choice(sorted(self._tasks))
            fault = self._chance.choice(["append", "commit", "after", *[None] * 9]) if faults else None
            self.step(role, partition, self._chance.choice((1, 2, 100)), fault)

    def settle(self) -> None:
        """Let everybody work until nothing is left to do at this time."""
        for _ in range(TURNS):
            if not any([self.step(role, partition, 100) for role, partition in sorted(self._tasks)]):
                return
        raise AssertionError(f"there is something to do after {TURNS} turns")

    def step(self, role: Role, partition: int, most: int, fault: str | None = None) -> bool:
        """One transaction of one owner; returns whether there was something to do."""
        task, writer = self._tasks[role, partition]
        start = self.log.next_offset(partition, role)
        records = [each for each in self.log.read(role.reads, partition, start) if not _beats(each)][:most]
        if not records and (role is HANDLER or task.wait_s() > 0):
            return False
        try:
            task.work(Failing(writer, fault), records)
        except LogUnavailable:
            self.restart(role, partition)
        return True

    def redeliver(self) -> None:
        """Route every event and every change of a row again, as if the routers' places were lost."""
        for role in self.roles():
            if role not in (HANDLER, PROCESSES):
                for partition in partitions_of_role(self.log, role):
                    self.log.own(partition, role=role).begin().commit(0)
                    self.restart(role, partition)

    def wait(self, time: timedelta) -> None:
        self.now += time

    def events(self) -> list[Envelope]:
        """All events, partition by partition."""
        records = [partition for p in range(self.log.partitions) for partition in self.log.read(topics.EVENTS, p, 0)]
        return [decode(record.value) for record in records if not _beats(record)]

    def states(self) -> dict[str, Any]:
        """The state of every stream; a gap fails."""
        streams: dict[str, list[Envelope]] = defaultdict(list)
        for envelope in self.events():
            streams[envelope.stream].append(envelope)
        for stream, envelopes in streams.items():
            assert [envelope.sequence for envelope in envelopes] == list(range(1, len(envelopes) + 1)), stream
        return {
            stream: fold(self.commands.aggregates[stream.partition("/")[0]], envelopes)[0]
            for stream, envelopes in streams.items()
        }

    def outcomes(self) -> Counter[str]:
        """How the commands of processes were answered."""
        latest: dict[str, Receipt] = {}
        for partition in range(self.log.partitions):
            for record in self.log.read(topics.RECEIPTS, partition, 0):
                latest[record.key] = Receipt.from_json(record.value or b"")
        return Counter(receipt.outcome for receipt in latest.values() if receipt.origin == PROCESS)

    def instances(self) -> list[str]:
        """The instances that have not ended, by record key."""
        latest: dict[str, bytes | None] = {}
        for partition in range(self.log.partitions):
            latest |= {record.key: record.value for record in self.log.read(topics.PROCESSES, partition, 0)}
        return sorted(
            key for key, value in latest.items() if value is not None and key != NEXT_OFFSET and ":" not in key
        )

    def instance(self, key: str) -> dict[str, Any] | None:
        """What the log says of an instance, by record key; None if it has ended or never begun."""
        partition = partition_of(key, self.log.partitions)
        values = [record.value for record in self.log.read(topics.PROCESSES, partition, 0) if record.key == key]
        return orjson.loads(values[-1]) if values and values[-1] is not None else None

    def letters(self) -> dict[str, Letter]:
        """The dead letters, by key."""
        return {
            record.key: Letter.from_json(record.value or b"") for record in self.log.read(topics.DEAD_LETTERS, 0, 0)
        }

    def deploy(self, *processes: AnyProcess, commands: CommandRegistry | None = None) -> None:
        """Restart everybody with other code."""
        self.commands = commands or self.commands
        self.processes = ProcessRegistry([(f"module_{number}", process) for number, process in enumerate(processes)])
        self.restart_all()

    def restart_all(self) -> None:
        """Every partition has a new owner."""
        self.settle_declarations()
        self._tasks.clear()
        for role in self.roles():
            for partition in partitions_of_role(self.log, role):
                self.restart(role, partition)

    def settle_declarations(self) -> None:
        """What a handler does before it serves."""
        settle_starts(self.log, self.processes.processes)
        for topic, processes in self.processes.by_topic.items():
            settle_starts(self.log, {process.name: process for process in processes}, row_role(topic, PATCH_PARTITIONS))
        self.removed = settle_inputs(self.log, self.processes.processes)

    def roles(self) -> list[Role]:
        """Everybody who owns partitions."""
        return [*ROLES, *(row_role(topic, PATCH_PARTITIONS) for topic in self.processes.by_topic)]

    def step_all_but(self, idle: Role) -> None:
        """Let everybody but one role work, once each."""
        for role, partition in sorted(self._tasks):
            if role is not idle:
                self.step(role, partition, 100)

    def record_events(self, stream: str, *events: tuple[str, dict[str, Any]], first: int = 1) -> None:
        """Append events to a stream, number `first` and those that follow, as a whole batch, whoever decided them."""
        partition = partition_of(stream, self.log.partitions)
        for sequence, (kind, data) in enumerate(events, first):
            envelope = Envelope(f"{stream}/{sequence}", kind, stream, self.now, data, sequence=sequence)
            entry = Entry(topics.EVENTS, envelope.id, encode(envelope), timestamp_ms(self.now))
            self.log.submit(entry, partition)
        ends = [self.log.end(topic, partition) for topic in (topics.EVENTS, topics.RECEIPTS, topics.SNAPSHOTS)]
        here = Ends(self.log.next_offset(partition), *ends)
        self.log.submit(BatchRecord(here, here).entry(timestamp_ms(self.now)), partition)

    def change(self, table: type[Captured], key: dict[str, Any], value: bytes | None) -> Record:
        """Append what Debezium writes to the topic of a table, as it is in Kafka; returns the record."""
        name = orjson.dumps(key).decode()
        partition = partition_of(name, self.log.partitions)
        entry = Entry(table.topic(), name, value, timestamp_ms(self.now))
        offset = self.log.submit(entry, partition).result()
        return Record(entry.topic, partition, offset, name, value, entry.timestamp_ms)

    def show(self, view: str, key: str, row: dict[str, Any] | None, generation: int = 1, batch: int = 0) -> Record:
        """Append what a view with Topic() writes about a row; None if it was deleted. Returns the record."""
        value = None if row is None else encode(published(view, key, row, self.now, generation, batch))
        partition = partition_of(key, PATCH_PARTITIONS)
        entry = Entry(f"{topics.VIEWS}{view}", key, value, timestamp_ms(self.now))
        offset = self.log.submit(entry, partition).result()
        return Record(entry.topic, partition, offset, key, value, entry.timestamp_ms)


def published(
    view: str, key: str, row: dict[str, Any], time: datetime, generation: int = 1, batch: int = 0
) -> Envelope:
    """A row of a view as the record in its topic has it."""
    return Envelope(
        id=f"{view}@1.g{generation}/{key}@{batch}",
        type=f"{topics.VIEWS}{view}",
        stream=key or f"{view}@1",
        time=time,
        data={"key": key, **row},
        source=f"/headwater/views/{view}",
    )


def _beats(record: Record) -> bool:
    return record.topic == topics.EVENTS and record.value is not None and decode(record.value).type == HEARTBEAT
