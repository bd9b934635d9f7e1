"""Folds streams again from their events if their snapshots do not match the state as it is declared now."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeVar

import orjson

from commands.codec import fold, read_snapshot, snapshot_time_ms, write_snapshot
from commands.declaring.registry import AnyAggregate
from commands.local_state.state import StateStore
from eventlog import topics
from eventlog.envelope import decode
from eventlog.ports import EventLog, Record

Item = TypeVar("Item")

CHUNK_RECORDS: Final = 5_000
"""Records in memory at once, and per write to the store."""
PROGRESS_S: Final = 10.0
"""Seconds between two log lines about the progress."""
LOGGED_FAILURES: Final = 10
"""This many streams that cannot be folded are logged with their errors; a failing rule may fail for all streams."""

# In the store, instead of a snapshot: the events are not folded yet, or could not be folded. It begins with a byte
# that no JSON begins with; then the version of the snapshot in the log, 0 if unknown; then the state folded so far,
# as a snapshot.
_WAITING, _FAILED = b"\x00", b"\x01"

logger = logging.getLogger(__name__)


def waiting(snapshot: bytes = b"") -> bytes:
    """The store's value of a stream whose events are to be folded; snapshot: the one that cannot be read."""
    return _WAITING + _version_in(snapshot).to_bytes(8, "big")


def chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    """`items` in lists of at most CHUNK_RECORDS."""
    rest = iter(items)
    while chunk := list(islice(rest, CHUNK_RECORDS)):
        yield chunk


class Refolding:
    """One scan of a partition's events, for the streams of some aggregates whose snapshots cannot be read.

    A stream ends at the version of its last snapshot, which was written in one transaction with its last event. So no
    version is used twice, even if the last events of a stream were erased. A gap is not an error, because the
    tombstones of erased events are compacted. Only the store remembers what was folded, so memory use is small; an
    interrupted scan starts again with the unfinished streams.
    """

    def __init__(
        self, log: EventLog, partition: int, store: StateStore, aggregates: Mapping[str, AnyAggregate]
    ) -> None:
        """aggregates: those whose streams are folded, by name."""
        self._log, self._partition, self._store, self._aggregates = log, partition, store, aggregates
        self._left = 0
        self.folded = 0
        self.failed: dict[str, int] = {}
        """How many streams could not be folded, by aggregate."""

    def run(self, stopped: Callable[[], bool]) -> bool:
        """Fold what can be folded; returns whether the scan was completed before `stopped`."""
        for aggregate in self._aggregates.values():
            self._left += self._mark(aggregate)
        if not self._left:
            return True
        names = ", ".join(f'"{name}"' for name in self._aggregates)
        logger.warning(
            "partition %d: %d snapshots of %s cannot be read; folding their streams from the events",
            self._partition, self._left, names,
        )  # fmt: skip
        end = self._log.end(topics.EVENTS, self._partition)
        progress = _Progress(self._partition, self._log.first(topics.EVENTS, self._partition), end)
        for chunk in chunks(self._log.read(topics.EVENTS, self._partition, 0, end)):
            self._take(chunk)
            progress.report(chunk[-1].offset + 1, self._left)
            if stopped():
                return False
            if not self._left:
                break
        for aggregate in self._aggregates.values() if self._left else ():
            self._finish(aggregate)
        for name, number in self.failed.items():
            logger.error(
                'partition %d: %d streams of "%s" cannot be folded, so their commands fail: fix the code and start the '
                "handlers again",
                self._partition, number, name,
            )  # fmt: skip
        return True

    def _mark(self, aggregate: AnyAggregate) -> int:
        """Mark all streams to fold, including failed and unfinished ones; returns their number."""
        number = 0
        readable = b'"shape":"%b"' % aggregate.shape.encode()
        for chunk in chunks(self._store.snapshots(aggregate.name)):
            marked: dict[str, bytes | None] = {}
            for stream, value in chunk:
                if value[:1] in (_WAITING, _FAILED):
                    marked[stream] = _WAITING + value[1:9]
                elif value.find(readable, 0, 64) < 0:  # written after the version
                    marked[stream] = waiting(value)
            number += len(marked)
            self._store.apply(marked, {}, {})
        return number

    def _take(self, records: list[Record]) -> None:
        streams: dict[str, _Stream | None] = {}
        for record in records:
            stream, _, version = record.key.rpartition("/")
            aggregate = self._aggregates.get(stream.partition("/")[0])
            if aggregate is None or not version.isdecimal():
                continue
            if stream not in streams:
                streams[stream] = _Stream.waiting(aggregate, self._store.snapshot(stream))
            stream_fold = streams[stream]
            if stream_fold is None or stream_fold.failed:
                continue
            try:
                stream_fold.take(int(version), record)
            except Exception as error:  # noqa: BLE001 - of a user's rules as well
                self._fail(stream_fold, stream, f"{self._partition}:{record.offset}", error)
        self._write(streams, ended=False)

    def _finish(self, aggregate: AnyAggregate) -> None:
        """The remaining streams have no more events: the last ones were erased, or the snapshot had no version."""
        for chunk in chunks(self._store.snapshots(aggregate.name)):
            self._write({stream: _Stream.waiting(aggregate, value) for stream, value in chunk}, ended=True)

    def _write(self, streams: Mapping[str, _Stream | None], ended: bool) -> None:
        values: dict[str, bytes | None] = {}
        for stream, stream_fold in streams.items():
            if stream_fold is None:
                continue
            complete = ended or stream_fold.is_complete
            try:
                values[stream] = stream_fold.snapshot() if complete and not stream_fold.failed else stream_fold.marker()
            except Exception as error:  # noqa: BLE001 - a state that cannot be written, or not be read again
                self._fail(stream_fold, stream, f"version {stream_fold.version}", error)
                values[stream] = stream_fold.marker()
            if complete and not stream_fold.failed:
                self._left -= 1
                self.folded += 1
        self._store.apply(values, {}, {})

    def _fail(self, stream_fold: _Stream, stream: str, place: str, error: Exception) -> None:
        stream_fold.failed = True
        self._left -= 1
        name = stream_fold.aggregate.name
        self.failed[name] = self.failed.get(name, 0) + 1
        if self.failed[name] <= LOGGED_FAILURES:
            logger.error('"%s" cannot be folded at %s', stream, place, exc_info=error)


