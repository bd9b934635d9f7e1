"""Erases events of one stream: asks the owner of its partition, then removes the copies that other topics have."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import orjson

from headwater.commands.codec import fold, sealed_state
from headwater.commands.declaring.process import ProcessRegistry
from headwater.commands.declaring.registry import AnyAggregate, CommandRegistry
from headwater.commands.handling.erasing import MAX_ERASED, Erasure
from headwater.commands.handling.refold import version_in
from headwater.commands.reacting.erasing import InstanceErasure, instances_of, parked_copies
from headwater.commands.receipt import Receipt, key_of
from headwater.commands.sending.gateway import receipt_of
from headwater.commands.sending.prepared_command import new_command_id
from headwater.eventlog.envelope import Envelope, decode, encode, partition_of, timestamp_ms
from headwater.eventlog.errors import NotAnEnvelope
from headwater.eventlog.hidden_values import error_text
from headwater.eventlog.letters import Letter
from headwater.eventlog.limits import MAX_COMMAND_BYTES
from headwater.eventlog.ports import Entry, EventLog, Record
from headwater.eventlog.times import now_ms
from headwater.eventlog.topics import COMMANDS, DEAD_LETTERS, EVENTS, INBOX, PATCHES, PROCESSES, RECEIPTS, SNAPSHOTS
from headwater.replay.errors import AmbiguousTarget, CannotErase, NothingToErase
from headwater.replay.parts import letters_of


class StoredEvent(NamedTuple):
    """An event that is still in the log. erased: it has a tombstone, but compaction has not removed it yet."""

    id: str
    version: int
    offset: int
    value: bytes
    erased: bool

    @property
    def envelope(self) -> Envelope | None:
        """Its envelope; None if it cannot be read."""
        try:
            return decode(self.value)
        except NotAnEnvelope:
            return None

    @property
    def description(self) -> str:
        """Its type and time, for people."""
        envelope = self.envelope
        return "(cannot be read)" if envelope is None else f"{envelope.type} {envelope.time:%Y-%m-%d %H:%M:%S}"


def is_version(text: str) -> bool:
    """Whether a text is the version in the id of an event."""
    return text.isascii() and text.isdecimal()


class StreamEvents:
    """What the log has of one stream; `read` adds what came since."""

    def __init__(self, log: EventLog, stream: str) -> None:
        self.stream, self.partition = stream, partition_of(stream, log.partitions)
        self._log, self._next = log, 0
        self.stored: dict[int, StoredEvent] = {}
        """The events that are still in the log, by version, with those that have a tombstone."""
        self.version = 0
        """The highest version that was read, of an event or a tombstone."""

    def read(self) -> bool:
        """Read up to the end of the log; returns whether the stream has something new."""
        end = self._log.end(EVENTS, self.partition)
        start = f"{self.stream}/"
        was_read = False
        for record in self._log.read(EVENTS, self.partition, self._next, end):
            number = record.key.removeprefix(start)
            if not record.key.startswith(start) or not is_version(number):
                continue
            was_read = True
            version = int(number)
            self.version = max(self.version, version)
            if record.value is not None:
                self.stored[version] = StoredEvent(record.key, version, record.offset, record.value, False)
            elif version in self.stored:
                self.stored[version] = self.stored[version]._replace(erased=True)
        self._next = end
        return was_read

    def state_without(self, aggregate: AnyAggregate, versions: Sequence[int]) -> object:
        """The state of the stream without the events of these versions; raises whatever a rule raises."""
        left = [event for version, event in sorted(self.stored.items()) if not event.erased and version not in versions]
        state, _ = fold(aggregate, (decode(record.value) for record in left))
        return state


TIMEOUT_S: Final = 60.0
"""How long the owner of a partition may take to answer; it may be reading the log after a start."""
ATTEMPTS: Final = 20
"""How often the state is folded again because the stream got another event meanwhile."""


@dataclass
class Target:
    """What is to be erased: one event of a stream, or all of them (version: None)."""

    events: StreamEvents
    version: int | None

    @property
    def stream(self) -> str:
        """The stream."""
        return self.events.stream

    @property
    def stored(self) -> list[StoredEvent]:
        """The events that are still in the log, also those that have a tombstone already."""
        chosen = self.events.stored
        return [event for version, event in sorted(chosen.items()) if self.version in (None, version)]

    @property
    def types(self) -> set[str]:
        """The types of these events, as far as they can be read."""
        return {event.envelope.type for event in self.stored if event.envelope}

    def concerns(self, value: bytes | None) -> bool:
        """Whether a record of another topic is a copy of one of these events, or a command of the whole stream."""
        try:
            envelope = decode(value)
        except NotAnEnvelope:
            return False
        if self.version is None:
            return envelope.stream == self.stream
        return envelope.id == f"{self.stream}/{self.version}"


def find(log: EventLog, name: str, *, is_stream: bool = False, is_event: bool = False) -> Target:
    """What `name` is: a stream, or the id of an event. Raises NothingToErase and AmbiguousTarget."""
    stream, _, number = name.rpartition("/")
    candidates = []
    if "/" in stream and is_version(number) and int(number) and not is_stream:
        candidates.append(Target(StreamEvents(log, stream), int(number)))
    if not is_event:
        candidates.append(Target(StreamEvents(log, name), None))
    for target in candidates:
        target.events.read()
    targets = [candidate for candidate in candidates if (candidate.version or 1) <= candidate.events.version]
    if not targets:  # all these events are gone from the log: their state may be left
        snapshots = {
            candidate.stream: log.last(SNAPSHOTS, candidate.events.partition, candidate.stream)
            for candidate in candidates
        }
        targets = [
            candidate
            for candidate in candidates
            if (candidate.version or 1) <= version_in(snapshots[candidate.stream] or b"")
        ]
    if not targets:
        raise NothingToErase(name)
    if len(targets) > 1:
        raise AmbiguousTarget(name)
    return targets[0]


@dataclass
class Copies:
    """Where else events are. letters: keys of dead letters. parked: keys of records in `processes` by instance.

    instances: record keys of process instances that handled the events and have not ended.
    """

    letters: list[str] = field(default_factory=list)
    parked: dict[str, list[str]] = field(default_factory=dict)
    instances: list[str] = field(default_factory=list)


class Eraser:
    """Erases what a Target names."""

    def __init__(self, log: EventLog, commands: CommandRegistry, processes: ProcessRegistry) -> None:
        self._log, self._commands, self._processes = log, commands, processes

    def copies(self, target: Target) -> Copies:
        """The copies that can be removed."""
        handled = list(instances_of(self._commands, self._processes, (event.value for event in target.stored)))
        copies = Copies()
        latest_of: dict[str, dict[str, Record]] = {key: {} for key in handled}
        """By instance, its records of `processes` that have no tombstone, by key."""
        for partition in {partition_of(key, self._log.partitions) for key in handled}:
            for record in self._log.read(PROCESSES, partition, 0):
                if (latest := latest_of.get(InstanceErasure.instance_of(record.key))) is not None:
                    latest.pop(record.key, None)
                    if record.value is not None:
                        latest[record.key] = record
        for key, latest in latest_of.items():
            copies.parked |= {key: parked} if (parked := parked_copies(key, latest, target.concerns)) else {}
            if key in latest:
                copies.instances.append(key)
        offsets = {event.offset for event in target.stored}
        for key, letter in letters_of(self._log).items():
            if _is_about(key, letter, target, offsets, copies.instances):
                copies.letters.append(key)
        return copies

    def erase(self, target: Target) -> int:
        """Let the owner erase the events; returns the version of the stream, which it keeps.

        Raises CannotErase and LogUnavailable.
        """
        if target.version is not None:
            return self._erase_event(target, target.version)
        version = max(1, target.events.version)
        first = 1
        while first <= version:
            last = first + MAX_ERASED - 1
            receipt = self._ask(target, Erasure(first, last, target.events.version, whole=True))
            if receipt.outcome != "accepted":
                raise _refused(target, receipt)
            version, first = receipt.version, last + 1
        target.events.read()  # events that came meanwhile are erased too, and may have copies
        return version

    def remove(self, target: Target, copies: Copies, *, end_instances: bool) -> list[str]:
        """Remove the copies; returns the instances that were ended. Raises CannotErase and LogUnavailable."""
        for key in copies.letters:
            self._log.submit(Entry(DEAD_LETTERS, key, None, now_ms()), 0).result(TIMEOUT_S)
        ended = copies.instances if end_instances else []
        for key in dict.fromkeys([*ended, *copies.parked]):
            # the owner of the instance appends tombstones
            erasure = InstanceErasure(tuple(copies.parked.get(key, ())), ends=key in ended)
            partition, waited = partition_of(key, self._log.partitions), set(erasure.keys(key))
            start, deadline = self._log.end(PROCESSES, partition), time.monotonic() + TIMEOUT_S
            self._log.submit(Entry(INBOX, key, encode(erasure.envelope(key)), now_ms()), partition).result(TIMEOUT_S)
            with closing(self._log.tail(PROCESSES, {partition: start})) as tail:
                while waited and time.monotonic() < deadline:
                    waited -= {record.key for record in tail.poll(1_000, 0.1) if record.value is None}
            if waited:
                problem = f"no handler that knows the process answered within {TIMEOUT_S:g} s: try again later"
                raise CannotErase(key, problem)
        return list(ended)

    def _erase_event(self, target: Target, version: int) -> int:
        aggregate = self._commands.aggregates.get(target.stream.partition("/")[0])
        events = target.events
        expected = events.version
        for _ in range(ATTEMPTS):
            state = None
            if aggregate is not None:
                try:
                    folded: Any = events.state_without(aggregate, [version])
                    body = folded.__pydantic_serializer__.to_json(folded)
                    state = sealed_state(aggregate, target.stream, body).decode()
                except Exception as error:
                    text = error_text(error, is_personal=aggregate.is_personal)
                    problem = f"the other events cannot be folded without it ({text}): erase the stream"
                    raise CannotErase(f"{target.stream}/{version}", problem) from error
            fields = None if aggregate is None else aggregate.shape
            receipt = self._ask(
                target, Erasure(version, version, expected, state=state, fields=fields), expected_version=expected
            )
            if receipt.outcome == "accepted":
                return receipt.version
            if receipt.outcome != "conflict":
                raise _refused(target, receipt)
            events.read()
            expected = max(events.version, receipt.version)  # if the last events are gone, only the owner knows it
        raise CannotErase(f"{target.stream}/{version}", f"the stream got new events {ATTEMPTS} times: try again")

    def _ask(self, target: Target, erasure: Erasure, expected_version: int | None = None) -> Receipt:
        """Send a request to the owner of the partition, and wait for its receipt."""
        now, partition = datetime.now(UTC), target.events.partition
        envelope = erasure.envelope(
            id=f"erase/{new_command_id()}", stream=target.stream, time=now, expected_version=expected_version
        )
        value = encode(envelope)
        if len(value) + len(target.stream.encode()) > MAX_COMMAND_BYTES:
            raise CannotErase(target.stream, "its state is too large for a request: erase the whole stream")
        start = self._log.end(RECEIPTS, partition)
        entry = Entry(COMMANDS, target.stream, value, timestamp_ms(now))
        self._log.submit(entry, partition).result(TIMEOUT_S)
        if (receipt := receipt_after(self._log, envelope, partition, start, TIMEOUT_S)) is None:
            raise CannotErase(
                target.stream,
                f"no handler answered within {TIMEOUT_S:g} s: start one, which will erase the events, then run this "
                "command again for their copies",
            )
        return receipt


def receipt_after(log: EventLog, command: Envelope, partition: int, start: int, timeout_s: float) -> Receipt | None:
    """The receipt of a command, from an offset of `receipts` on; None if none comes within this time."""
    deadline, key = time.monotonic() + timeout_s, key_of(command)
    with closing(log.tail(RECEIPTS, {partition: start})) as tail:
        while time.monotonic() < deadline:
            for record in tail.poll(1_000, 0.1):
                # a refusal of a reused id has a longer key
                receipt = receipt_of(record) if record.key.startswith(key) else None
                if receipt is not None:
                    return receipt
    return None


def _refused(target: Target, receipt: Receipt) -> CannotErase:
    return CannotErase(target.stream, receipt.error.message if receipt.error else receipt.outcome)


def _is_about(key: str, letter: Letter, target: Target, offsets: Collection[int], instances: Sequence[str]) -> bool:
    """Whether a dead letter has one of the events, or is about an instance that handled them."""
    topic, *place = key.split("/")
    if topic == PROCESSES:
        return "/".join(place[1:]) in instances
    if topic == PATCHES:
        with suppress(orjson.JSONDecodeError, TypeError, KeyError):
            patch = orjson.loads(letter.value or b"")
            return patch["p"] == target.events.partition and patch["o"] in offsets
        return False
    at = f"{target.events.partition}"
    if topic == EVENTS and place[:1] == [at] and place[1].isdecimal() and int(place[1]) in offsets:
        return True
    return target.concerns(letter.value)
