"""Records are measured in bytes, as Kafka measures them, so that none is refused in the middle of a partition."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from headwater.commands.declaring.aggregate import Aggregate, Command, Event
from headwater.commands.declaring.process import Process, Reaction, TimedOut
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.handling.command_task import CommandTask
from headwater.commands.local_state.state import MemoryStore
from headwater.commands.reacting.router import copied
from headwater.commands.receipt import Receipt
from headwater.eventlog.envelope import CLIENT, Envelope, encode
from headwater.eventlog.errors import LogUnavailable, NotAnEnvelope
from headwater.eventlog.limits import (
    MAX_COPY_BYTES,
    MAX_ENTRY_BYTES,
    MAX_INSTANCE_KEY_BYTES,
    MAX_RECORD_BYTES,
    entry_size,
)
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry
from headwater.eventlog.topics import COMMANDS, EVENTS, RECEIPTS
from headwater.samples.orders.domain import order
from tests.support.process_world import World

TIME = datetime(2026, 1, 2, tzinfo=UTC)
NAME = "😀" * 20_000
"""80,000 bytes, but 20,000 characters; with the type and the command's id, nearly all that a command may have."""


class Written(Event, type="text.written"):
    text_id: str
    content: str


class Length(BaseModel):
    model_config = ConfigDict(frozen=True)
    length: int = 0


class Write(Command, type="text.write"):
    text_id: str
    length: int
    events: int = 1


def decide(command: Write, state: Length) -> Sequence[Event]:
    return [Written(text_id=command.text_id, content="x" * command.length)] * command.events


def evolve(state: Length, event: Written) -> Length:
    return Length(length=state.length + len(event.content))


text = Aggregate(name="text", id_field="text_id", initial=Length(), decide=decide, evolve=evolve)


def decided(length: int, name: str = NAME, events: int = 1) -> tuple[MemoryLog, Receipt]:
    """The log after a command for events of this length."""
    log, stream = MemoryLog(partitions=1), f"text/{name}"
    body = {"text_id": name, "length": length, "events": events}
    for number, each in enumerate((body, body | {"length": 1, "events": 1})):
        command = Envelope(f"c{number}", "text.write", stream, TIME, each, origin=CLIENT)
        log.submit(Entry(COMMANDS, stream, encode(command), 1), 0)
    with (
        closing(log.own(0)) as writer,
        closing(CommandTask(log, CommandRegistry([("here", text)]), 0, MemoryStore())) as task,
    ):
        left: Sequence[Any] | None = list(log.read(COMMANDS, 0, 0))
        while left:
            left = task.work(writer, left)
    receipts = [Receipt.from_json(record.value or b"") for record in log.read(RECEIPTS, 0, 0)]
    assert receipts[1].outcome == "accepted"
    return log, receipts[0]


def largest_event(log: MemoryLog) -> int:
    return max(entry_size(record.key, record.value) for record in log.read(EVENTS, 0, 0))


def test_an_event_whose_key_has_more_bytes_than_characters_is_as_large_as_kafka_says() -> None:
    log, receipt = decided(1_000)
    assert receipt.outcome == "accepted"
    more = MAX_ENTRY_BYTES - largest_event(log)
    log, receipt = decided(1_000 + more)
    assert (receipt.outcome, largest_event(log)) == ("accepted", MAX_ENTRY_BYTES)
    _, receipt = decided(1_000 + more + 1)
    assert receipt.error is not None
    assert (receipt.error.code, f"{MAX_ENTRY_BYTES + 1} bytes" in receipt.error.message) == ("event_too_large", True)


def test_the_log_in_memory_refuses_what_kafka_refuses() -> None:
    log, failed = MemoryLog(partitions=1), list[LogUnavailable]()
    key = "😀" * 10
    log.send([Entry(EVENTS, key, b"x" * (MAX_RECORD_BYTES - 40), 1)], 0, failed.append)
    assert not failed
    log.send([Entry(EVENTS, key, b"x" * (MAX_RECORD_BYTES - 39), 1)], 0, failed.append)
    assert len(failed) == 1


class State(BaseModel):
    model_config = ConfigDict(frozen=True)
    text: str = ""


def waiting_for(name: str) -> Process[State]:
    def react(event: order.Placed | TimedOut, state: State) -> Reaction[State]:
        if isinstance(event, TimedOut):
            raise ValueError("the timer fails")
        return Reaction(state, timers={name: timedelta(seconds=1)})

    return Process(name="waiting", key="order_id", initial=State(), starts=(order.Placed,), react=react)


def test_a_copy_for_a_process_is_measured_with_its_key() -> None:
    process, key = waiting_for("t"), "😀" * 4_000
    most = MAX_COPY_BYTES - len("waiting/") - 16_000
    assert entry_size(copied(process, key, b"x" * most).key, b"x" * most) == MAX_COPY_BYTES
    with pytest.raises(NotAnEnvelope, match=f"{MAX_COPY_BYTES + 1} bytes"):
        copied(process, key, b"x" * (most + 1))
    with pytest.raises(NotAnEnvelope, match="the key of an instance"):
        copied(process, "😀" * 4_096, b"x")


@pytest.mark.parametrize("name", ["😀" * 4_096, "t" * (MAX_INSTANCE_KEY_BYTES + 1), "t" * 4_000_000])
def test_a_timer_whose_letter_kafka_would_refuse_is_refused_when_it_is_set(name: str) -> None:
    world = World(random.Random(1), partitions=1)
    world.deploy(waiting_for(name))
    world.send("order.place", order_id="O", customer="Ada", lines=[{"sku": "tea", "quantity": 1, "unit_cents": 5}])
    world.settle()
    world.wait(timedelta(minutes=1))
    world.settle()
    (key,) = world.letters()
    fits = len(name) == 4_096
    assert key.startswith("process-inbox/0/timer/" if fits else "process-inbox/0/0")
    assert ("the timer fails" if fits else "use a shorter name") in world.letters()[key].reason
