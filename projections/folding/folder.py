"""One process's part of a fold: reads ranges of the log, folds them by a compiled view, and hands rows over by key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, NamedTuple, Protocol

import msgspec
import orjson

from commands.declaring.upcasting import evaluate, fits
from projections.folding.compiled import Older, Program
from projections.folding.runtime import Unclear

Row = list[Any]
Rows = dict[str, Row]


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
    """A record that compiled source cannot read."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes


class Part(NamedTuple):
    """Offsets of one partition, the last exclusive."""

    partition: int
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


@dataclass
class Folded:
    """What some parts of the log fold to. tombstones: by partition and key, the offset of the last one."""

    rows: Rows = field(default_factory=dict)
    unclear: list[UnclearRecord] = field(default_factory=list)
    tombstones: dict[int, dict[bytes, int]] = field(default_factory=dict)


Erased = Mapping[int, Mapping[bytes, int]]
"""By partition and key, the offset of the last tombstone."""


class Folder:
    """Folds records into rows by a compiled view."""

    def __init__(self, program: Program, times: Times = ALWAYS, erased: Erased | None = None) -> None:
        names = program.namespace()
        self._functions = {
            event: (names[name], program.versions[event], program.older.get(event))
            for event, name in program.functions.items()
        }
        self._every: Callable[..., None] | None = names[program.every] if program.every else None
        self._finish: Callable[[Row], Row] = names["finish"]
        self._combine: Callable[[Row, Row], Row] = names["combine"]
        self._head = msgspec.json.Decoder(Head).decode
        self._times, self._erased = times, erased or {}
        self.folded = Folded()

    def add(self, partition: int, messages: Sequence[Recorded]) -> None:
        """Fold records of one partition of `events`, in their order."""
        # one loop with local names, because a call per record costs a sixth of a fold
        rows, decode, functions, every = self.folded.rows, self._head, self._functions, self._every
        times, erased = self._times if self._times != ALWAYS else None, self._erased.get(partition)
        for message in messages:
            value = message.value()
            if value is None:
                self._erase(partition, message)
                continue
            timestamp_ms = message.timestamp()[1]
            if times is not None and not times.has(timestamp_ms):
                continue
            if erased and erased.get(message.key() or b"", -1) > message.offset():
                continue
            try:
                if not value.isascii():
                    value.decode()  # skipped fields are not checked otherwise
                head = decode(value)
                event = functions.get(head.type)
                if event is not None:
                    fold, version, older = event
                    body: Any = head.data
                    if head.dataversion != version:
                        body = _current(body, head.dataversion, version, older)
                    fold(head, body, value, partition, message.offset(), timestamp_ms, rows)
                elif every is not None:
                    every(head, None, value, partition, message.offset(), timestamp_ms, rows)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, Unclear):
                key = message.key()
                if not is_heartbeat(partition, key):
                    self.folded.unclear.append(UnclearRecord(partition, message.offset(), timestamp_ms, key, value))

    def _erase(self, partition: int, tombstone: Recorded) -> None:
        key = tombstone.key()
        if key is not None:
            self.folded.tombstones.setdefault(partition, {})[key] = tombstone.offset()

    def rows(self) -> Rows:
        """The rows so far, in the form of stores."""
        for row in self.folded.rows.values():
            self._finish(row)
        return self.folded.rows

    def drain(self) -> Rows:
        """The rows so far, which the folder then forgets."""
        rows, self.folded.rows = self.rows(), {}
        return rows

    def take_in(self, rows: Rows) -> None:
        """Combine finished rows into finished rows."""
        held, combine = self.folded.rows, self._combine
        for key, row in rows.items():
            ours = held.get(key)
            if ours is None:
                held[key] = row
            else:
                combine(ours, row)


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


def is_heartbeat(partition: int, key: bytes | None) -> bool:
    """Whether a record with this key is a heartbeat of its partition."""
    return key == b"heartbeat/%d" % partition
