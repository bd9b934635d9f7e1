"""The spans that loaders make of patches: of their way through the live query, and of each store."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE

from projections.loading.decoding import read_into
from projections.loading.patch_spans import MAX_TRACED, PatchSpans
from projections.stores.store import Batch
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
    loads = [each for each in found if each.name == "load listings"]
    assert (patch.trace, patch.parent) == (TRACE, "b7ad6b7169203331")
    assert (patch.began_ns, patch.ended_ns) == (DECIDED_NS, SENT_NS)
    assert [(each.trace, each.parent) for each in loads] == [(TRACE, patch.id)] * 2
    assert [each.facts["headwater.store"] for each in loads] == ["postgres", "valkey"]
    assert "secret" not in str(found)


def test_patches_of_one_batch_and_the_batch_lead_to_each_other() -> None:
    other = SAMPLED.replace("0af7", "1af7")
    with recorded() as found:
        loaded("postgres", record(w=SAMPLED, r=DECIDED), record(), record(w=other, r=DECIDED))
    batch = found.named("load postgres")
    loads = [each for each in found if each.name == "load listings"]
    assert batch.parent == ""
    assert set(batch.links) == {(each.trace, each.id) for each in loads}
    assert {each.links for each in loads} == {((batch.trace, batch.id),)}
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
    return sum(each.name == "load listings" for each in found)
