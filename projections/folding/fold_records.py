"""Folds records of the log into the rows of compiled views."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, NamedTuple, Protocol

import msgspec
import orjson

from headwater.commands.declaring.lineage_values import evaluate, fits
from headwater.eventlog.heartbeats import AMONG_ROWS, PREFIX, heartbeat_key
from headwater.eventlog.source_positions import topic_and_partition
from headwater.eventlog.topics import EVENTS
from headwater.projections.folding.clear_changes import ClearChanges
from headwater.projections.folding.decoders import Decoders, Older
from headwater.projections.folding.lists import entries
from headwater.projections.folding.program import Program
from headwater.projections.folding.runtime import Unclear
from headwater.projections.table.changes import Absent, RecordPlace, TableReader, envelope_of

Row = list[Any]
Rows = dict[str, Row]
_HEARTBEATS: Final = (PREFIX.encode(), AMONG_ROWS.encode())
UNCLEAR: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, Unclear)
"""What compiled source raises if a record is not as expected."""


class Head(msgspec.Struct, gc=False):
    """The envelope of an event that is as expected; any other is Unclear."""

    specversion: Literal["1.0"]
    id: Annotated[str, msgspec.Meta(min_length=1)]
    type: Annotated[str, msgspec.Meta(min_length=1)]
    subject: Annotated[str, msgspec.Meta(min_length=1)]
    sequence: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    dataversion: int = 0
    data: msgspec.Raw = msgspec.Raw(b"{}")


class Recorded(Protocol):
    """A record, as Kafka's client has it."""

    def offset(self) -> Any:
        """Its offset."""

    def timestamp(self) -> tuple[int, int]:
        """The kind of its time, and milliseconds since 1970."""

    def key(self) -> Any:
        """Bytes, or None."""

    def value(self) -> Any:
        """Bytes; None: a tombstone."""


class UnclearRecord(NamedTuple):
    """A record that compiled source cannot read; only a captured row's may have no value."""

    source: str
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


class Part(NamedTuple):
    """Offsets of one source, the last exclusive."""

    source: str
    start: int
    end: int


@dataclass(frozen=True)
class Times:
    """The times of the records to fold, in milliseconds since 1970; None: without a bound."""

    since_ms: int | None = None
    until_ms: int | None = None

    def has(self, timestamp_ms: int) -> bool:
        """Whether a record of this time is folded."""
        return (self.since_ms is None or timestamp_ms >= self.since_ms) and (
            self.until_ms is None or timestamp_ms < self.until_ms
        )


ALWAYS: Final = Times()


Erased = Mapping[str, Mapping[bytes, int]]
"""By source and key, the offset of the last tombstone."""


class FoldedView:
    """The rows of one view, and the records that its source does not read."""

    def __init__(self, program: Program, decoders: Mapping[str, Any] | None = None) -> None:
        """decoders: the names of compiled decoders; None: it only combines rows."""
        names = program.namespace(decoders or {})
        self.functions: dict[str, Callable[..., None]] = {
            event: names[name] for event, name in program.functions.items()
        }
        self.every: Callable[..., None] | None = names[program.every] if program.every else None
        self._finish: Callable[[Row], Row] = names["finish"]
        self.combine: Callable[[Row, Row], Row] = names["combine"]
        self._lists = program.lists
        self.tables = program.tables
        self.rows: Rows = {}
        self.unclear: list[UnclearRecord] = []
        self.given_up = False

    def give_up(self) -> None:
        """Fold nothing more."""
        self.given_up, self.functions, self.every, self.rows = True, {}, None, {}

    def entries(self) -> int:
        """The number of entries in the lists of all rows, about."""
        return sum(entries(row[at]) for at in self._lists for row in self.rows.values())

    def drain(self) -> Rows:
        """The rows so far, in the form of stores, which are then forgotten."""
        rows, self.rows = self.rows, {}
        for row in rows.values():
            self._finish(row)
        return rows

    def take_in(self, rows: Rows) -> None:
        """Combine rows in the form of stores into such rows."""
        held, combine = self.rows, self.combine
        for key, row in rows.items():
            ours = held.get(key)
            if ours is None:
                held[key] = row
            else:
                combine(ours, row)


