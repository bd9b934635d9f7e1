"""Folds streams again from their events if their snapshots do not match the state as it is declared now."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, TypeVar

import orjson

from headwater.commands.codec import fold, has_shape, read_snapshot, snapshot_time_us, write_snapshot
from headwater.commands.declaring.registry import AnyAggregate
from headwater.commands.local_state.state import StateStore
from headwater.eventlog import topics
from headwater.eventlog.envelope import decode, timestamp_us
from headwater.eventlog.errors import KeysUnavailable
from headwater.eventlog.hidden_values import places_of_error
from headwater.eventlog.limits import MAX_ENTRY_BYTES
from headwater.eventlog.ports import EventLog, Record

Item = TypeVar("Item")

CHUNK_RECORDS: Final = 5_000
"""Records in memory at once, and per write to the store."""
PROGRESS_S: Final = 10.0
"""Seconds between two log lines about the progress."""
LOGGED_FAILURES: Final = 10
"""This many streams that cannot be folded are logged with their errors; a failing rule may fail for all streams."""

# In the store, instead of a snapshot: the events are not folded yet, or could not be folded. It begins with a byte
# that no JSON begins with; then a version, 0 if unknown; then the state folded so far, as a snapshot. The version is
# that of the snapshot in the log, where the stream ends; of a stream whose snapshot is missing, it is the lowest that
# the stream can have.
_WAITING, _FAILED, _MISSING, _MISSING_FAILED = b"\x00", b"\x01", b"\x02", b"\x03"
_TO_FOLD: Final = {_WAITING: _WAITING, _FAILED: _WAITING, _MISSING: _MISSING, _MISSING_FAILED: _MISSING}

UNWRITTEN: Final = "unwritten:"
"""In the store, a "snapshot" with the key `unwritten:/<stream>` says that the log does not have the folded state of the
stream. No aggregate has this name.
"""
COUNTED: Final = "streams"
"""Position in the store: how many streams it has."""

logger = logging.getLogger(__name__)


def waiting(snapshot: bytes = b"") -> bytes:
    """The store's value of a stream whose events are to be folded; snapshot: the one that cannot be read."""
    return _WAITING + version_in(snapshot).to_bytes(8, "big")


def missing(*known: bytes | None) -> bytes:
    """The store's value of a stream that has no snapshot in the log; known: earlier snapshots, or values like this."""
    return _MISSING + max((version_in(record) for record in known if record is not None), default=0).to_bytes(8, "big")


def is_snapshot(value: bytes | None) -> bool:
    """Whether a value of the store is a snapshot, not a mark."""
    return value is not None and value[:1] not in _TO_FOLD


def chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    """`items` in lists of at most CHUNK_RECORDS."""
    rest = iter(items)
    while chunk := list(islice(rest, CHUNK_RECORDS)):
        yield chunk


