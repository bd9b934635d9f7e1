"""Copies a topic so that no personal value is in plaintext any more, and every record keeps its offset and time.

Views, ledgers, receipts and checkpoints refer to records by partition and offset. Kafka chooses offsets, and gives them
without gaps. So heartbeats fill the gaps of the original (ends of transactions, aborted and compacted records): readers
pass over them, and compaction removes them. A topic cannot be renamed, so it is copied twice:

1. `copying`: the topic is held, so that nothing is written to it, and copied into `<topic>.resealing` with sealed
   values.
2. `replacing`: the copy was compared with the topic. The topic is deleted, created again, and filled from the copy.
3. `following`: both are the same. What belonged to the id of the first topic gets that of the new one.

Then the copy is deleted. It has one partition more than the topic, with the notes of how far it is: so what must be
known to go on lives exactly as long as what it is about. Each step may be repeated, after a kill at any moment. While
the copy is there, handlers, projections, the API and rebuilds refuse to start (see `ResealUnfinished`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, Literal

import msgspec

from headwater.commands.handling.command_task import heartbeat
from headwater.commands.owning.resume_offset import follow_copy
from headwater.eventlog.heartbeats import heartbeat_key
from headwater.eventlog.kafka.copying import Bounds, CopiedRecord, KafkaTopics
from headwater.eventlog.ports import ROUTER, EventLog
from headwater.eventlog.topics import EVENTS, FOR_EVER, RESEALING, RETENTION, RETENTION_BYTES, UNLIMITED
from headwater.projections.generations.registry.registry import Generations
from headwater.replay.clear_values import ClearValues, Unfit
from headwater.replay.errors import CannotReseal

Phase = Literal["copying", "replacing", "following"]

KEPT: Final = {"cleanup.policy": "delete", RETENTION: FOR_EVER, RETENTION_BYTES: UNLIMITED}
"""Of a topic from which nothing is removed while it is copied or compared."""
LIMIT: Final = "max.message.bytes"
HELD: Final = {**KEPT, LIMIT: "1"}
"""Of a topic to which nobody writes: every record is too large. Kafka refuses it at once, so the API answers that the
log is unavailable."""
MADE: Final = {**KEPT, "flush.messages": "1"}
"""Of a topic that is being filled: each batch is on disk before it is acknowledged. What was on disk for long must not
be deleted for what a loss of power would take."""
NOTE_KEY: Final = b"note"


class Note(msgspec.Struct, frozen=True):
    """How far the copy of a topic is.

    made_from: the id of the topic. partitions, replication, settings: what it is created with again. firsts, ends: of
    each partition. copy: the id of the topic that took its place; empty before.
    """

    phase: Phase
    made_from: str
    partitions: int
    replication: int
    settings: dict[str, str]
    firsts: list[int] = []
    ends: list[int] = []
    copy: str = ""


@lru_cache(maxsize=64)
def filler_of(topic: str, partition: int, timestamp_ms: int) -> CopiedRecord:
    """A heartbeat of this time, as those of this topic are; its offset does not matter."""
    key, value = heartbeat_key(partition).encode(), b"{}"
    if topic == EVENTS:
        value = heartbeat(partition, datetime.fromtimestamp(timestamp_ms / 1000, UTC)).value or b""
    return CopiedRecord(0, key, value, None, timestamp_ms)


class Reseal:
    """Copies one topic; `run` goes on where an earlier call ended."""

    def __init__(
        self,
        topics: KafkaTopics,
        values: ClearValues,
        log: EventLog,
        generations: Generations,
        topic: str,
        report: Callable[[str, str], None] = lambda *_: None,
        check_alone: Callable[[], None] = lambda: None,
    ) -> None:
        """generations: they refer to the topic. report: called with the topic, and what is done with it next.

        check_alone: raises if another process may be copying the topic; it is called before anything is deleted.
        """
        self._topics, self._values, self._log, self._generations = topics, values, log, generations
        self._topic, self._report, self._check_alone = topic, report, check_alone
        self._copy = topic + RESEALING

    @property
    def is_unfinished(self) -> bool:
        """Whether an earlier call has begun, and has not finished."""
        return self._topics.find(self._copy) is not None

    def run(self) -> None:
        """Copy the topic; when it returns, the copy has taken its place. Raises CannotReseal and EventLogError."""
        note = self._note()
        if note is None or note.phase == "copying":
            note = self._copied(note)
        if note.phase == "replacing":
            note = self._replaced(note)
        self._report(self._topic, "noting its new id")
        # what belongs to the id of the topic belongs to that of its copy from now on; this may be repeated
        if self._topic == ROUTER.reads:
            follow_copy(self._log, ROUTER, note.made_from, note.copy)
        self._generations.follow_copy(self._topic, note.made_from, note.copy)
        self._delete(self._copy)

    def cancel(self) -> bool:
        """Undo what an earlier call has begun; returns whether there was anything. Raises CannotReseal if it is too
        late."""
        if not self.is_unfinished:
            return False
        note = self._note()
        if note is not None:
            if not self._is_original(note):
                raise CannotReseal(self._topic, "it is being replaced already: run `replay reseal` to the end")
            self._release(note)
        self._delete(self._copy)
        return True

    def _copied(self, note: Note | None) -> Note:
        """The first copy, compared with the topic."""
        topic = self._topics.find(self._topic)
        if topic is None:
            raise CannotReseal(self._topic, "there is no such topic")
        if note is not None:  # an earlier call was interrupted
            if topic.id != note.made_from:
                raise CannotReseal(
                    self._topic,
                    f'it is another topic than the one that was being copied: delete "{self._copy}" if it is right',
                )
            self._release(note)
        settings = dict(topic.settings) if note is None else note.settings
        if settings.get(LIMIT) == HELD[LIMIT]:
            raise CannotReseal(
                self._topic,
                f"it is held, but its copy is gone: remove its settings {', '.join(HELD)}, and run it again",
            )
        note = Note("copying", topic.id, topic.partitions, topic.replication, settings)
        self._delete(self._copy)
        self._topics.create(self._copy, topic.partitions + 1, topic.replication, {**note.settings, **MADE})
        self._write(note)
        self._topics.alter(self._topic, HELD)
        bounds = self._bounds(note)
        note = msgspec.structs.replace(
            note, phase="replacing", firsts=[bound.first for bound in bounds], ends=[bound.end for bound in bounds]
        )
        for partition in range(note.partitions):
            self._report(self._topic, f"sealing partition {partition}")
            erased = self._erased(partition, note)
            self._topics.append(self._copy, partition, self._filled(self._topic, partition, note, erased))
            self._report(self._topic, f"comparing partition {partition}")
            self._compare(self._topic, self._copy, partition, note, erased)
        if self._bounds(note) != bounds:
            raise CannotReseal(self._topic, "it changed while it was copied: stop what writes to it, and run it again")
        self._write(note)
        return note

    def _replaced(self, note: Note) -> Note:
        """The topic, made again from its copy."""
        self._report(self._topic, "making the topic again")
        if self._is_original(note) and [bound.end for bound in self._bounds(note)] != note.ends:
            raise CannotReseal(self._topic, "it changed after it was copied: run `replay reseal --cancel`, then again")
        self._delete(self._topic)  # also one that an earlier call has begun to fill
        copy = self._topics.create(self._topic, note.partitions, note.replication, {**note.settings, **MADE})
        for partition in range(note.partitions):
            self._report(self._topic, f"copying partition {partition} back")
            self._topics.append(self._topic, partition, self._filled(self._copy, partition, note))
        self._topics.cut(self._topic, dict(enumerate(note.firsts)))
        for partition in range(note.partitions):
            self._report(self._topic, f"comparing partition {partition} again")
            self._compare(self._copy, self._topic, partition, note)
        self._release(note)
        note = msgspec.structs.replace(note, phase="following", copy=copy)
        self._write(note)
        return note

    def _filled(
        self, topic: str, partition: int, note: Note, erased: Mapping[bytes, int] | None = None
    ) -> Iterator[CopiedRecord]:
        """A record for each offset of a partition, from 0 on: those of a topic, and fillers between them.

        erased: see `_erased`; then the values of the others are sealed. None: the values stay as they are.
        """
        offset, timestamp_ms = 0, 1
        for record in self._topics.read(topic, partition, note.firsts[partition], note.ends[partition]):
            if offset < record.offset:
                filler = filler_of(self._topic, partition, timestamp_ms)
                for _ in range(record.offset - offset):
                    yield filler
            if erased is not None:
                try:
                    value = None if _is_erased(record, erased) else self._values.sealed(record.value)
                except Unfit as error:
                    raise CannotReseal(EVENTS, f"a record cannot be encrypted: {error}") from error
                record = record._replace(value=value)  # noqa: PLW2901
            yield record
            # a filler has the time of the record before it, and so says nothing new about how late it is
            offset, timestamp_ms = record.offset + 1, record.timestamp_ms
        filler = filler_of(self._topic, partition, timestamp_ms)
        for _ in range(note.ends[partition] - offset):
            yield filler

    def _compare(
        self, original: str, copy: str, partition: int, note: Note, erased: Mapping[bytes, int] | None = None
    ) -> None:
        """Raise CannotReseal unless a copy has each record of the original in its place, and else only fillers.

        erased: see `_filled`.
        """
        first, end = note.firsts[partition], note.ends[partition]
        expected = self._topics.read(original, partition, first, end)
        awaited, offset = next(expected, None), first - 1
        for record in self._topics.read(copy, partition, first, end):
            place = f"{partition}:{record.offset}"
            if record.offset != (offset := offset + 1):
                raise self._wrong(f"{partition}:{offset}", "it is missing")
            if awaited is None or record.offset < awaited.offset:
                filler = filler_of(self._topic, partition, record.timestamp_ms)
                if record._replace(offset=0) != filler._replace(offset=0):
                    raise self._wrong(place, "there was none")
                continue
            if record._replace(value=None) != awaited._replace(value=None):
                raise self._wrong(place, "its key, headers or time differs")
            if erased is None:
                problem = "" if awaited.value == record.value else "it differs"
            elif _is_erased(awaited, erased):
                problem = "" if record.value is None else "it was erased"
            else:
                problem = self._values.difference(awaited.value, record.value)
            if problem:
                raise self._wrong(place, problem)
            awaited = next(expected, None)
        if awaited is not None or offset != end - 1:
            raise self._wrong(f"{partition}:{offset + 1}", "it is missing")

    def _erased(self, partition: int, note: Note) -> dict[bytes, int]:
        """By key, the offset of the last tombstone. A record before it is copied as a tombstone, too.

        So an event that was erased because it cannot be encrypted need not wait until Kafka removes it.
        """
        read = self._topics.read(self._topic, partition, note.firsts[partition], note.ends[partition])
        return {record.key: record.offset for record in read if record.value is None and record.key is not None}

    def _bounds(self, note: Note) -> list[Bounds]:
        """The bounds of all partitions; raises CannotReseal if a transaction is open."""
        offsets = self._topics.bounds(self._topic, range(note.partitions))
        bounds = [offsets[partition] for partition in range(note.partitions)]
        for partition, bound in enumerate(bounds):
            if bound.end != bound.stored:
                raise CannotReseal(
                    self._topic, f"partition {partition} has an open transaction: stop the handlers, and run it again"
                )
        return bounds

    def _delete(self, name: str) -> None:
        self._check_alone()
        self._topics.delete(name)

    def _is_original(self, note: Note) -> bool:
        """Whether the topic has not been deleted yet."""
        topic = self._topics.find(self._topic)
        return topic is not None and topic.id == note.made_from

    def _release(self, note: Note) -> None:
        """Let the topic have its own settings again."""
        self._topics.alter(self._topic, {name: note.settings.get(name) for name in {**HELD, **MADE}})

    def _note(self) -> Note | None:
        """The last note; None if there is none, and so nothing has been done yet."""
        copy = self._topics.find(self._copy)
        if copy is None:
            return None
        place = copy.partitions - 1
        end = self._topics.bounds(self._copy, [place])[place].end
        notes = [record.value for record in self._topics.read(self._copy, place, 0, end)]
        return msgspec.json.decode(notes[-1] or b"", type=Note) if notes else None

    def _write(self, note: Note) -> None:
        record = CopiedRecord(0, NOTE_KEY, msgspec.json.encode(note), None, 1)
        self._topics.append(self._copy, note.partitions, [record])

    def _wrong(self, place: str, problem: str) -> CannotReseal:
        return CannotReseal(self._topic, f"the copy of its record {place} is wrong ({problem}): run it again")


def _is_erased(record: CopiedRecord, erased: Mapping[bytes, int]) -> bool:
    return record.key is not None and erased.get(record.key, -1) > record.offset
