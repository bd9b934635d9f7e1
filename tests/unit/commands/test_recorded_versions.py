"""A version of an event whose fields were changed is refused once the log has events of it, without golden files."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from headwater import Aggregate, Command, Event, rename, upcast
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import DeclarationError
from headwater.commands.handling.command_task import CommandTask
from headwater.commands.handling.recorded_versions import changed_versions, settle_versions
from headwater.commands.local_state.state import MemoryStore
from headwater.commands.reacting.starts import read_starts
from headwater.eventlog import topics
from headwater.eventlog.envelope import Envelope, encode
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry


class Box(BaseModel):
    model_config = ConfigDict(frozen=True)


class Pack(Command, type="box.pack"):
    box_id: str
    amount: int


def code(field: str, *, version: int = 1, history: Any = ()) -> CommandRegistry:
    """A deployment whose event has this field."""
    annotations = {"box_id": str, field: int}
    packed = type(
        "Packed", (Event,), {"__annotations__": annotations}, type="box.packed", version=version, history=history
    )

    def decide(command: Pack, state: Box) -> Sequence[Event]:
        return [packed(**{"box_id": command.box_id, field: command.amount})]

    def evolve(state: Box, event: Event) -> Box:
        return state

    evolve.__annotations__["event"] = packed
    return CommandRegistry([("here", Aggregate("box", "box_id", Box(), decide, evolve))])


def start(log: MemoryLog, registry: CommandRegistry) -> None:
    settle_versions(log, registry.events.values())


def pack(log: MemoryLog, registry: CommandRegistry) -> None:
    command = Envelope("c", "box.pack", "box/b", datetime(2026, 1, 2, tzinfo=UTC), {"box_id": "b", "amount": 1})
    log.submit(Entry(topics.COMMANDS, "box/b", encode(command), 1), 0)
    with closing(log.own(0)) as writer, closing(CommandTask(log, registry, 0, MemoryStore())) as task:
        task.restore(writer, lambda: False)
        task.work(writer, list(log.read(topics.COMMANDS, 0, 0)))


def test_a_forgotten_version_is_refused_by_who_would_record_it() -> None:
    log, first = MemoryLog(1), code("amount")
    start(log, first)
    pack(log, first)
    start(log, first)
    for _ in range(2):
        with pytest.raises(DeclarationError, match=r'"cents" was added, "amount" was removed .*version=2'):
            start(log, code("cents"))
    (problem,) = changed_versions(log, code("cents").events.values())["box.packed"]
    assert '"cents" was added' in problem
    start(log, code("cents", version=2, history=[upcast(1, rename("amount", "cents"))]))
    start(log, first)  # an older version of the code again
    assert changed_versions(log, first.events.values()) == {}
    assert read_starts(log) == {}


def test_what_was_never_recorded_may_change() -> None:
    log = MemoryLog(2)
    for field in ("amount", "cents", "amount"):
        assert changed_versions(log, code(field).events.values()) == {}
        start(log, code(field))
    log.submit(Entry(topics.EVENTS, "box/b/1", b'{"box.packed"', 0), 1)
    start(log, code("cents"))
    pack(log, code("cents"))
    with pytest.raises(DeclarationError, match="amount"):
        start(log, code("amount"))