_Taker = tuple[Callable[..., None], Rows, int]
"""What folds an event into the rows of a view, and the number of the view."""


class Folder:
    """Folds records into the rows of several views."""

    def __init__(
        self,
        decoders: Decoders,
        programs: Sequence[Program],
        times: Times = ALWAYS,
        erased: Erased | None = None,
        alone: Sequence[Decoders] = (),
    ) -> None:
        """decoders: for all events of `programs`. alone: the decoders of each view alone; empty if there is one."""
        names = decoders.namespace()
        self.folds = [FoldedView(program, names) for program in programs]
        self._programs, self._alone = programs, alone
        self._singles: dict[int, Folder] = {}
        self.tombstones: dict[str, dict[bytes, int]] = {}
        self.events: dict[str, int] = {}
        self._events = {
            event: (names[name], decoders.versions[event], decoders.older.get(event))
            for event, name in decoders.functions.items()
        }
        self._rows = {each for table in decoders.tables.values() for each in (table.row, table.deleted)}
        self._head = msgspec.json.Decoder(Head).decode
        self._tables = decoders.tables
        self._clear = {topic: ClearChanges(table) for topic, table in decoders.tables.items()}
        self._times, self._erased = times, erased or {}

    def add(self, source: str, messages: Sequence[Recorded]) -> None:
        """Fold records of one source, in their order."""
        topic, partition = topic_and_partition(source)
        others = len(messages)
        if topic == EVENTS:
            others = self._add_events(source, partition, messages)
        elif topic in self._tables:
            others = self._add_changes(source, topic, partition, messages)
        self.events[source] = self.events.get(source, 0) + len(messages) - others

    def _add_events(self, source: str, partition: int, messages: Sequence[Recorded]) -> int:
        """Fold events; returns how many of the records are none, or are not to be folded."""
        # one loop with local names, because a call per record costs a sixth of a fold
        decode_head, takers = self._head, self._takers()
        known = {event: (*decoded, takers[event]) for event, decoded in self._events.items()}
        others = [(each.every, each.rows, view) for view, each in enumerate(self.folds) if each.every is not None]
        unknown = (None, 0, None, others)
        times, erased = self._times if self._times != ALWAYS else None, self._erased.get(source)
        left = 0
        for message in messages:
            value = message.value()
            if value is None:
                self._erase(source, message)
                left += 1
                continue
            if times is not None and not times.has(message.timestamp()[1]):
                left += 1
                continue
            if erased and erased.get(message.key() or b"", -1) > message.offset():
                left += 1
                continue
            taken = data = None
            try:
                if not value.isascii():
                    value.decode()  # skipped fields are not checked otherwise
                head = decode_head(value)
                decode, version, older, taken = known.get(head.type, unknown)
                if decode is not None:
                    body: Any = head.data
                    if head.dataversion != version:
                        body = _current(body, head.dataversion, version, older)
                    data = decode(body)
            except UNCLEAR:
                left += self._leave(source, message, taken)
                continue
            for fold, rows, view in taken:
                try:
                    fold(head, data, message, partition, rows)
                except UNCLEAR:
                    self._fold_alone(source, message, view)
        return left

    def _add_changes(self, source: str, topic: str, partition: int, messages: Sequence[Recorded]) -> int:
        """Fold changes of captured or view rows; returns how many of the records are none, or are not to be folded.

        A record that lacks a value which any view reads is left to all of them.
        """
        table, clear, takers = self._tables[topic], self._clear[topic], self._takers()
        times, left = self._times if self._times != ALWAYS else None, 0
        for message in messages:
            key, value, timestamp_ms = message.key(), message.value(), message.timestamp()[1]
            if is_heartbeat(source, key) or (times is not None and not times.has(timestamp_ms)):
                left += 1
                continue
            type_, offset = table.row, message.offset()
            try:
                try:
                    stream, data = clear.key(key), clear.row(value)
                except ClearChanges.UNFIT:
                    type_, stream, data = self._defined(
                        table, RecordPlace(topic, partition, offset, timestamp_ms), message
                    )
            except (*UNCLEAR, ValueError):
                self._leave_change(source, topic, message)
                continue
            head = Head("1.0", f"{source}:{offset}", type_, stream, offset, 1)
            for fold, rows, view in takers.get(type_, ()):
                try:
                    fold(head, data, message, partition, rows)
                except UNCLEAR:
                    self._fold_alone(source, message, view)
        return left

    def _defined(self, table: TableReader, place: RecordPlace, message: Recorded) -> tuple[str, str, Any]:
        """The type, key and data of a change, by its definition; raises what UNCLEAR lists, and ValueError."""
        change = envelope_of(table, place, message.key(), message.value())
        if any(isinstance(each, Absent) for each in change.data.values()):
            raise Unclear(place.topic)
        decode, _, _ = self._events[change.type]
        return change.type, change.stream, decode(orjson.dumps(change.data))

    def _leave_change(self, source: str, topic: str, message: Recorded) -> None:
        for view, each in enumerate(self.folds):
            if topic in each.tables and not each.given_up:
                self._fold_alone(source, message, view)

    def _takers(self) -> dict[str, list[_Taker]]:
        """By event type, what folds it."""
        return {
            event: [
                (fold, each.rows, view)
                for view, each in enumerate(self.folds)
                if (fold := each.functions.get(event, None if is_row else each.every)) is not None
            ]
            for event in self._events
            for is_row in [event in self._rows]
        }

    def _leave(self, source: str, message: Recorded, taken: Sequence[_Taker] | None) -> bool:
        """Leave a record that is not as expected to all views that may handle it; returns whether it is a heartbeat.

        taken: None if it is no event.
        """
        if is_heartbeat(source, message.key()):
            return True
        if taken is not None:
            for _, _, view in taken:
                self._fold_alone(source, message, view)
            return False
        record = _unclear(source, message)
        for each in self.folds:
            if not each.given_up:
                each.unclear.append(record)
        return False

    def _fold_alone(self, source: str, message: Recorded, view: int) -> None:
        """Fold a record for one view with its own decoders: the others may need a field that is not as declared."""
        fold = self.folds[view]
        if not self._alone:
            fold.unclear.append(_unclear(source, message))
            return
        single = self._singles.get(view)
        if single is None:
            single = Folder(self._alone[view], [self._programs[view]], self._times, self._erased)
            self._singles[view] = single
        single.folds[0].rows, single.folds[0].unclear = fold.rows, fold.unclear
        single.add(source, [message])

    def _erase(self, source: str, tombstone: Recorded) -> None:
        key = tombstone.key()
        if key is not None:
            self.tombstones.setdefault(source, {})[key] = tombstone.offset()


def _unclear(source: str, message: Recorded) -> UnclearRecord:
    return UnclearRecord(source, message.offset(), message.timestamp()[1], message.key(), message.value())


def _current(body: msgspec.Raw, version: int, current: int, older: Older | None) -> bytes | msgspec.Raw:
    """The data of an older version in the form of the current one; see `event_data.current_data`."""
    if older is None or not 1 <= version < current:
        raise Unclear(f"version {version}")
    changed = older.changed[version]
    if not changed:
        return body
    data = orjson.loads(memoryview(body))
    if not isinstance(data, dict):
        raise Unclear("data")
    made = dict(data)
    for name, lineage in changed.items():
        value = evaluate(lineage, data)
        made[name] = value if fits(value, older.kinds[name]) else None
    return orjson.dumps(made)


def is_heartbeat(source: str, key: bytes | None) -> bool:
    """Whether a record with this key is a heartbeat of its source."""
    if key is None or not key.startswith(_HEARTBEATS):
        return False
    topic, partition = topic_and_partition(source)
    return key == heartbeat_key(partition, topic).encode()
