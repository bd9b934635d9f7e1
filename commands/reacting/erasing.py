"""Erasing what process instances keep of events: what `replay erase` asks of the owner of an instance.

The request is a record of `process-inbox` under the key of the instance. The owner appends the tombstones in its own
transaction, because nobody else appends to `processes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, Self

import msgspec

from headwater.commands.declaring.process import ProcessRegistry
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.reacting.instance_store import PARKED_PREFIX
from headwater.commands.reacting.router import Router
from headwater.commands.sending.prepared_command import new_command_id
from headwater.eventlog import topics
from headwater.eventlog.envelope import Envelope, decode
from headwater.eventlog.errors import NotAnEnvelope
from headwater.eventlog.ports import Entry, Record

ERASE: Final = "headwater.erase"
"""Type of the request; no event, row or refusal has it."""
_ERASE_BYTES: Final = ERASE.encode()


class InstanceErasure(msgspec.Struct, frozen=True):
    """The `data` of a request. parked: keys of waiting records that are erased. ends: whether the instance ends."""

    parked: tuple[str, ...]
    ends: bool = False

    def envelope(self, key: str) -> Envelope:
        """The request to the instance with this record key."""
        data = msgspec.to_builtins(self)
        return Envelope(f"erase/{new_command_id()}", ERASE, f"headwater.erase/{key}", datetime.now(UTC), data)

    @classmethod
    def of(cls, record: Record) -> Self | None:
        """The request in a record of `process-inbox`; None if it is none."""
        if record.value is None or record.value.find(_ERASE_BYTES) < 0:
            return None
        try:
            envelope = decode(record.value)
            return msgspec.convert(envelope.data, cls) if envelope.type == ERASE else None
        except (NotAnEnvelope, msgspec.ValidationError):
            return None

    def keys(self, key: str) -> list[str]:
        """The keys in `processes` that get tombstones. key: of the instance."""
        own = [
            parked
            for parked in self.parked
            if self.instance_of(parked) == key and parked.rpartition("/")[2].isdecimal()
        ]
        return [*own, key] if self.ends else own

    def offsets(self, key: str) -> frozenset[int]:
        """The offsets in `process-inbox` of the waiting records that are erased."""
        return frozenset(int(parked.rpartition("/")[2]) for parked in self.keys(key) if parked != key)

    def tombstones(self, key: str, now_ms: int) -> list[Entry]:
        """What the owner appends."""
        return [Entry(topics.PROCESSES, stored_key, None, now_ms) for stored_key in self.keys(key)]

    @staticmethod
    def instance_of(key: str) -> str:
        """The record key of the instance that a record of `processes` belongs to."""
        return key.removeprefix(PARKED_PREFIX).rpartition("/")[0] if key.startswith(PARKED_PREFIX) else key


def instances_of(
    commands: CommandRegistry, processes: ProcessRegistry, events: Iterable[bytes | None]
) -> Iterator[str]:
    """The record keys of the instances that a router has copied these events for, readable or not."""
    router = Router(commands, processes)
    keys: dict[str, None] = {}
    for value in events:
        with suppress(Exception):  # of an event without a key, or of a user's validator: then no router has copied it
            keys |= dict.fromkeys(f"{process.name}/{key}" for process, key in router.instances(decode(value)))
    yield from keys


def parked_copies(key: str, records: Mapping[str, Record], concerns: Callable[[bytes | None], bool]) -> list[str]:
    """The keys of those waiting records of an instance that are copies of erased events.

    records: of `processes`, by key. concerns: whether a value is such a copy.
    """
    return [parked for parked, record in records.items() if parked != key and concerns(record.value)]
