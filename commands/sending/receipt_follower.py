"""Follows `receipts` in a thread: delivers awaited receipts, and indexes the places of all, the latest in memory."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Container, Generator, Mapping, Sequence
from contextlib import closing
from typing import Final, Protocol

from headwater.commands.errors import LocalStateError
from headwater.eventlog import topics
from headwater.eventlog.errors import EventLogError
from headwater.eventlog.ports import EventLog, Record, topic_ends

Place = tuple[int, int]
"""Partition and offset of a receipt."""

_OFFSET_BITS = 48


class ReceiptIndex(Protocol):
    """Record key → place. Only `find_each` may be called from threads other than the one that adds.

    keeps_all: whether it needs all receipts of the log, not only the latest. A place that it finds may belong to
    another command: check the record. Every method may raise LocalStateError.
    """

    keeps_all: bool

    def add(self, records: Sequence[Record], positions: Mapping[int, int]) -> None:
        """Store the places of `records`, replacing earlier ones; and `positions`, by partition."""

    def add_older(self, records: Sequence[Record], positions: Mapping[int, int]) -> None:
        """Like `add`, for records that may be older than stored ones, which they do not replace."""

    def find_each(self, keys: Sequence[str]) -> Sequence[Place | None]:
        """The place of the receipt with each of these keys, or None."""

    def position(self, partition: int) -> int:
        """The offset before which it has everything, from the last `add`; 0 if none."""

    def clear(self) -> None:
        """Delete everything."""

    def close(self) -> None:
        """Release resources."""


class RecentReceipts:
    """A ReceiptIndex in memory, for at most `limit` commands and at least the latest half of them.

    Keys are 64-bit hashes, to keep Python's dictionaries small: about 115 bytes per command. When the young half is
    full, it becomes the old half and the previous old half is deleted.
    """

    keeps_all = False

    def __init__(self, limit: int) -> None:
        self._half = max(1, limit // 2)
        self._young: dict[int, int] = {}
        self._old: dict[int, int] = {}

    def add(self, records: Sequence[Record], positions: Mapping[int, int]) -> None:
        """See ReceiptIndex.add; no position is stored."""
        for record in records:
            if len(self._young) >= self._half:
                self._old, self._young = self._young, {}
            self._young[hash(record.key)] = packed(record)

    def add_older(self, records: Sequence[Record], positions: Mapping[int, int]) -> None:
        """See ReceiptIndex.add_older: it has no space for them."""

    def find_each(self, keys: Sequence[str]) -> Sequence[Place | None]:
        """See ReceiptIndex.find_each."""
        places = [self._young.get(digest, self._old.get(digest)) for digest in map(hash, keys)]
        return [None if place is None else unpacked(place) for place in places]

    def position(self, partition: int) -> int:
        """See ReceiptIndex.position."""
        return 0

    def clear(self) -> None:
        """See ReceiptIndex.clear."""
        self._young, self._old = {}, {}

    def close(self) -> None:
        """See ReceiptIndex.close."""


def packed(record: Record) -> int:
    """The place of a receipt, as one number of 64 bits."""
    return record.partition << _OFFSET_BITS | record.offset


def unpacked(place: int) -> Place:
    """The place that `packed` made a number."""
    return place >> _OFFSET_BITS, place & (1 << _OFFSET_BITS) - 1


START_OFFSETS: Final = 20_000
"""How much of the end of `receipts` is read before it is ready, in all partitions together: recent retries."""
OLDER_RECORDS: Final = 1_000
"""Older receipts per step, between polls for new ones, which wait for about ten milliseconds at most."""
IDLE_S: Final = 0.1
RETRY_S: Final = 1.0

logger = logging.getLogger(__name__)


class ReceiptFollower:
    """Reads `receipts` from near their end, and then the older ones that the index needs.

    After an error of the log it continues where it was, or with the first receipt that retention has left. Call `start`
    once and `close` at the end.
    """

    def __init__(
        self,
        log: EventLog,
        open_index: Callable[[], ReceiptIndex],
        awaited: Container[str],
        deliver: Callable[[Sequence[Record]], None],
        remembered: int,
    ) -> None:
        """open_index: opens the index, in the thread; raises LocalStateError or EventLogError.

        awaited: the keys of records for which `deliver` is called, in the thread, once they can be found. remembered:
        how many receipts to keep in memory if the index cannot be written.
        """
        self._log, self._open_index = log, open_index
        self._awaited, self._deliver = awaited, deliver
        self._remembered = remembered
        self._index: ReceiptIndex | None = None
        self._positions: dict[int, int] = {}
        self._older: dict[int, tuple[int, int]] = {}
        self._lost = False
        self._caught_up, self._stopped = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="receipts", daemon=True)

    @property
    def ready(self) -> bool:
        """Whether it has reached the end that the topic had at the start."""
        return self._caught_up.is_set()

    @property
    def knows_enough(self) -> bool:
        """Whether a receipt that is not found does not exist, or is older than the index keeps."""
        return self._caught_up.is_set() and not self._older and not self._lost

    def wait_ready(self, timeout_s: float) -> bool:
        """Block until `ready`; returns whether it is ready in time."""
        return self._caught_up.wait(timeout_s)

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def close(self) -> None:
        """Stop following, and wait for the thread to end."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def find_each(self, keys: Sequence[str]) -> Sequence[Place | None]:
        """The place of the receipt with each of these keys; None if unknown. Safe to call from any thread."""
        index = self._index
        try:
            return [None] * len(keys) if index is None else index.find_each(keys)
        except LocalStateError as error:
            logger.warning("cannot look up receipts: %s", error)
            return [None] * len(keys)

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                try:
                    self._follow()
                except Exception as error:  # without this thread no command is answered
                    self._caught_up.clear()
                    unexpected = None if isinstance(error, EventLogError) else error
                    logger.warning("cannot follow receipts, retrying in %g s: %s", RETRY_S, error, exc_info=unexpected)
                    self._stopped.wait(RETRY_S)
        finally:
            if self._index is not None:
                _close(self._index)

    def _follow(self) -> None:
        ends = topic_ends(self._log, topics.RECEIPTS, range(self._log.partitions))
        if self._index is None:
            self._open(ends)
        # leave out what retention has deleted: an unused topic loses even its latest records
        for each in range(self._log.partitions):
            first = self._log.first(topics.RECEIPTS, each)
            self._positions[each] = max(first, self._positions[each])
            start, end = self._older.get(each, (first, first))
            if first >= end:
                self._older.pop(each, None)
            elif first > start:
                self._older[each] = (first, end)
        with closing(self._log.tail(topics.RECEIPTS, self._positions)) as tail, closing(self._older_records()) as older:
            while not self._stopped.is_set():
                behind = bool(self._older) and self.ready
                records = tail.poll(5_000, 0.0 if behind else IDLE_S)
                reached = {position: tail.position(position) for position in self._positions}
                self._take(records, reached)
                self._positions = reached
                if not self.ready and all(reached[partition] >= end for partition, end in ends.items()):
                    self._caught_up.set()
                if behind:
                    next(older, None)

    def _open(self, ends: Mapping[int, int]) -> None:
        """Open the index, and see where to start and what is missing."""
        try:
            index, reached = self._opened(ends)
        except LocalStateError as error:
            index, reached = self._fall_back(error), dict.fromkeys(ends, 0)
        for partition, end in ends.items():
            known = reached[partition]
            self._positions[partition] = start = max(known, end - START_OFFSETS // self._log.partitions)
            if index.keeps_all and known < start:
                self._older[partition] = (known, start)
        self._index = index

    def _opened(self, ends: Mapping[int, int]) -> tuple[ReceiptIndex, Mapping[int, int]]:
        """The index, and the offset before which it has everything, by partition; raises LocalStateError."""
        index = self._open_index()
        try:
            if any(index.position(partition) > end for partition, end in ends.items()):
                index.clear()  # Kafka has lost the end of the topic
            return index, {partition: index.position(partition) for partition in ends}
        except Exception:
            _close(index)  # which deletes a damaged one
            raise

    def _take(self, records: Sequence[Record], reached: Mapping[int, int]) -> None:
        awaited, others = list[Record](), list[Record]()
        for record in records:
            (awaited if record.key in self._awaited else others).append(record)
        complete = {record.partition for record in records} - self._older.keys()
        positions = {partition: reached[partition] for partition in complete}
        if awaited:
            # before delivery, because the receiver may look it up again
            self._add(awaited, {} if others else positions)
            self._deliver(awaited)
        if others:
            self._add(others, positions)

    def _older_records(self) -> Generator[None, None, None]:
        """Index the older receipts, some per step."""
        for partition, (start, end) in list(self._older.items()):
            left = max(start, self._log.first(topics.RECEIPTS, partition))
            with closing(self._log.tail(topics.RECEIPTS, {partition: left})) as tail:
                while partition in self._older:
                    records = [record for record in tail.poll(OLDER_RECORDS, 0.01) if record.offset < end]
                    at = min(tail.position(partition), end)
                    self._add(records, {partition: at}, older=True)
                    if at < end and self._older:
                        self._older[partition] = (at, end)
                    else:
                        self._older.pop(partition, None)
                    yield
        if not self._lost:
            logger.info("the index of receipts is complete")

    def _add(self, records: Sequence[Record], positions: Mapping[int, int], older: bool = False) -> None:
        index = self._index
        assert index is not None  # noqa: S101 - it is opened before anything is read
        try:
            (index.add_older if older else index.add)(records, positions)
        except LocalStateError as error:
            self._index = self._fall_back(error)
            self._index.add(records, positions)
            _close(index)

    def _fall_back(self, error: LocalStateError) -> ReceiptIndex:
        logger.error("only the latest %d receipts are found by id until the next start: %s", self._remembered, error)
        self._older.clear()
        self._lost = True
        return RecentReceipts(self._remembered)


def _close(index: ReceiptIndex) -> None:
    try:
        index.close()
    except LocalStateError as error:
        logger.warning("cannot close the index of receipts: %s", error)
