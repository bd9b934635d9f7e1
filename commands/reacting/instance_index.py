"""Names and values in the local store of process instances, and how many instances and timers it has.

The numbers are kept with the instances, so that a start need not read all of them. With them is the offset up to which
`processes` was read then: if other code has changed instances since, it is another, and they are counted anew.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

TIMER: Final = "timer"
"""`timer/<due>/<digest>`: when it is due, the record key and the name; of instances that can fire."""


class DueTimer(NamedTuple):
    """A timer and the record key of its instance. due_ms: since 1970."""

    due_ms: int
    key: str
    name: str


class _Due(msgspec.Struct):
    due_ms: int


class Scheduled(msgspec.Struct):
    """What the record of an instance says about its timers."""

    timers: dict[str, _Due] = {}
    stopped: str | None = None
    shape: str = ""


_SCHEDULED: Final = msgspec.json.Decoder(Scheduled)


def scheduled_of(value: bytes | None) -> Scheduled:
    """What a record says about its timers; nothing if it cannot be read, or there is none."""
    if value is None:
        return Scheduled()
    try:
        return _SCHEDULED.decode(value)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return Scheduled()  # no code can read it


def timer_name(key: str, name: str, due_ms: int) -> str:
    """The name of a timer of the instance with this record key; names are in the order of their times."""
    return f"{TIMER}/{max(0, due_ms):020d}/{digest_of(f'{len(key)}:{key}{name}')}"


def timer_value(key: str, name: str, due_ms: int) -> bytes:
    """The input of `read_timer`."""
    written = as_bytes(key)
    return b"%d:%d:" % (due_ms, len(written)) + written + as_bytes(name)


def read_timer(value: bytes) -> DueTimer:
    """The timer of a stored value."""
    due_ms, length, rest = value.split(b":", 2)
    return DueTimer(int(due_ms), as_text(rest[: int(length)]), as_text(rest[int(length) :]))


def digest_of(key: str) -> str:
    """A digest of a key; all have the same length, so that no key is the beginning of another."""
    return hashlib.blake2b(as_bytes(key), digest_size=16).hexdigest()


def as_bytes(text: str) -> bytes:
    """A text that may hold bytes that are not UTF-8, as surrogate escapes."""
    return text.encode(errors="surrogateescape")


def as_text(written: bytes) -> str:
    """The input of `as_bytes`."""
    return written.decode(errors="surrogateescape")


NOTED: Final = "totals/instances"
"""The name of the numbers in the store."""


@dataclass
class InstanceCount:
    """Of one process. stopped: instances that have stopped at an event. timers: those of all instances."""

    instances: int = 0
    stopped: int = 0
    timers: int = 0


class _Noted(msgspec.Struct):
    position: int
    counts: dict[str, InstanceCount]


_DECODER: Final = msgspec.json.Decoder(_Noted)


class InstanceCounts:
    """The numbers of one partition, by process."""

    def __init__(self) -> None:
        self.of_process: dict[str, InstanceCount] = defaultdict(InstanceCount)

    def restore(self, noted: bytes | None, position: int) -> bool:
        """Take the numbers that were noted; False if they are not those of this position in `processes`."""
        try:
            places = _DECODER.decode(noted or b"")
        except msgspec.MsgspecError:
            return False
        if places.position != position:
            return False
        self.of_process.update(places.counts)
        return True

    def count(self, instances: Iterable[tuple[str, bytes]]) -> None:
        """Count these instances, by record key."""
        for key, value in instances:
            self.change(key, None, scheduled_of(value))

    def change(self, key: str, before: Scheduled | None, after: Scheduled | None) -> None:
        """Take the change of an instance; None: there is none."""
        count = self.of_process[key.partition("/")[0]]
        for scheduled, sign in ((before, -1), (after, 1)):
            if scheduled is not None:
                count.instances += sign
                count.stopped += sign * (scheduled.stopped is not None)
                count.timers += sign * len(scheduled.timers)

    def noted(self, position: int) -> bytes:
        """The input of `restore`. position: up to where `processes` is read."""
        return msgspec.json.encode(_Noted(position, self.of_process))
