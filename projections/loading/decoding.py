"""Decodes records of `patches`, which the live query writes and the loaders read."""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import lru_cache
from typing import NamedTuple

import orjson

from headwater.eventlog.source_positions import topic_and_partition
from headwater.eventlog.times import now_ms
from headwater.eventlog.topics import CAPTURED
from headwater.eventlog.tracing import spans
from headwater.projections.stores.store import Batch
from headwater.projections.table.json_text import JsonTexts, make_canonical
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import BATCHES, Patch, Place

PROGRESS = b"progress/"
OLDER = "older"
"""Keys begin with this, and a slash, if the record is an event of an older version (see `older_events`)."""
TOO_LARGE = "too_large"
"""Marks a patch that is too large for Kafka; the value is its size in bytes."""
BATCH = "b"
"""Member of a stream view's patch: the number of the batch that made it."""
TRACEPARENT = "w"
DECIDED = "r"
"""Members of a patch whose trace is sampled: the W3C trace context of its event, and when this was decided."""


LAST_TIME_MS = 253_402_300_799_999
"""Of the last year that texts of times have; a span takes no later one."""
ANNOUNCED = "n"
"""Member of a patch that changes nothing: it says that a row was replaced in a store, for those who follow changes."""


class TracedPatch(NamedTuple):
    """A patch of an event whose trace is sampled. tag: of its view. decided: when the event was, as text.

    Of a captured row, or of a batch of a stream view, which have no trace context: then `traceparent` is empty.
    time_ms: when the row changed, since 1970.
    """

    tag: str
    patch: Patch
    traceparent: str
    decided: str
    time_ms: int | None = None


class NotAPatch(ValueError):
    """A record of `patches` that no loader can read."""


def read_into(
    batch: Batch,
    key: bytes | None,
    value: bytes | None,
    tags: Container[bytes] | None = None,
    json_texts: Mapping[str, JsonTexts] | None = None,
) -> TracedPatch | None:
    """Add one record to `batch`; returns its patch if that has a trace, or may begin one. Raises NotAPatch.

    tags: those of the loaded views (None: all). Patches of other views are not even parsed. json_texts: by tag, the
    fields whose texts Spark writes in another form than rows have.
    """
    if tags is not None and key:
        tag_of_key, slash, _ = key.partition(b"/")
        if slash and tag_of_key not in tags and b"@" in tag_of_key:  # a record without a tag is not a patch
            return None
    if not key or not value:
        raise NotAPatch("it has no key or no value")
    try:
        document = orjson.loads(value)
        check_size(document)
        if BATCH in document:
            tag, _, row = key.decode().partition("/")
            patch = Patch(row, BATCHES, Place(_whole(document[BATCH]), 0), _fields(document["c"]))
            batch.patches.setdefault(tag, []).append(patch)
            return TracedPatch(tag, patch, "", "") if spans.is_on() else None
        source, offset = _source(document["p"]), _whole(document["o"])
        if key.startswith(PROGRESS):
            for tag in document["v"]:
                reached = batch.progress.setdefault(tag, {})
                reached[source] = max(offset, reached.get(source, -1))
            return None
        tag, _, row = key.decode().partition("/")
        patch = Patch(row, source, Place(offset, _whole(document["i"])), _fields(document["c"]))
        if json_texts and (texts := json_texts.get(tag)):
            make_canonical(patch.fields, texts)
        context = document.get(TRACEPARENT)
    except NotAPatch:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise NotAPatch(f"{type(error).__name__}: {error}") from error
    batch.patches.setdefault(tag, []).append(patch)
    if context is not None and context != "":
        return TracedPatch(tag, patch, str(context), str(document.get(DECIDED, "")))
    if spans.is_on() and source.startswith(CAPTURED):
        time_ms = document.get("t")
        is_time = isinstance(time_ms, int) and 0 < time_ms < LAST_TIME_MS
        return TracedPatch(tag, patch, "", "", time_ms if is_time else None)
    return None


def check_size(document: Mapping[str, object]) -> None:
    """Raise NotAPatch if this stands for a patch that was too large."""
    if TOO_LARGE in document:
        raise NotAPatch(f"it had {document[TOO_LARGE]} bytes, more than Kafka allows: rebuild the view to apply it")


def announcement(source: str) -> bytes:
    """A patch that changes nothing, of a row with events of this source.

    Its place is the first of all, which every ledger has passed, so that loaders leave it out.
    """
    return orjson.dumps({"p": source, "o": 0, "i": 0, "t": now_ms(), "c": {}, ANNOUNCED: True})


@lru_cache(maxsize=1024, typed=True)
def _source(found: object) -> str:
    """The source of a patch: a number stands for a partition of `events`. There are few, and each patch has one."""
    source = found if isinstance(found, str) else str(_whole(found))
    topic_and_partition(source)
    return source


def _whole(number: object) -> int:
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"{number!r} is not an integer")
    return number


def _fields(fields: object) -> State:
    if not isinstance(fields, dict):
        raise TypeError(f"{fields!r} is not an object of fields")
    return fields