class _Stream:
    """A stream that is being folded."""

    def __init__(self, aggregate: AnyAggregate, target: int, folded: bytes) -> None:
        """target: the version to reach; 0 if unknown. folded: its snapshot so far, or empty."""
        self.aggregate, self.target, self._folded = aggregate, target, folded
        self.state: Any = aggregate.initial
        self.version = self.time_ms = 0
        self.failed = False

    @classmethod
    def waiting(cls, aggregate: AnyAggregate, value: bytes | None) -> _Stream | None:
        """The stream of `value`; None if it is not a stream to fold."""
        if value is None or value[:1] != _WAITING:
            return None
        return cls(aggregate, int.from_bytes(value[1:9], "big"), value[9:])

    @property
    def is_complete(self) -> bool:
        """Whether it has all events of the snapshot in the log."""
        return 0 < self.target <= self.version

    def take(self, version: int, record: Record) -> None:
        """Fold an event, or its tombstone; raises whatever a rule raises."""
        self._load()
        if self.is_complete:
            return  # its owner wrote only versions up to the snapshot's
        if record.value is not None:
            self.state, self.version = fold(self.aggregate, [decode(record.value)], self.state, self.version)
            self.time_ms = max(self.time_ms, record.timestamp_ms)
        elif not self.target:  # an erased event counts, so that its version is not used again
            self.version = max(self.version, version)

    def marker(self) -> bytes:
        """Its value in the store; raises if its state cannot be written."""
        target = self.target.to_bytes(8, "big")
        if self.failed:
            return _FAILED + target
        self._load()
        return _WAITING + target + (self._written(self.version) if self.version else b"")

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
            self.time_ms = snapshot_time_ms(folded)

    def _written(self, version: int) -> bytes:
        return write_snapshot(self.aggregate, self.state, version, self.time_ms)


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


def _version_in(snapshot: bytes) -> int:
    """The version of a snapshot whose state cannot be read; 0 if unknown."""
    try:
        version = orjson.loads(snapshot)["version"]
    except (orjson.JSONDecodeError, KeyError, TypeError, IndexError):
        return 0
    return version if type(version) is int and 0 < version < 2**63 else 0