class Refolding:
    """A scan of a partition's events, for streams whose snapshots cannot be read, or are missing.

    A stream ends at the version of its last snapshot, which was written in one transaction with its last event. So no
    version is used twice, even if the last events of a stream were erased. A stream without a snapshot ends at its last
    event. A gap is not an error, because the tombstones of erased events are compacted. Only the store remembers what
    was folded, so memory use is small; an interrupted scan starts again with the unfinished streams.

    Erased events are excluded, whether or not they are compacted. A tombstone comes after its event, so if the scan
    finds one of a stream that it folds, these streams are folded once more.
    """

    def __init__(
        self,
        log: EventLog,
        partition: int,
        store: StateStore,
        aggregates: Mapping[str, AnyAggregate],
        end: int,
        *,
        complete: bool = False,
    ) -> None:
        """aggregates: those whose streams are folded, by name. end: the offset after the last event to fold.

        complete: also streams that the store does not have.
        """
        self._end = end
        self._log, self._partition, self._store, self._aggregates = log, partition, store, aggregates
        self._complete = complete
        self._erased: set[str] = set()
        """Keys of erased events of the streams that are folded."""
        self._left = 0
        self.folded = 0
        self.failed: dict[str, int] = {}
        """How many streams could not be folded, by aggregate."""

    def run(self, stopped: Callable[[], bool]) -> bool:
        """Fold what can be folded; returns whether the scan was completed before `stopped`."""
        for aggregate in self._aggregates.values():
            self._left += self._mark(aggregate)
        if not self._left and not self._complete:
            return True
        if self._left:
            names = ", ".join(f'"{name}"' for name in self._aggregates)
            logger.warning(
                "partition %d: %d snapshots of %s cannot be read; folding their streams from the events",
                self._partition, self._left, names,
            )  # fmt: skip
        if self._complete:
            logger.info("partition %d: looking in the events for streams without snapshots", self._partition)
        while True:
            known = len(self._erased)
            if not self._scan(stopped):
                return False
            if len(self._erased) == known or not self._mark_erased():
                break
        self.failed = {name: number for name, number in self.failed.items() if number}
        for name, number in self.failed.items():
            logger.error(
                'partition %d: %d streams of "%s" cannot be folded, so their commands fail: fix the code and start the '
                "handlers again",
                self._partition, number, name,
            )  # fmt: skip
        return True

    def _scan(self, stopped: Callable[[], bool]) -> bool:
        progress = _Progress(self._partition, self._log.first(topics.EVENTS, self._partition), self._end)
        for chunk in chunks(self._log.read(topics.EVENTS, self._partition, 0, self._end)):
            self._take(chunk)
            progress.report(chunk[-1].offset + 1, self._left)
            if stopped():
                return False
        for aggregate in self._aggregates.values() if self._left else ():
            self._finish(aggregate)
        return True

    def _mark(self, aggregate: AnyAggregate) -> int:
        """Mark all streams to fold, including failed and unfinished ones; returns their number."""
        number = 0
        for chunk in chunks(self._store.snapshots(aggregate.name)):
            marked: dict[str, bytes | None] = {}
            for stream, value in chunk:
                if not is_snapshot(value):
                    marked[stream] = _TO_FOLD[value[:1]] + value[1:9]
                elif not has_shape(aggregate, value):
                    marked[stream] = waiting(value)
            number += len(marked)
            self._store.apply(marked, {}, {})
        return number

    def _mark_erased(self) -> int:
        """Mark the streams that were folded with erased events, or failed at one; returns their number."""
        marked: dict[str, bytes | None] = {}
        for stream in {key.rpartition("/")[0] for key in self._erased}:
            value = self._store.snapshot(stream) or b""
            if value[:1] in (_FAILED, _MISSING_FAILED):
                marked[stream] = _TO_FOLD[value[:1]] + value[1:9]
                self.failed[stream.partition("/")[0]] -= 1
            elif self._is_folded(stream):
                marked[stream] = waiting(value)
                self.folded -= 1
        self._store.apply(marked, {}, {})
        self._left += len(marked)
        return len(marked)

    def _is_folded(self, stream: str) -> bool:
        """Whether a stream was folded in this scan, or in one that was interrupted."""
        return self._store.snapshot(f"{UNWRITTEN}/{stream}") is not None

    def _take(self, records: list[Record]) -> None:
        streams: dict[str, _Stream | None] = {}
        unknown: dict[str, bytes | None] = {}
        for record in records:
            stream, _, version = record.key.rpartition("/")
            if not version.isdecimal() or "/" not in stream:
                continue
            aggregate = self._aggregates.get(stream.partition("/")[0])
            if stream not in streams:
                streams[stream] = self._stream(stream, aggregate, unknown)
            stream_fold = streams[stream]
            if record.value is None and aggregate is not None:
                mark = b"" if stream_fold else (self._store.snapshot(stream) or b"")[:1]
                if stream_fold or mark in (_FAILED, _MISSING_FAILED) or self._is_folded(stream):
                    self._erased.add(record.key)
            if stream_fold is None or stream_fold.failed:
                continue
            try:
                stream_fold.take(int(version), record, is_erased=record.key in self._erased)
            except KeysUnavailable:
                raise  # the stream can be folded once the keys can be read
            except Exception as error:  # noqa: BLE001 - of a user's rules as well
                self._fail(stream_fold, stream, f"{self._partition}:{record.offset}", error)
        self._write(streams, ended=False, unknown=unknown)

    def _stream(self, stream: str, aggregate: AnyAggregate | None, unknown: dict[str, bytes | None]) -> _Stream | None:
        """The fold of a stream, if it is to be folded; one that the store does not have is added to `unknown`."""
        if aggregate is None and not self._complete:
            return None
        value = self._store.snapshot(stream)
        if value is None and self._complete:
            value = unknown[stream] = missing()  # of an unknown aggregate, it waits until that is declared
            self._left += aggregate is not None
        return None if aggregate is None else _Stream.of(aggregate, stream, value)

    def _finish(self, aggregate: AnyAggregate) -> None:
        """End all unfinished streams: the scan found no more events."""
        for chunk in chunks(self._store.snapshots(aggregate.name)):
            self._write({stream: _Stream.of(aggregate, stream, value) for stream, value in chunk}, ended=True)

    def _write(
        self,
        streams: Mapping[str, _Stream | None],
        ended: bool,
        unknown: Mapping[str, bytes | None] = MappingProxyType({}),
    ) -> None:
        values = dict(unknown)
        counted = len(unknown)
        for stream, stream_fold in streams.items():
            if stream_fold is None:
                continue
            complete = ended or stream_fold.is_complete
            if ended and stream_fold.is_unheard_of:
                values[stream] = None
                counted -= 1
                self._left -= 1
                continue
            try:
                values[stream] = stream_fold.snapshot() if complete and not stream_fold.failed else stream_fold.mark()
            except KeysUnavailable:
                raise
            except Exception as error:  # noqa: BLE001 - a state that cannot be written, or not be read again
                self._fail(stream_fold, stream, f"version {stream_fold.version}", error)
                values[stream] = stream_fold.mark()
            if complete and not stream_fold.failed:
                self._left -= 1
                self.folded += 1
                if fits(stream, values[stream]):
                    values[f"{UNWRITTEN}/{stream}"] = b""
        positions = {COUNTED: self._store.position(COUNTED) + counted} if counted else {}
        self._store.apply(values, {}, positions)

    def _fail(self, stream_fold: _Stream, stream: str, place: str, error: Exception) -> None:
        stream_fold.failed = True
        self._left -= 1
        name = stream_fold.aggregate.name
        self.failed[name] = self.failed.get(name, 0) + 1
        if self.failed[name] <= LOGGED_FAILURES:
            if stream_fold.aggregate.is_personal:
                logger.error('"%s" cannot be folded at %s\n%s', stream, place, places_of_error(error))
            else:
                logger.error('"%s" cannot be folded at %s', stream, place, exc_info=error)


