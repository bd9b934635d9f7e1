"""The spans of patches: on the way through the live query, and into the rows of each store."""

from __future__ import annotations

import time
from collections.abc import Collection
from datetime import datetime
from typing import Final, NamedTuple

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from headwater.eventlog.envelope import timestamp_ms
from headwater.eventlog.tracing import spans
from headwater.eventlog.tracing.spans import MS, Facts, Span, is_sampled, origin_of_batch, origin_of_change, span_of
from headwater.projections.loading.decoding import TracedPatch
from headwater.projections.table.patch import BATCHES

MAX_TRACED: Final = 2
"""Patches of one batch of a backlog. The spans of a patch cost a loader ten times as much as the patch: with 20 of a
batch, one traced event in a hundred cost the live path a fifth of its processor time. More would also displace each
other in the queue of what is sent.
"""


class _Found(NamedTuple):
    """A patch with a trace. context: that of its event, or of what begins its trace. is_first: it begins here."""

    patch: TracedPatch
    sent_ns: int
    context: str
    is_first: bool


class PatchSpans:
    """Those of one batch of a loader.

    The live query runs in Spark, which makes no spans. So the span of a patch, from the decision until Spark sent it,
    is made here, by the loader of the first store of its view. Its id follows from the patch, because the spans of all
    stores are below it. A change of a captured row has no trace context: its trace begins with this span. Of a batch of
    a stream view, its query makes the span that the spans of all stores are below.
    """

    def __init__(self, store: str, first_in: Collection[str], *, is_backlog: bool = False) -> None:
        """store: of the loader. first_in: the tags of the views that have this store as their first one.

        is_backlog: the batch is large; only MAX_TRACED of its patches are looked at.
        """
        self._store, self._first_in, self._is_backlog = store, first_in, is_backlog
        self._found: list[_Found] = []
        self._batches: set[tuple[str, int]] = set()
        self._asked = 0
        self._began_ns = time.time_ns() if spans.is_on() else 0

    def note(self, patch: TracedPatch, record: Message) -> None:
        """Take a patch that was read from this record."""
        if not spans.is_on() or (self._is_backlog and max(len(self._found), self._asked) >= MAX_TRACED):
            return
        context = patch.traceparent or self._origin(patch)
        if context is not None and is_sampled(context):
            kind, sent_ms = record.timestamp()
            sent_ns = self._began_ns if kind == TIMESTAMP_NOT_AVAILABLE else sent_ms * MS
            self._found.append(_Found(patch, sent_ns, context, not patch.traceparent))

    def _origin(self, patch: TracedPatch) -> str | None:
        """The context of what begins the trace of a patch; None if that is not sampled, or was taken already."""
        self._asked += 1
        source, place = patch.patch.source, patch.patch.place
        if source != BATCHES:
            return origin_of_change(source, place.offset)
        if (batch := (patch.tag, place.offset)) in self._batches:
            return None
        self._batches.add(batch)
        return origin_of_batch(*batch)

    def end(self) -> None:
        """All patches of the batch are in the store."""
        if not self._found:
            return
        ended_ns, loads = time.time_ns(), list[Span]()
        for patch_span in self._found:
            view = patch_span.patch.tag.partition("@")[0]
            context = patch_span.context if patch_span.patch.patch.source == BATCHES else self._patch(view, patch_span)
            facts = {"headwater.view": view, "headwater.store": self._store}
            load = spans.continued(f"load {view}", context, "consumer", facts, began_ns=self._began_ns)
            if load is not None:
                loads.append(load)
        facts_of_batch: Facts = {"headwater.store": self._store, "headwater.patches": len(self._found)}
        spans.end_together(f"load {self._store}", loads, self._began_ns, ended_ns, facts_of_batch)

    def _patch(self, view: str, loaded: _Found) -> str:
        """The context of the span of a patch, which the loader of its view's first store makes."""
        patch, sent_ns, parent, is_first = loaded
        place = f"{patch.patch.source}/{patch.patch.place.offset}/{patch.patch.place.number}"
        span_id, context = span_of(parent, patch.tag, place)
        if patch.tag in self._first_in:
            began_ns = patch.time_ms * MS if patch.time_ms is not None else _ns(patch.decided)
            began_ns = min(began_ns or sent_ns, sent_ns)
            name, facts = f"patch {view}", {"headwater.view": view, "headwater.patch": place}
            span = (
                spans.first(name, context, "producer", facts, began_ns=began_ns)
                if is_first
                else spans.continued(name, parent, "producer", facts, began_ns=began_ns, span_id=span_id)
            )
            if span is not None:
                span.end(at_ns=sent_ns)
        return context


def _ns(time_text: str) -> int | None:
    """Nanoseconds since 1970 of a time as events have it; None if it is none."""
    try:
        return timestamp_ms(datetime.fromisoformat(time_text)) * MS
    except (ValueError, TypeError):  # TypeError: without an offset
        return None
