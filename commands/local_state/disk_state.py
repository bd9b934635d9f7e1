"""A partition's state on the local disk, in a RocksDB database; memory use does not grow with the number of streams."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Self, cast

import orjson
from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    WriteBatch,
    WriteBufferManager,
)

from headwater.commands.errors import LocalStateError

DAY_MS = 24 * 60 * 60 * 1000
MAX_STEP_MS = DAY_MS // 4
"""The most that one reading of the clock may add. It is read every second, so a longer step is a changed clock."""
MARGIN_MS = 2 * DAY_MS
"""Added to the promised time; it covers eight forward changes of the clock. The topic `receipts` has it too."""


@dataclass(slots=True)
class Periods:
    """Numbered periods; new receipts belong to the latest one, and an old period is deleted as a whole.

    Time is counted in `age_ms`, which grows with the clock by at most MAX_STEP_MS per step, and never decreases. So
    neither a clock that jumps nor a changed setting makes new receipts look old, and time without a running process
    counts little. A period is deleted `length_ms` plus a margin after the next period began.

    begun: number and age at the beginning of each kept period, in order; there is at least one.
    """

    age_ms: int = 0
    time_ms: int = 0
    begun: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])

    @property
    def numbers(self) -> list[int]:
        """The kept periods, the latest first."""
        return [number for number, _ in reversed(self.begun)]

    def advance(self, time_ms: int, length_ms: int) -> bool:
        """Set the time to `time_ms`, since 1970; returns whether a period began or was deleted."""
        if self.time_ms:
            self.age_ms += min(max(0, time_ms - self.time_ms), MAX_STEP_MS)
        self.time_ms = time_ms
        changed = False
        number, since_ms = self.begun[-1]
        if self.age_ms - since_ms >= length_ms:
            self.begun.append((number + 1, self.age_ms))
            changed = True
        while len(self.begun) > 1 and self.age_ms - self.begun[1][1] >= length_ms + MARGIN_MS:
            del self.begun[0]
            changed = True
        return changed

    def to_json(self) -> bytes:
        """The input of `from_json`."""
        return orjson.dumps({"age_ms": self.age_ms, "time_ms": self.time_ms, "begun": self.begun})

    @classmethod
    def from_json(cls, value: bytes | None) -> Self:
        """The stored periods; new ones if there are none."""
        if value is None:
            return cls()
        document = orjson.loads(value)
        return cls(document["age_ms"], document["time_ms"], [(number, age) for number, age in document["begun"]])


MAX_AGE_MS = 3 * DAY_MS
"""An older copy may have missed the deletion of a key, because compaction keeps a tombstone for some days only."""
LOW_WATER_BYTES = 256 * 1024 * 1024
"""The free space that is required: for the largest batch, and RocksDB's files during a compaction."""

_SNAPSHOT, _RECEIPT, _POSITION = b"s", b"r", b"p"
_ORIGIN, _PERIODS = b"origin", b"periods"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DiskBudget:
    """Memory shared by all databases of one process. Sizes in bytes.

    cache: of read blocks, with their indexes and filters. buffers: of data that is not yet in files.
    """

    cache: Cache = field(default_factory=lambda: Cache(64 * 1024 * 1024))
    buffers: WriteBufferManager = field(default_factory=lambda: WriteBufferManager(64 * 1024 * 1024, False))

    def options(self) -> Options:
        """The options of one database."""
        table = BlockBasedOptions()
        table.set_block_cache(self.cache)
        table.set_cache_index_and_filter_blocks(True)
        table.set_bloom_filter(10, False)
        table.set_format_version(5)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(table)
        options.set_write_buffer_manager(self.buffers)
        options.set_write_buffer_size(16 * 1024 * 1024)
        options.set_max_total_wal_size(64 * 1024 * 1024)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_max_background_jobs(2)
        options.set_max_open_files(256)
        options.set_keep_log_file_num(2)
        return options


