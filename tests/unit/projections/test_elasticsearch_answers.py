"""Answers of Elasticsearch in which single items failed: what was lost is told from what cannot be read now."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from elasticsearch import ApiError

from headwater.projections.errors import GenerationMissing, LacksRight, StoreUnavailable, Unloadable
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.elasticsearch import client as elasticsearch_bulk
from headwater.projections.stores.elasticsearch.client import CONFLICT, IndexGone, documents, send, statuses, translated
from headwater.projections.stores.elasticsearch.store import ElasticsearchStore
from headwater.projections.stores.store import Batch, Target
from tests.contracts.view_histories import BY_THING

UNASSIGNED = {"type": "no_shard_available_action_exception", "reason": "No shard available for [get [t.ledger][x]]"}
CLOSED = {"type": "index_closed_exception", "reason": "closed"}
GONE = {"type": "index_not_found_exception", "reason": "no such index [t.ledger]"}
TIMEOUT = {"type": "receive_timeout_transport_exception", "reason": "request_id [1] timed out"}


def store_that_answers(*docs: dict[str, Any]) -> ElasticsearchStore:
    store = ElasticsearchStore(StoreSettings("t", "postgresql://", "http://127.0.0.1:1", "valkey://", len(docs)))
    client: Any = SimpleNamespace(
        mget=lambda **_: SimpleNamespace(body={"docs": list(docs)}),
        indices=SimpleNamespace(get=lambda **_: SimpleNamespace(body={})),
    )
    store._opened = client
    return store


@pytest.mark.parametrize("error", [UNASSIGNED, CLOSED, TIMEOUT], ids=lambda error: error["type"])
def test_a_ledger_that_cannot_be_read_is_not_lost(error: dict[str, Any]) -> None:
    found = {"found": True, "_seq_no": 1, "_primary_term": 1, "_source": {"partition": 0, "next": 1, "applied": {}}}
    for store in (store_that_answers({"error": error}), store_that_answers(found, {"error": error})):
        with pytest.raises(StoreUnavailable, match=error["type"]):
            store.ledgers(Target(BY_THING, 1))
        with pytest.raises(StoreUnavailable, match=error["type"]):
            store.apply([Target(BY_THING, 1)], {0: Batch(1)})


def test_a_ledger_that_is_not_there_is_lost() -> None:
    for store in (store_that_answers({"error": GONE}), store_that_answers({"found": False})):
        assert store.ledgers(Target(BY_THING, 1)) == {}
        with pytest.raises(GenerationMissing):
            store.apply([Target(BY_THING, 1)], {0: Batch(1)})


def test_documents_are_found_missing_or_of_an_index_that_is_gone() -> None:
    docs = [{"found": True, "_id": "a"}, {"found": False, "_id": "b"}]
    assert documents({"docs": docs}) == docs
    with pytest.raises(IndexGone):
        documents({"docs": [*docs, {"error": GONE}]})


def item(status: int, kind: str, reason: str = "why") -> dict[str, Any]:
    return {"index": {"status": status, "error": {"type": kind, "reason": reason, "caused_by": {"reason": "indeed"}}}}


WRITTEN = {"index": {"status": 201}}
RACED = item(409, "version_conflict_engine_exception")
OVERSIZED = item(400, "illegal_argument_exception", "Document contains at least one immense term")
REFUSED = [item(400, "document_parsing_exception"), OVERSIZED, item(413, "content_too_long_exception")]
AWAY = [
    item(503, "unavailable_shards_exception"),
    item(429, "es_rejected_execution_exception"),
    item(403, "cluster_block_exception"),
    item(400, "index_closed_exception"),
    item(404, "shard_not_found_exception"),
    item(401, "security_exception"),
    item(400, "illegal_argument_exception", "no write index is defined for alias [t.by_thing.g1.write]"),
]


def test_writes_that_went_through_and_races_that_were_lost_are_told() -> None:
    assert statuses({"items": [WRITTEN, RACED, {"create": {"status": 201}}]}) == [201, CONFLICT, 201]


@pytest.mark.parametrize("refused", REFUSED, ids=lambda each: each["index"]["error"]["type"])
def test_a_document_that_does_not_fit_is_told_even_beside_what_can_be_tried_again(refused: dict[str, Any]) -> None:
    with pytest.raises(Unloadable, match="indeed"):
        statuses({"items": [WRITTEN, AWAY[0], refused]})


@pytest.mark.parametrize("away", AWAY, ids=lambda each: each["index"]["error"]["type"])
def test_an_index_that_takes_nothing_now_costs_no_patch(away: dict[str, Any]) -> None:
    with pytest.raises(StoreUnavailable, match="indeed") as found:
        statuses({"items": [WRITTEN, away]})
    assert not isinstance(found.value, IndexGone)


@pytest.mark.parametrize(("status", "kind"), [(401, "security_exception"), (403, "security_exception"), (403, "other")])
def test_a_right_that_is_missing_is_named_with_what_helps(status: int, kind: str) -> None:
    answer: Any = SimpleNamespace(status=status)
    with pytest.raises(StoreUnavailable) as found, translated():
        raise ApiError(kind, answer, {"error": {"type": kind, "reason": "why"}})
    with pytest.raises(StoreUnavailable) as found_in_items:
        statuses({"items": [item(status, kind)]})
    for each in (found.value, found_in_items.value):
        assert isinstance(each, LacksRight) == ("headwater grants" in str(each)) == (kind == "security_exception")


def test_an_index_that_was_dropped_is_gone() -> None:
    with pytest.raises(IndexGone):
        statuses({"items": [item(404, "index_not_found_exception")]})


def test_many_large_rows_go_in_requests_that_a_server_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elasticsearch_bulk, "REQUEST_BYTES", 90)
    sent: list[list[bytes]] = []

    def bulk(operations: list[bytes], **_: object) -> Any:
        sent.append(operations)
        return SimpleNamespace(
            body={"items": [{"index": {"status": 200 + len(operation)}} for operation in operations]}
        )

    rows = [b"x" * size for size in (10, 60, 20, 90, 1, 1, 1)]
    client: Any = SimpleNamespace(bulk=bulk)
    found = send(client, "t.by_thing.g1", rows)
    assert found == [200 + len(row) for row in rows]
    assert sent == [rows[:3], rows[3:4], rows[4:]]
