"""What the topics of views hold: rows and ledgers of a generation, the rows that others read, and what is published."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, NamedTuple

import orjson

from headwater.eventlog.access import Program
from headwater.eventlog.envelope import Envelope, encode
from headwater.eventlog.heartbeats import AMONG_ROWS, is_heartbeat_key
from headwater.eventlog.ports import Entry, EventLog, Role
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.times import now_ms
from headwater.eventlog.topics import PATCHES, VIEWS, TopicSpec, compact_settings, view_topic
from headwater.projections.errors import Unloadable
from headwater.projections.stores.documents import DocumentForm, is_deleted
from headwater.projections.stores.store import Ledger, Target
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import places_from_json, places_to_json
from headwater.projections.view import generation_tag

PUBLISHED: Final = "published-views"
"""The topic that says which generation of a view its public topic shows."""
NAME: Final = "Kafka"
LEDGER: Final = "ledger"
"""Key of the records with the ledger of a partition."""
ROW: Final = "row/"
"""Start of the keys of rows."""

LOOK_S: Final = 0.5
REMEMBERED: Final = 4
TIMEOUT_S: Final = 30.0


class Progress(NamedTuple):
    """How far a partition of a generation is.

    batch: the last one of its rows. shown: the offset, in PUBLISHED, of the publication for which the public topic has
    all of its rows; -1 if none. complete: False until bulk has written all rows.
    """

    ledger: Ledger
    batch: int = 0
    shown: int = -1
    complete: bool = True


def public_topic(view: str) -> str:
    """The topic that programs outside read."""
    return f"{VIEWS}{view}"


def generation_topic(target: Target) -> str:
    """The topic with the rows and ledgers of one generation."""
    return topic_of(*target.id)


def topic_of(view: str, generation: int) -> str:
    """The topic of a generation of this view."""
    return f"{public_topic(view)}.g{generation}"


def topics_of(target: Target, settings: LogSettings) -> list[TopicSpec]:
    """The topics that a generation needs."""
    public = view_topic(target.view.name, settings)
    return [published_topic(settings), public, replace(public, name=generation_topic(target))]


def published_topic(settings: LogSettings) -> TopicSpec:
    """The topic that says which generations are published."""
    writers = frozenset({Program.PROJECTIONS, Program.OPERATOR})
    readers = writers | {Program.API}  # which waits until the public topic has an event
    return TopicSpec(PUBLISHED, 1, compact_settings(settings), readers, writers)


def building_role(target: Target) -> Role:
    """The role of the owner of a partition of a generation that is not published."""
    return Role(generation_topic(target), PATCHES, (generation_topic(target),))


def showing_role(target: Target) -> Role:
    """The role of the owner of a partition of a published generation: of all generations of a view, one shows it.

    If other views read the public topic, the live query appends heartbeats to it.
    """
    public = public_topic(target.view.name)
    return Role(public, PATCHES, (generation_topic(target), public), with_heartbeats=(public,))


def progress_to_json(progress: Progress) -> bytes:
    """The value of a record with the key LEDGER."""
    ledger = {"next": progress.ledger.next_offset, "applied": places_to_json(progress.ledger.applied)}
    mark = {} if progress.complete else {"complete": False}
    return orjson.dumps(ledger | {"batch": progress.batch, "shown": progress.shown} | mark)


def progress_from_json(value: bytes) -> Progress:
    """The progress in a record with the key LEDGER."""
    held = orjson.loads(value)
    ledger = Ledger(held["next"], places_from_json(held["applied"]))
    return Progress(ledger, held["batch"], held["shown"], held.get("complete", True))


def check_key(key: str) -> None:
    """Raise Unloadable if readers of a public topic would take a row with this key for a heartbeat."""
    if key.startswith(AMONG_ROWS):
        raise Unloadable(NAME, "its key begins like those of heartbeats, which are among the rows")


def row_to_json(batch: int, state: State) -> bytes:
    """The value of a record of a row. batch: the one that computed it."""
    return orjson.dumps({"batch": batch, "state": state})


def row_records(
    log: EventLog, target: Target, partition: int, start: int = 0, end: int | None = None
) -> Iterator[tuple[str, bytes]]:
    """The records of rows in a partition of a generation, also of deleted ones: their keys and values."""
    for record in log.read(generation_topic(target), partition, start, end):
        if record.key.startswith(ROW) and record.value is not None:
            yield record.key.removeprefix(ROW), record.value


def row_from_json(value: bytes) -> tuple[int, State]:
    """The batch and state in a record of a row."""
    row = orjson.loads(value)
    return row["batch"], row["state"]


class PublicRows:
    """The rows of a generation as records of its public topic: CloudEvents, with the row as data."""

    def __init__(self, target: Target) -> None:
        self._form = DocumentForm.of(target.view)
        self._tag = target.tag if target.view.has_own_query else generation_tag(target.tag, target.generation)
        self._view, self._version = target.view.name, target.view.version

    def data(self, key: str, state: State) -> dict[str, Any] | None:
        """The visible columns of a row; None if it is deleted."""
        return None if is_deleted(state) else self._form.show(key, state)

    def value(self, key: str, data: dict[str, Any], batch: int, time: datetime) -> bytes:
        """The value of the record of a row."""
        return encode(
            Envelope(
                id=f"{self._tag}/{key}@{batch}",
                type=public_topic(self._view),
                stream=key or self._tag,
                time=time,
                data=data,
                source=f"/headwater/views/{self._view}",
                data_version=self._version,
            )
        )


def read_public(log: EventLog, view: str, partition: int) -> Iterator[tuple[str, bytes | None]]:
    """The rows in a partition of a view's public topic: keys, and values as they were written."""
    topic = public_topic(view)
    read = log.read(topic, partition, 0)
    return ((record.key, record.value) for record in read if not is_heartbeat_key(record.key, topic))


class Publication(NamedTuple):
    """The generation that is shown, and the offset of the record that says so.

    before: those that were shown before, the last one first; at most REMEMBERED.
    """

    generation: int
    offset: int
    before: tuple[int, ...] = ()


class Publications:
    """Reads and writes publications. Raises EventLogError."""

    def __init__(self, log: EventLog, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: returns the time in seconds."""
        self._log, self._clock = log, clock
        self._known: dict[str, Publication] = {}
        self._looked = float("-inf")

    def publish(self, view: str, generation: int) -> None:
        """Let the public topic of `view` show this generation."""
        known = self.of(view, fresh=True)
        earlier = (known.generation, *known.before) if known is not None else ()
        before = [other for other in earlier if other != generation][:REMEMBERED]
        self._write(view, " ".join(map(str, (generation, *before))).encode())

    def withdraw(self, view: str) -> None:
        """Let no generation be shown."""
        self._write(view, None)

    def of(self, view: str, *, fresh: bool = False) -> Publication | None:
        """The publication of a view, at most LOOK_S old; fresh: as it is now."""
        if fresh or self._clock() - self._looked > LOOK_S:
            self._known = self._read()
            self._looked = self._clock()
        return self._known.get(view)

    def _read(self) -> dict[str, Publication]:
        if not self._log.stored_ends(PUBLISHED):
            return {}
        publications: dict[str, Publication] = {}
        for record in self._log.read(PUBLISHED, 0, 0):
            if record.value is None:
                publications.pop(record.key, None)
            else:
                generation, *before = map(int, record.value.split())
                publications[record.key] = Publication(generation, record.offset, tuple(before))
        return publications

    def _write(self, view: str, value: bytes | None) -> None:
        self._log.submit(Entry(PUBLISHED, view, value, now_ms()), 0).result(TIMEOUT_S)
        self._looked = float("-inf")
