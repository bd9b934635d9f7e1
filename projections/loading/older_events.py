"""Events of older versions on their way through `patches`.

Spark SQL cannot upcast them. So the live query hands such an event on as it is, to each partition of `patches`, and
whoever reads a partition makes the patches of its rows here. They have the places that the live query would give them.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import orjson

from headwater.eventlog.envelope import partition_of
from headwater.eventlog.ports import Record
from headwater.eventlog.source_positions import source_id
from headwater.eventlog.topics import EVENTS
from headwater.projections.kinds import table_view
from headwater.projections.loading.decoding import DECIDED, OLDER, TRACEPARENT, NotAPatch, TracedPatch, check_size
from headwater.projections.reading.reader import LogRecord, patches_of
from headwater.projections.reading.records import Letter, Unreadable
from headwater.projections.stores.names import patch_partition
from headwater.projections.table.patch import Patch
from headwater.projections.view import View

RECORD_KEY, RECORD_VALUE = "k", "d"
"""Members: key and value of the event's record, in base64."""


class OlderEvent(NamedTuple):
    """An event of an older version. source: its partition of `events`. tags: of the views that handle its type."""

    source: str
    record: LogRecord
    tags: tuple[str, ...]
    traceparent: str
    decided: str

    @classmethod
    def of(cls, value: bytes | None) -> OlderEvent:
        """The one in a record of `patches`; raises NotAPatch."""
        try:
            document: dict[str, Any] = orjson.loads(value or b"")
            check_size(document)
            key, record = (b64decode(document[name], validate=True) for name in (RECORD_KEY, RECORD_VALUE))
            place = LogRecord(int(document["o"]), int(document["t"]), key, record)
            context, decided = document.get(TRACEPARENT) or "", document.get(DECIDED) or ""
            return cls(source_id(EVENTS, int(document["p"])), place, tuple(document["v"]), str(context), str(decided))
        except NotAPatch:
            raise
        except (ValueError, TypeError, KeyError) as error:
            raise NotAPatch(f"{type(error).__name__}: {error}") from error

    def patches(self, views: Mapping[str, View], partition: int, partitions: int) -> Iterator[TracedPatch]:
        """The patches of some of these views, by tag, that belong to one of so many partitions.

        Raises Unreadable, after those of the other views, if one of the views cannot read the event.
        """
        problem: Unreadable | None = None
        for tag in self.tags:
            if (view := views.get(tag)) is None:
                continue
            try:
                row_patches = patches_of(table_view(view), self.source, self.record)
            except Unreadable as error:
                problem = error
                continue
            for patch in row_patches:
                if patch_partition(view, tag, patch.key, partitions) == partition:
                    yield TracedPatch(tag, _as_written(patch), self.traceparent, self.decided)
        if problem is not None:
            raise problem

    def letter(self, reason: str, partition: int, partitions: int) -> Letter | None:
        """Its dead letter, if it is the reader of this partition who writes it."""
        dead_letter = Letter.of(self.source, self.record, reason)
        return dead_letter if partition_of(dead_letter.key, partitions) == partition else None


def patches_in(record: Record, views: Mapping[str, View], partitions: int) -> Iterator[TracedPatch]:
    """The patches of some views, by tag, of an event of an older version in a record of `patches`, for its partition.

    For those who only look: the loaders make a dead letter of what cannot be read. partitions: of `patches`.
    """
    with suppress(NotAPatch, Unreadable):
        yield from OlderEvent.of(record.value).patches(views, record.partition, partitions)


def changed_rows(record: Record, views: Mapping[str, View], partitions: int) -> Iterator[str]:
    """The keys of the rows of some views, by tag, that a record of `patches` changes; partitions: of `patches`."""
    tag, _, key = record.key.partition("/")
    if tag in views:
        yield key
    elif tag == OLDER:
        yield from (patch.patch.key for patch in patches_in(record, views, partitions))


def _as_written(patch: Patch) -> Patch:
    """A patch as it is if it was written to `patches`, and read."""
    fields = {name: value for name, value in patch.fields.items() if value is not None}
    return patch._replace(fields=orjson.loads(orjson.dumps(fields)))