class DiskStore:
    """A StateStore in one RocksDB database.

    The positions are written in the same atomic batch as the values, so after a crash the store has the state of some
    transaction. Receipts are stored under the number of their period, and a period is deleted as a range (see Periods).
    So a receipt is kept for at least `receipts_days`, and for at most twice as long plus a margin.
    """

    opened: ClassVar[set[Path]] = set()
    """The folders of all stores of this process that are open."""
    opening: ClassVar[threading.Lock] = threading.Lock()
    """Held while `opened` grows, so that nobody removes a folder that is being opened."""

    def __init__(
        self,
        folder: Path,
        origin: str,
        budget: DiskBudget,
        receipts_days: int = 7,
        low_water_bytes: int = LOW_WATER_BYTES,
    ) -> None:
        """Open the database in `folder`, or create it again if it is damaged or has another origin.

        origin: what the store is a copy of. receipts_days: how long receipts are kept at least; it may change between
        two starts. Raises LocalStateError.
        """
        self._folder, self._origin, self._budget = folder, origin, budget
        self._period_ms, self._low_water_bytes = receipts_days * DAY_MS, low_water_bytes
        self._damaged = False
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LocalStateError(folder, str(error)) from error
        self.check()
        with self.opening:
            was_open = folder in self.opened
            self.opened.add(folder)
        try:
            self._db = self._open()
        except LocalStateError:
            if not was_open:
                self.opened.discard(folder)
            raise
        try:
            useless = self._why_useless()
            if useless:
                logger.warning('"%s" is %s: rebuilding it', folder, useless)
            if useless or self._get(_ORIGIN) is None:
                self.clear()
            self._set_periods(Periods.from_json(self._get(_PERIODS)))
        except LocalStateError:
            self.close()
            raise

    def snapshot(self, stream: str) -> bytes | None:
        """See StateStore.snapshot."""
        return self._get(_SNAPSHOT + stream.encode(errors="surrogateescape"))

    def snapshots(self, aggregate: str, start: str = "") -> Iterator[tuple[str, bytes]]:
        """See StateStore.snapshots."""
        prefix = _SNAPSHOT + aggregate.encode() + b"/"
        with self._translated():
            for key, value in self._db.items(from_key=prefix + start.encode(errors="surrogateescape")):
                if not isinstance(key, bytes) or not key.startswith(prefix):
                    return
                yield key[1:].decode(errors="surrogateescape"), value

    def receipts(self, command_ids: Sequence[str]) -> Sequence[bytes | None]:
        """See StateStore.receipts."""
        keys = [command_id.encode(errors="surrogateescape") for command_id in command_ids]
        stored_receipts: list[bytes | None] = [None] * len(keys)
        for period in self._nonempty_periods:
            with self._translated():
                values = cast(list[bytes | None], self._db.get([period + key for key in keys]))
            # a younger receipt answers a reused command id
            stored_receipts = [
                value if known is None else known for known, value in zip(stored_receipts, values, strict=True)
            ]
        return stored_receipts

    def position(self, name: str) -> int:
        """See StateStore.position."""
        return int.from_bytes(self._get(_POSITION + name.encode()) or b"")

    def apply(
        self,
        snapshots: Mapping[str, bytes | None],
        receipts: Mapping[str, bytes | None],
        positions: Mapping[str, int],
        time_ms: int = 0,
    ) -> None:
        """See StateStore.apply."""
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        if time_ms:
            if self._periods.advance(time_ms, self._period_ms):
                self._set_periods(self._periods)
                batch.delete_range(_receipts_of(0), _receipts_of(self._periods.numbers[-1]))
            put(_PERIODS, self._periods.to_json())
        for stream, value in snapshots.items():
            key = _SNAPSHOT + stream.encode(errors="surrogateescape")
            if value is None:
                delete(key)
            else:
                put(key, value)
        for command_id, value in receipts.items():
            key = command_id.encode(errors="surrogateescape")
            if value is None:
                for period in self._nonempty_periods:
                    delete(period + key)
            else:
                put(self._young + key, value)
        for name, position in positions.items():
            put(_POSITION + name.encode(), _number(position))
        with self._translated():
            self._db.write(batch)

    def purge(self, streams: Sequence[str] = ()) -> None:
        """See StateStore.purge."""
        keys = [_SNAPSHOT + stream.encode(errors="surrogateescape") for stream in streams]
        ranges = [(key, key + b"\0") for key in keys] or [(_SNAPSHOT, _SNAPSHOT + b"\xff")]
        with self._translated():
            for first, end in ranges:
                # it also writes what is in memory to files, and so deletes the write-ahead log
                self._db.compact_range(first, end)

    def check(self) -> None:
        """See StateStore.check."""
        check_room(self._folder, self._low_water_bytes)

    def clear(self) -> None:
        """See StateStore.clear."""
        self._release()
        self._remove()
        self._db = self._open()
        self._set_periods(Periods())
        with self._translated():
            self._db.put(_ORIGIN, self._origin.encode())

    def close(self) -> None:
        """See StateStore.close; a damaged database is deleted, because the log has everything."""
        self._release()
        if self._damaged:
            self._remove()
        self.opened.discard(self._folder)

    def _release(self) -> None:
        try:
            self._db.close()
        except Exception as error:  # noqa: BLE001 - all that rocksdict raises; if a write failed, this fails too
            logger.warning('"%s" lacks its last writes, which are read from the log instead: %s', self._folder, error)

    def _why_useless(self) -> str:
        """Why the database does not match the log; empty if it does, or if it is new."""
        if self._get(_ORIGIN) not in {None, self._origin.encode()}:
            return "a copy of other topics than the log has now"
        time_ms = Periods.from_json(self._get(_PERIODS)).time_ms
        if time_ms > time.time() * 1000 + DAY_MS:
            return "from the future, so its age is unknown"
        if time_ms and time_ms < time.time() * 1000 - MAX_AGE_MS:
            return f"from {datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d}, and may have missed deletions since"
        return ""

    def _open(self) -> Rdict:
        try:
            return Rdict(str(self._folder), self._budget.options())
        except Exception as error:  # rocksdict raises nothing else
            if not _is_damage(error):
                raise self._failed(error) from error
            logger.warning('"%s" is damaged, rebuilding it: %s', self._folder, error)
        self._remove()
        with self._translated():
            return Rdict(str(self._folder), self._budget.options())

    def _get(self, key: bytes) -> bytes | None:
        with self._translated():
            return cast(bytes | None, self._db.get(key))

    def _set_periods(self, periods: Periods) -> None:
        self._periods = periods
        self._young, *earlier = (_receipts_of(number) for number in periods.numbers)
        # a look-up takes a twentieth of a command's time, and every new command is looked up in each period
        self._nonempty_periods = [self._young, *(period for period in earlier if self._holds(period))]

    def _holds(self, prefix: bytes) -> bool:
        with self._translated():
            first = next(iter(self._db.keys(from_key=prefix)), b"")
        return isinstance(first, bytes) and first.startswith(prefix)

    def _remove(self) -> None:
        try:
            shutil.rmtree(self._folder)
        except OSError as error:
            raise LocalStateError(self._folder, str(error)) from error

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise LocalStateError for whatever rocksdict raises."""
        try:
            yield
        except Exception as error:  # it raises nothing else
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> LocalStateError:
        self._damaged = self._damaged or _is_damage(error)
        return LocalStateError(self._folder, str(error))


def check_room(folder: Path, low_water_bytes: int = LOW_WATER_BYTES) -> None:
    """Raise LocalStateError if the disk of this folder has less room than a state needs."""
    try:
        free_bytes = shutil.disk_usage(folder).free
    except OSError as error:
        raise LocalStateError(folder, str(error)) from error
    if free_bytes < low_water_bytes:
        reason = f"{free_bytes >> 20} MiB are free on its disk, but {low_water_bytes >> 20} MiB are needed"
        raise LocalStateError(folder, reason)


def _is_damage(error: Exception) -> bool:
    return str(error).startswith("Corruption")


def _number(value: int) -> bytes:
    return value.to_bytes(8, "big")


def _receipts_of(period: int) -> bytes:
    return _RECEIPT + _number(period)
