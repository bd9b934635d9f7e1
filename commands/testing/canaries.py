"""Sends personal values that appear nowhere else through all that stores messages or states, and looks for them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final

import orjson
from pydantic import BaseModel, ValidationError

from headwater.commands.declaring.observation import Observation, ObservationRegistry, sealed_fields, to_entry
from headwater.commands.declaring.personal import PersonalField, PersonalFields
from headwater.commands.declaring.process import ProcessRegistry
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import MalformedCommand, MalformedObservation
from headwater.commands.handling.handler import Handler
from headwater.commands.local_state.state import MemoryStore
from headwater.commands.reacting.causes import SourcePlace
from headwater.commands.reacting.instance import Instance
from headwater.commands.reacting.turn import next_step
from headwater.commands.sending.prepared_command import prepare
from headwater.eventlog.envelope import Envelope, decode
from headwater.eventlog.ports import Record

TIME: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NOW_MS: Final = 1_767_323_045_000
CANARY: Final = "canary7f3a"
NUMBER: Final = 7_319_000_000_000
"""Canaries of numbers begin with it."""


class _Canaries:
    """Makes values, each of which appears once."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def of(self, kind: type[BaseModel], fields: PersonalFields | None, body: dict[str, Any]) -> dict[str, Any]:
        """The body with a canary in every personal field that takes one; others keep their values."""
        if fields is None:
            return body
        for number in range(len(fields.values(_copy(body)))):
            for canary in (f"{CANARY}-{len(self.made)}", NUMBER + len(self.made)):
                changed = _with(fields, _copy(body), number, canary)
                with suppress(ValidationError):
                    kind.model_validate_json(orjson.dumps(changed))
                    body = changed
                    self.made.append(str(canary))
                    break
        return body

    def must_be_hidden(self, stored: Sequence[bytes], lines: Sequence[str]) -> None:
        """Raises AssertionError if any is in what is stored, or in lines of the log."""
        every = [*stored, *(line.encode(errors="replace") for line in lines)]
        for canary in self.made:
            leak = next((data for data in every if canary.encode() in data), None)
            assert leak is None, f"a personal value is in plaintext: {leak!r}"


def _copy(body: dict[str, Any]) -> dict[str, Any]:
    copied: dict[str, Any] = orjson.loads(orjson.dumps(body))
    return copied


def _with(fields: PersonalFields, body: dict[str, Any], number: int, canary: Any) -> dict[str, Any]:
    """The body with another value in the personal field that is found as the `number`-th."""
    left = [number]

    def change(_: PersonalField, value: Any, __: str) -> Any:
        left[0] -= 1
        return canary if left[0] == -1 else value

    return fields.changed(body, change)


def nothing_is_in_clear(
    registry: CommandRegistry, processes: ProcessRegistry, history: Sequence[tuple[str, dict[str, Any]]]
) -> None:
    """Raises AssertionError if a personal value of these commands is in a record, or in a line of the log."""
    canaries, stored = _Canaries(), list[bytes]()
    handler = Handler(registry, 0, 1, store := MemoryStore())
    with _logged() as lines:
        for number, (command_type, body) in enumerate(history):
            kind = registry.command(command_type)
            try:
                out = prepare(kind, orjson.dumps(canaries.of(kind.command, kind.command.sealed_fields, body)), TIME)
            except MalformedCommand as refused:
                lines.append(str(refused))
                continue
            batch = handler.decide([Record("commands", 0, number, out.stream, out.entry.value, NOW_MS)], NOW_MS)
            receipts = batch.receipts(range(len(batch.entries)))
            store.apply(batch.snapshots, receipts, {})
            entries = [out.entry, *batch.entries]
            stored += [part for entry in entries for part in (entry.key.encode(errors="replace"), entry.value or b"")]
            stored += [receipt or b"" for receipt in receipts.values()]
            for entry in batch.events:
                stored += _reactions(registry, processes, decode(entry.value))
    canaries.must_be_hidden(stored, lines)


def no_report_is_in_clear(registry: ObservationRegistry, kind: type[Observation], bodies: Iterable[Any]) -> None:
    """Likewise of these data of observations."""
    canaries, stored = _Canaries(), list[bytes]()
    with _logged() as lines:
        for number, body in enumerate(bodies):
            data = canaries.of(kind, sealed_fields(kind), body)
            try:
                report = registry.read(kind.type, orjson.dumps({"id": f"{number}", "source": "test", "data": data}))
            except MalformedObservation as refused:
                lines.append(str(refused))
                continue
            entry = to_entry(report, TIME, None, None)
            stored += [entry.key.encode(), entry.value or b""]
    canaries.must_be_hidden(stored, lines)


def _reactions(registry: CommandRegistry, processes: ProcessRegistry, event: Envelope) -> Iterator[bytes]:
    """What the processes that handle an event would store, each with a new instance."""
    for process in processes.by_event.get(event.type, ()):
        # without the key of the process there is no instance; and `react` may refuse random events
        with suppress(Exception):
            key = process.identity.of_data(event.data)
            instance = Instance(process, key, process.initial)
            step = next_step(registry, process, key, instance, event, SourcePlace("events/0", 0), TIME)
            if step is not None:
                yield step.value or b""
                yield from (entry.value or b"" for entry in step.commands)


@contextmanager
def _logged() -> Iterator[list[str]]:
    """The lines that are logged meanwhile, with tracebacks."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    keep, root = Keep(), logging.getLogger()
    root.addHandler(keep)
    try:
        yield lines
    finally:
        root.removeHandler(keep)