class _Stream:
    """A stream that is being folded."""

    def __init__(self, aggregate: AnyAggregate, name: str, target: int, folded: bytes, *, is_missing: bool) -> None:
        """target: the version to reach; if the snapshot is missing, the lowest one; 0 if unknown.

        name: such as `listing/L1`. folded: its snapshot so far, or empty.
        """
        self.aggregate, self._name, self.target, self._folded = aggregate, name, target, folded
        self._is_missing = is_missing
        self.state: Any = aggregate.initial
        self.version = self.time_us = 0
        self.failed = False

    @classmethod
    def of(cls, aggregate: AnyAggregate, name: str, value: bytes | None) -> _Stream | None:
        """The stream with this name of a value of the store; None if it is not a stream to fold."""
        if value is None or value[:1] not in (_WAITING, _MISSING):
            return None
        return cls(aggregate, name, int.from_bytes(value[1:9], "big"), value[9:], is_missing=value[:1] == _MISSING)

    @property
    def is_complete(self) -> bool:
        """Whether it has all events of the snapshot in the log."""
        return not self._is_missing and 0 < self.target <= self.version

    @property
    def is_unheard_of(self) -> bool:
        """Whether neither a snapshot nor an event is left."""
        return self._is_missing and not self.failed and not (self.target or self.version or self._folded)

    def take(self, version: int, record: Record, *, is_erased: bool) -> None:
        """Fold an event, or count an erased one or a tombstone; raises whatever a rule raises."""
        self._load()
        if self.is_complete:
            return  # its owner wrote only versions up to the snapshot's
        if record.value is not None and not is_erased:
            event = decode(record.value)
            self.state, self.version = fold(self.aggregate, [event], self.state, self.version)
            self.time_us = max(self.time_us, timestamp_us(event.time))
        elif self._is_missing or not self.target:  # an erased event counts, so that its version is not used again
            self.version = max(self.version, version)

    def mark(self) -> bytes:
        """Its value in the store; raises if its state cannot be written."""
        target = self.target.to_bytes(8, "big")
        if self.failed:
            return (_MISSING_FAILED if self._is_missing else _FAILED) + target
        self._load()
        kind = _MISSING if self._is_missing else _WAITING
        return kind + target + (self._written(self.version) if self.version else b"")

    def snapshot(self) -> bytes:
        """Its snapshot, which can be read; raises if there is none, or if nothing is known of the stream."""
        self._load()
        value = self._written(max(self.version, self.target))
        read_snapshot(self.aggregate, value)
        return value

    def _load(self) -> None:
        folded, self._folded = self._folded, b""
        if folded:
            self.state, self.version = read_snapshot(self.aggregate, folded)
            self.time_us = snapshot_time_us(folded)

    def _written(self, version: int) -> bytes:
        return write_snapshot(self.aggregate, self.state, version, self.time_us, stream=self._name)


class _Progress:
    """Logs the progress of a scan."""

    def __init__(self, partition: int, first: int, end: int) -> None:
        self._partition, self._first, self._end = partition, first, end
        self._started = time.monotonic()
        self._next = self._started + PROGRESS_S

    def report(self, offset: int, left: int) -> None:
        """Log the progress, if the last line is long ago."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + PROGRESS_S
        done, whole = offset - self._first, max(1, self._end - self._first)
        logger.info(
            "partition %d: folding from the events: %d %% (%d of %d offsets, %.0f per second), %d streams left",
            self._partition, 100 * done // whole, done, whole, done / (now - self._started), left,
        )  # fmt: skip


def version_in(value: bytes) -> int:
    """The version of a snapshot whose state cannot be read, or of a mark; 0 if unknown."""
    if value[:1] in _TO_FOLD:
        return int.from_bytes(value[1:9], "big")
    try:
        version = orjson.loads(value)["version"]
    except (orjson.JSONDecodeError, KeyError, TypeError, IndexError):
        return 0
    return version if type(version) is int and 0 < version < 2**63 else 0


def fits(stream: str, snapshot: bytes | None) -> bool:
    """Whether a folded state fits in a record; a larger one is folded again on every disk, and takes no command."""
    return len(snapshot or b"") + len(stream.encode(errors="surrogateescape")) <= MAX_ENTRY_BYTES
