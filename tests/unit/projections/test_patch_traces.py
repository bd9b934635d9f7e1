"""The spans that loaders make of patches: of their way through the live query, and of each store."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE

from headwater.commands.reacting.row_router import begin_change
from headwater.eventlog.ports import Record
from headwater.projections.loading.decoding import read_into
from headwater.projections.loading.patch_spans import MAX_TRACED, PatchSpans
from headwater.projections.spark.stream_queries.running_query import record_batch
from headwater.projections.stores.store import Batch
from tests.support.collector import Recorded, recorded

TRACE = "0af7651916cd43dd8448eb211c80319c"
SAMPLED = f"00-{TRACE}-b7ad6b7169203331-01"
DECIDED, DECIDED_NS, SENT_NS = "2026-01-02T03:04:05.678901Z", 1_767_323_045_678_000_000, 1_767_323_045_690_000_000
TAG = "listings@1"


def record(sent_ms: int = SENT_NS // 1_000_000, kind: int = TIMESTAMP_CREATE_TIME, **members: Any) -> Any:
    value = orjson.dumps({"p": 1, "o": 7, "i": 0, "t": 0, **members, "c": {"total": 1}})
    return SimpleNamespace(key=f"{TAG}/secret".encode, value=lambda: value, timestamp=lambda: (kind, sent_ms))


def loaded(store: str, *records: Any, first_in: tuple[str, ...] = (TAG,), is_backlog: bool = False) -> Batch:
    """What a loader of this store does with records."""
    batch, traced = Batch(0), PatchSpans(store, first_in, is_backlog=is_backlog)
    for each in records:
        patch = read_into(batch, each.key(), each.value())
        if patch is not None:
            traced.note(patch, each)
    traced.end()
    return batch


def test_the_loader_of_the_first_store_makes_the_span_of_the_patch_and_each_makes_its_own() -> None:
    with recorded() as found:
        loaded("postgres", record(w=SAMPLED, r=DECIDED))
        loaded("valkey", record(w=SAMPLED, r=DECIDED), first_in=())
    patch = found.named("patch listings")
    loads = [span for span in found if span.name == "load listings"]
    assert (patch.trace, patch.parent) == (TRACE, "b7ad6b7169203331")
    assert (patch.began_ns, patch.ended_ns) == (DECIDED_NS, SENT_NS)
    assert [(span.trace, span.parent) for span in loads] == [(TRACE, patch.id)] * 2
    assert [span.facts["headwater.store"] for span in loads] == ["postgres", "valkey"]
    assert "secret" not in str(found)


def test_patches_of_one_batch_and_the_batch_lead_to_each_other() -> None:
    other = SAMPLED.replace("0af7", "1af7")
    with recorded() as found:
        loaded("postgres", record(w=SAMPLED, r=DECIDED), record(), record(w=other, r=DECIDED))
    batch = found.named("load postgres")
    loads = [span for span in found if span.name == "load listings"]
    assert batch.parent == ""
    assert set(batch.links) == {(event.trace, event.id) for event in loads}
    assert {span.links for span in loads} == {((batch.trace, batch.id),)}
    assert batch.facts == {"headwater.store": "postgres", "headwater.patches": 2}


@pytest.mark.parametrize("decided", ["", "yesterday", "2026-01-02T03:04:05", "2999-01-01T00:00:00.000000Z", None, 7])
def test_a_time_that_is_none_or_later_is_replaced(decided: Any) -> None:
    with recorded() as found:
        loaded("postgres", record(w=SAMPLED, **({} if decided is None else {"r": decided})))
    patch = found.named("patch listings")
    assert patch.began_ns <= patch.ended_ns == SENT_NS


def test_a_record_without_a_time_has_that_of_its_reading() -> None:
    with recorded() as found:
        loaded("postgres", record(w=SAMPLED, r=DECIDED, kind=TIMESTAMP_NOT_AVAILABLE))
    assert found.named("patch listings").ended_ns == found.named("load listings").began_ns


@pytest.mark.parametrize(
    "context", ["", "00-x-01", SAMPLED[:-1] + "0", 7, ["a"], {"a": 1}, "x" * 100_000, SAMPLED + "1"]
)
def test_a_context_that_is_none_makes_no_span_and_no_dead_letter(context: Any) -> None:
    with recorded() as found:
        batch = loaded("postgres", record(w=context, r=DECIDED))
    assert found == []
    assert len(batch.patches[TAG]) == 1


def test_nothing_is_kept_if_nothing_is_recorded() -> None:
    batch = loaded("postgres", record(w=SAMPLED, r=DECIDED))
    assert len(batch.patches[TAG]) == 1


@pytest.mark.parametrize(("is_backlog", "expected"), [(True, MAX_TRACED), (False, 3 * MAX_TRACED)])
def test_only_some_patches_of_a_backlog_have_spans(is_backlog: bool, expected: int) -> None:
    with recorded() as found:
        records = [record(w=SAMPLED, r=DECIDED)] * (3 * MAX_TRACED)
        batch = loaded("postgres", *records, is_backlog=is_backlog)
    assert loads_of(found) == expected
    assert len(batch.patches[TAG]) == 3 * MAX_TRACED


def loads_of(found: Recorded) -> int:
    return sum(span.name == "load listings" for span in found)


CHANGED: dict[str, Any] = {"p": "cdc.shop.public.customers/1", "t": DECIDED_NS // 1_000_000}


def test_a_change_of_a_captured_row_begins_a_trace_that_leads_to_each_store_of_each_view() -> None:
    with recorded() as found:
        loaded("postgres", record(**CHANGED))
        loaded("valkey", record(**CHANGED), first_in=())
        loaded("postgres", record(**CHANGED, o=8))
        change = begin_change("cdc.shop.public.customers", Record("cdc.shop.public.customers", 1, 7, "k", b"", 1))
        assert change is not None
        change.end()
    first, second = [span for span in found if span.name == "patch listings"]
    routed = found.named("route cdc.shop.public.customers")
    assert (first.parent, routed.parent, first.trace, routed.trace != second.trace) == ("", "", routed.trace, True)
    assert (first.began_ns, first.ended_ns) == (DECIDED_NS, SENT_NS)
    assert len({first.id, second.id, routed.id}) == 3
    loads = [span for span in found if span.name == "load listings"]
    assert [(span.trace, span.parent) for span in loads[:2]] == [(first.trace, first.id)] * 2
    assert "secret" not in str(found)


@pytest.mark.parametrize("time", [None, "x", -1, 0, 2**62, 1.5, [1]])
def test_a_change_without_a_time_begins_when_it_was_sent(time: Any) -> None:
    with recorded() as found:
        loaded("postgres", record(**CHANGED | {"t": time}))
    patch = found.named("patch listings")
    assert patch.began_ns <= patch.ended_ns == SENT_NS


def test_the_sampler_decides_about_changes_as_all_processes_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.2")
    with recorded() as found:
        for store in ("postgres", "valkey"):
            loaded(store, *(record(**CHANGED, o=number) for number in range(200)))
    traces = {span.trace for span in found if span.name == "patch listings"}
    assert 10 < len(traces) < 90
    loads = [span.trace for span in found if span.name == "load listings"]
    assert sorted(loads) == sorted([*traces, *traces]), "each in both stores"


def test_few_changes_of_a_backlog_are_looked_at() -> None:
    with recorded() as found:
        loaded("postgres", *(record(**CHANGED, o=number) for number in range(3 * MAX_TRACED)), is_backlog=True)
    assert loads_of(found) == MAX_TRACED


def test_rows_of_a_batch_of_a_stream_view_are_below_the_span_of_the_batch() -> None:
    tag = "rooms@1.g2"
    rows = [record(b=12) for _ in range(3)]
    for row in rows:
        row.key = f"{tag}/secret".encode
    progress = {
        "batchId": 12,
        "numInputRows": 5,
        "timestamp": "2026-01-02T03:04:05.678Z",
        "durationMs": {"triggerExecution": 12},
    }
    with recorded() as found:
        record_batch(tag, progress)
        record_batch(tag, progress | {"batchId": 13, "numInputRows": 0})
        for store in ("postgres", "valkey"):
            loaded(store, *rows)
    batch = found.named("batch rooms")
    assert (batch.parent, batch.began_ns, batch.ended_ns) == ("", DECIDED_NS, SENT_NS)
    assert batch.facts == {"headwater.view": "rooms", "headwater.batch": 12, "headwater.records": 5}
    loads = [span for span in found if span.name == "load rooms"]
    assert [(span.trace, span.parent, span.facts["headwater.store"]) for span in loads] == [
        (batch.trace, batch.id, "postgres"),
        (batch.trace, batch.id, "valkey"),
    ]
