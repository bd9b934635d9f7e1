"""Folds records of the log into the rows of compiled views, or makes the patches that the live query makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, Literal, NamedTuple, TypeVar

import msgspec
import orjson

from headwater.eventlog.envelope import Envelope
from headwater.eventlog.heartbeats import AMONG_ROWS, PREFIX, heartbeat_key
from headwater.eventlog.source_positions import topic_and_partition
from headwater.eventlog.topics import EVENTS
from headwater.projections.limits import NAMED_LETTERS
from headwater.projections.reading.lists import entries
from headwater.projections.reading.program import OF_EVERY, Decoders, Program
from headwater.projections.reading.records import ClearChanges, Letter, Recorded, event_in
from headwater.projections.reading.runtime import Unclear
from headwater.projections.table.changes import Absent, NotAChange, RecordPlace, envelope_of
from headwater.projections.table.event_data import EventFields, Unreadable, row_data
from headwater.projections.table.expressions import attribute
from headwater.projections.table.json_text import dumps
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import Patch, Place

Row = list[Any]
Rows = dict[str, Row]
_HEARTBEATS: Final = (PREFIX.encode(), AMONG_ROWS.encode())
UNCLEAR: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, Unclear)
"""What compiled source raises if a record is not as declared."""
UNREADABLE: Final = (*UNCLEAR, ValueError, OverflowError)
"""What it may raise of a record that is as declared: a value that no check knows must not end a rebuild."""


class Head(msgspec.Struct, gc=False):
    """The envelope of an event that is as expected; any other is Unclear."""

    specversion: Literal["1.0"]
    id: Annotated[str, msgspec.Meta(min_length=1)]
    type: Annotated[str, msgspec.Meta(min_length=1)]
    subject: Annotated[str, msgspec.Meta(min_length=1)]
    sequence: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    dataversion: int = 0
    data: msgspec.Raw = msgspec.Raw(b"{}")


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


class _View:
    """What is made of the records for one view: rows, or patches.

    functions: by event type. every: that of all other events, if the view handles these. made: rows, or patches.
    letters: of records that it cannot read. poison: their number, also of those that are not named.
    """

    def __init__(self, program: Program, names: Mapping[str, Any], word: str, made: Any) -> None:
        """names: those of the compiled source. word: that its functions begin with."""
        self.required = program.required
        self.functions: dict[str, Callable[..., None]] = {
            event: names[f"{word}_{number}"] for event, number in program.events.items()
        }
        self.every: Callable[..., None] | None = names[f"{word}_{OF_EVERY}"] if program.handles_every else None
        self.tables = program.tables
        self.made = made
        self.letters: list[Letter] = []
        self.poison = 0

    def refuse(self, source: str, message: Recorded, reason: str) -> None:
        """Note a record that the view cannot read."""
        self.poison += 1
        self.letters.append(Letter.of(source, message, reason))


class FoldedView(_View):
    """The rows of one view."""

    made: Rows

    def __init__(self, program: Program, decoders: Mapping[str, Any] | None = None) -> None:
        """decoders: the names of compiled decoders; None: it only combines rows."""
        names = program.namespace(program.folding, decoders or {})
        super().__init__(program, names, "fold", {})
        self._finish: Callable[[Row], Row] = names["finish"]
        self.combine: Callable[[Row, Row], Row] = names["combine"]
        self._lists = program.lists

    def refuse(self, source: str, message: Recorded, reason: str) -> None:
        if len(self.letters) < NAMED_LETTERS:
            super().refuse(source, message, reason)
        else:
            self.poison += 1

    def entries(self) -> int:
        """The number of entries in the lists of all rows, about."""
        return sum(entries(row[at]) for at in self._lists for row in self.made.values())

    def drain(self) -> Rows:
        """The rows so far, in the form of stores, which are then forgotten."""
        rows, self.made = self.made, {}
        for row in rows.values():
            self._finish(row)
        return rows

    def take_in(self, rows: Rows) -> None:
        """Combine rows in the form of stores into such rows."""
        held, combine = self.made, self.combine
        for key, row in rows.items():
            ours = held.get(key)
            if ours is None:
                held[key] = row
            else:
                combine(ours, row)


class LiftedView(_View):
    """The patches of one view."""

    made: list[tuple[Recorded, str, int, State]]

    def __init__(self, program: Program, decoders: Mapping[str, Any]) -> None:
        super().__init__(program, program.namespace(program.lifting, decoders), "lift", [])

    def drain(self, source: str) -> list[tuple[Recorded, Patch]]:
        """The patches so far, of records of this source, which are then forgotten; each with its record."""
        patches_done, self.made = self.made, []
        return [
            (record, Patch(key, source, Place(record.offset(), number), fields))
            for record, key, number, fields in patches_done
        ]


_Taker = tuple[Callable[..., None], Any, int]
"""What reads an event for a view, what it changes, and the number of the view."""
ViewKind = TypeVar("ViewKind", bound=_View)


class Folder(Generic[ViewKind]):
    """Reads records for several views.

    Records that are as declared are read by compiled source, once for all views. All others, which are few, are read
    again for each view alone, value by value.
    """

    def __init__(
        self,
        kind: Callable[[Program, Mapping[str, Any]], ViewKind],
        decoders: Decoders,
        programs: Sequence[Program],
        times: Times = ALWAYS,
        erased: Erased | None = None,
        alone: Sequence[Decoders] = (),
    ) -> None:
        """kind: FoldedView or LiftedView. decoders: for all events. alone: of each program; empty if it is one."""
        names = decoders.namespace()
        self.views = [kind(program, names) for program in programs]
        self._kind, self._programs, self._alone = kind, programs, alone
        self._singles: dict[int, Folder[ViewKind]] = {}
        self.tombstones: dict[str, dict[bytes, int]] = {}
        self.events: dict[str, int] = {}
        self._events = {
            event: (names[f"data_{attribute(fields.type)}_of"], fields.version, fields)
            for event, fields in decoders.events.items()
        }
        self._rows = {column for table in decoders.tables.values() for column in (table.row, table.deleted)}
        self._head = msgspec.json.Decoder(Head).decode
        self._tables = decoders.tables
        self._clear = {topic: ClearChanges(table) for topic, table in decoders.tables.items()}
        self._times, self._erased = times, erased or {}

    def add(self, source: str, messages: Sequence[Recorded]) -> None:
        """Read records of one source, in their order."""
        topic, partition = topic_and_partition(source)
        others = len(messages)
        if topic == EVENTS:
            others = self._add_events(source, partition, messages)
        elif topic in self._tables:
            others = self._add_changes(source, topic, partition, messages)
        self.events[source] = self.events.get(source, 0) + len(messages) - others

    def _add_events(self, source: str, partition: int, messages: Sequence[Recorded]) -> int:
        """Read events; returns how many of the records are none, or are not to be read."""
        # one loop with local names, because a call per record costs a sixth of a fold
        decode_head, takers = self._head, self._takers()
        known = {event: (*decoded, takers[event]) for event, decoded in self._events.items()}
        others = [
            (program.every, program.made, view) for view, program in enumerate(self.views) if program.every is not None
        ]
        unknown: tuple[Any, int, Any, list[_Taker]] = (None, 0, None, others)
        times, erased = self._times if self._times != ALWAYS else None, self._erased.get(source)
        left = 0
        for message in messages:
            value = message.value()
            if value is None:
                if (key := message.key()) is not None:
                    self.tombstones.setdefault(source, {})[key] = message.offset()
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
                decode, version, fields, taken = known.get(head.type, unknown)
                if decode is not None:
                    body: Any = head.data
                    if head.dataversion != version:
                        body = _current(body, head.dataversion, fields)
                    data = decode(body)
            except UNCLEAR:
                left += self._leave(source, message, taken)
                continue
            for read, patches_now, view in taken:
                try:
                    read(head, data, message, partition, patches_now)
                except UNCLEAR:
                    self._read_alone(source, message, view)
        return left

    def _add_changes(self, source: str, topic: str, partition: int, messages: Sequence[Recorded]) -> int:
        """Read changes of captured or view rows; returns how many of the records are none, or are not to be read."""
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
                    change = envelope_of(table, RecordPlace(topic, partition, offset, timestamp_ms), key, value)
                    if any(isinstance(item, Absent) for item in change.data.values()):
                        raise Unclear(topic) from None
                    type_, stream = change.type, change.stream
                    data = self._events[type_][0](dumps(change.data).encode())
            except (*UNCLEAR, NotAChange):
                for view, program in enumerate(self.views):
                    if topic in program.tables:
                        self._read_alone(source, message, view)
                continue
            head = Head("1.0", f"{source}:{offset}", type_, stream, offset, 1)
            for read, patches_now, view in takers.get(type_, ()):
                try:
                    read(head, data, message, partition, patches_now)
                except UNCLEAR:
                    self._read_alone(source, message, view)
        return left

    def _takers(self) -> dict[str, list[_Taker]]:
        """By event type, what reads it."""
        return {
            event: [
                (read, program.made, view)
                for view, program in enumerate(self.views)
                if (read := program.functions.get(event, None if is_row else program.every)) is not None
            ]
            for event in self._events
            for is_row in [event in self._rows]
        }

    def _leave(self, source: str, message: Recorded, taken: Sequence[_Taker] | None) -> bool:
        """Read a record that is not as declared for all views that may handle it; returns whether it is a heartbeat.

        taken: None if it is no event, or none that is as declared.
        """
        if is_heartbeat(source, message.key()):
            return True
        for view in range(len(self.views)) if taken is None else [view for _, _, view in taken]:
            self._read_alone(source, message, view)
        return False

    def _read_alone(self, source: str, message: Recorded, view: int) -> None:
        """Read a record for one view: the others may need a field that is not as declared."""
        read = self.views[view]
        single: Folder[ViewKind] = self
        if self._alone:
            if view not in self._singles:
                self._singles[view] = Folder(self._kind, self._alone[view], [self._programs[view]])
            single = self._singles[view]
            single.views[0].made = read.made
        topic, partition = topic_and_partition(source)
        try:
            if topic == EVENTS:
                envelope = event_in(message)
            else:
                place = RecordPlace(topic, partition, message.offset(), message.timestamp()[1])
                envelope = envelope_of(single._tables[topic], place, message.key(), message.value())
            single.take(topic, partition, envelope, message)
        except UNREADABLE as error:
            named = isinstance(error, Unreadable | NotAChange)
            reason = str(error) if named else f"it cannot be read: {type(error).__name__}: {error}"
            read.refuse(source, message, reason)

    def take(self, topic: str, partition: int, envelope: Envelope, message: Recorded) -> None:
        """Read an event or a change for one view, value by value; raises Unreadable."""
        (view,), data = self.views, None
        read = view.functions.get(envelope.type, view.every if topic == EVENTS else None)
        if read is None:
            return
        head = Head("1.0", envelope.id, envelope.type, envelope.stream, envelope.sequence, envelope.data_version)
        known = self._events.get(envelope.type)
        try:
            if known is not None:
                decode, _, fields = known
                if topic == EVENTS:
                    data = decode(dumps(fields.read(envelope, view.required[envelope.type])).encode())
                else:
                    row = row_data(envelope.type, fields.kinds, envelope)
                    if any(row.get(name) is Absent.UNCHANGED for name in fields.kinds):
                        return  # another record of the row follows
                    data = decode(dumps(row).encode())
            read(head, data, message, partition, view.made)
        except Unreadable:
            raise
        except UNREADABLE as error:
            raise Unreadable(f'"{envelope.type}" cannot be read: {type(error).__name__}: {error}') from error


def _current(body: msgspec.Raw, version: int, fields: EventFields) -> bytes | msgspec.Raw:
    """The data of an older version in the form of the current one."""
    if not 1 <= version < fields.version:
        raise Unclear(f"version {version}")
    if version not in fields.older:
        return body
    data = orjson.loads(memoryview(body))
    if not isinstance(data, dict):
        raise Unclear("data")
    try:
        return orjson.dumps(fields.upcast(data, version))
    except (Unreadable, TypeError) as error:
        raise Unclear(f"version {version}") from error


def is_heartbeat(source: str, key: bytes | None) -> bool:
    """Whether a record with this key is a heartbeat of its source."""
    if key is None or not key.startswith(_HEARTBEATS):
        return False
    topic, partition = topic_and_partition(source)
    return key == heartbeat_key(partition, topic).encode()
