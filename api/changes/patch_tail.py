"""Follows `patches` in one thread for all feeds: which rows each batch of records touches."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing, suppress
from typing import Any, Final, NamedTuple

import orjson

from headwater.eventlog import topics
from headwater.eventlog.envelope import Position
from headwater.eventlog.errors import EventLogError
from headwater.eventlog.ports import EventLog, Record, topic_ends
from headwater.eventlog.source_positions import SourcePosition, topic_and_partition
from headwater.projections.loading.decoding import ANNOUNCED, BATCH, OLDER
from headwater.projections.view import View

BATCH_RECORDS: Final = 5_000
POLL_S: Final = 0.1
RETRY_S: Final = 1.0

logger = logging.getLogger(__name__)


class Touch(NamedTuple):
    """A change of a row: the place of its patch in `patches`, and the position of the event.

    A row of a stream view comes from many records, and has no position; nor has one that was replaced in its store.
    """

    partition: int
    offset: int
    position: SourcePosition | None


Touched = dict[str, Touch]
"""The latest touch of each key."""


Brought = Mapping[str, Any]
"""What a patch brings of the columns that say who may read a row."""


class Batch(NamedTuple):
    """New records: touched rows by view tag, for the followed tags; from these `patches` offsets up to those.

    brought: by view tag, key, offset and values of the patches that say who may read a row.
    """

    touched: Mapping[str, Touched]
    listened: frozenset[str]
    start: Mapping[int, int]
    end: Mapping[int, int]
    brought: Mapping[str, list[tuple[str, int, Brought]]] = {}


Compared = Mapping[str, Mapping[str, str]]
"""By view tag, the columns that say who may read a row, each with its state field in patches; empty: it is the key."""


class Patch(NamedTuple):
    """A patch of a followed view; document: as JSON has it, which may be of another form."""

    tag: str
    key: str
    record: Record
    document: Any


Followed = Mapping[str, View]
"""The views that are followed, by the tags of their patches."""


def patches_of(records: Iterable[Record], views: Followed, partitions: int) -> Iterator[Patch]:
    """The patches of these views; the loaders make dead letters of records that are none. partitions: of `patches`."""
    for record in records:
        tag, slash, key = record.key.partition("/")
        if tag == OLDER:
            yield from _of_older(record, views, partitions)
        if not slash or tag not in views or record.value is None:
            continue
        try:
            document = orjson.loads(record.value)
        except ValueError:
            continue
        yield Patch(tag, key, record, document)


def _of_older(record: Record, views: Followed, partitions: int) -> Iterator[Patch]:
    """Those of an event of an older version."""
    # rare, and it imports what compiles views
    from headwater.projections.loading.older_events import patches_in  # noqa: PLC0415

    for tag, patch, *_ in patches_in(record, views, partitions):
        yield Patch(tag, patch.key, record, {"p": patch.source, "o": patch.place.offset, "c": patch.fields})


def brought(patches: Iterable[Patch], compared: Compared) -> dict[str, list[tuple[str, int, Brought]]]:
    """What the patches bring of these columns."""
    rows_by_change: dict[str, list[tuple[str, int, Brought]]] = {}
    for tag, key, record, document in patches if compared else ():
        if tag in compared:
            with suppress(KeyError, TypeError, ValueError):
                changed, fields = document["c"], compared[tag].items()
                values = {
                    name: changed[source_field] if source_field else key
                    for name, source_field in fields
                    if not source_field or source_field in changed
                }
                rows_by_change.setdefault(tag, []).append((key, record.offset, values))
    return rows_by_change


def touches(patches: Iterable[Patch]) -> dict[str, Touched]:
    """The rows that the patches touch, by view tag."""
    touched_rows: dict[str, Touched] = {}
    for tag, key, record, document in patches:
        with suppress(KeyError, TypeError, ValueError):
            touch = Touch(record.partition, record.offset, _position(document))
            touched_rows.setdefault(tag, {})[key] = touch
    return touched_rows


def _position(document: dict[str, Any]) -> SourcePosition | None:
    if BATCH in document or ANNOUNCED in document:
        return None
    topic, partition = topic_and_partition(str(document["p"]))
    return SourcePosition(topic, Position(partition, document["o"]))


class PatchTail:
    """Reads `patches` from its end on, in a thread, while a tag is followed.

    A batch starts after the end of the one before if patches were deleted unread: Kafka was away for days.

    on_batch: called in the loop for every batch, before the next is read, so that batches do not pile up.
    """

    def __init__(self, log: EventLog, partitions: int, on_batch: Callable[[Batch], None]) -> None:
        self._log, self._partitions, self._on_batch = log, partitions, on_batch
        self._views: Followed = {}
        self._compared: Compared = {}
        self._stopped: threading.Event | None = None

    def listen(self, views: Followed, compared: Compared | None = None) -> None:
        """Follow these views and no others; later batches say from when on. Call it in the loop."""
        self._compared = compared or {}
        self._views = dict(views)
        if self._views and self._stopped is None:
            self._stopped = threading.Event()
            arguments = (self._stopped, asyncio.get_running_loop())
            threading.Thread(target=self._follow, args=arguments, name="patches", daemon=True).start()
        elif not self._views:
            self.stop()

    def stop(self) -> None:
        """End the thread."""
        if self._stopped is not None:
            self._stopped.set()
            self._stopped = None

    def _follow(self, stopped: threading.Event, loop: asyncio.AbstractEventLoop) -> None:
        places: dict[int, int] | None = None
        while not stopped.is_set():
            try:
                if places is None:
                    places = topic_ends(self._log, topics.PATCHES, range(self._partitions))
                else:
                    places = {p: max(at, self._log.first(topics.PATCHES, p)) for p, at in places.items()}
                self._read(places, stopped, loop)
            except EventLogError as error:
                logger.warning("cannot follow patches, retrying in %g s: %s", RETRY_S, error)
                stopped.wait(RETRY_S)

    def _read(self, places: dict[int, int], stopped: threading.Event, loop: asyncio.AbstractEventLoop) -> None:
        with closing(self._log.tail(topics.PATCHES, places)) as tail:
            while not stopped.is_set():
                views, compared = self._views, self._compared
                records = tail.poll(BATCH_RECORDS, POLL_S)
                end = {p: tail.position(p) for p in places}
                patches = list(patches_of(records, views, self._partitions))
                batch = Batch(touches(patches), frozenset(views), dict(places), end, brought(patches, compared))
                if not self._hand_over(batch, stopped, loop):
                    return
                places.update(end)

    def _hand_over(self, batch: Batch, stopped: threading.Event, loop: asyncio.AbstractEventLoop) -> bool:
        taken: Future[None] = Future()

        def take() -> None:
            if not stopped.is_set():
                self._on_batch(batch)
            taken.set_result(None)

        try:
            loop.call_soon_threadsafe(take)
        except RuntimeError:  # the loop has ended, and all followers with it
            return False
        while not stopped.is_set():
            try:
                taken.result(POLL_S)
                return True
            except TimeoutError:
                continue
        return False
