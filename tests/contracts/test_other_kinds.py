"""Stores know what every view has: a view of another kind is stored, loaded and read as a table view is."""

from __future__ import annotations

from typing import Any

import orjson

from headwater import INTEGER, TEXT, Cache, Elasticsearch, Postgres
from headwater.projections.loading.decoding import read_into
from headwater.projections.stores.names import patch_key
from headwater.projections.stores.store import Batch
from headwater.projections.stream.view import BATCH as STREAM_BATCH
from headwater.projections.table.layout import DELETED
from headwater.projections.table.patch import WHOLE
from tests.contracts.opened_stores import Server
from tests.contracts.test_view_stores import created, server, store_name
from tests.support.observed import gate_view
from tests.support.whole_rows import BATCH, BUSIEST

__all__ = ["server", "store_name"]  # fixtures

NINE, TEN = "2026-01-01T09", "2026-01-01T10"
EVERYWHERE = (Postgres(), Elasticsearch(), Cache())
AT = "2026-01-01T10:59:00.000Z"


def batch_of(start: int, *rows: tuple[str, int, int, dict[str, Any]]) -> Batch:
    """Patches: key, source partition, number of the batch that made the row, and the row."""
    batch = Batch(start, first_offset=start)
    for key, partition, number, row in rows:
        fields = {BATCH: number, DELETED: False, **row}
        value = {"p": f"observations/{partition}", "o": number, "i": 0, "t": 0, "c": fields}
        read_into(batch, patch_key(BUSIEST.tag, key).encode(), orjson.dumps(value))
        batch.next_offset += 1
    return batch


def test_whole_rows_replace_each_other_in_the_order_of_their_batches(server: Server) -> None:
    target, store = created(server, BUSIEST), server.open()
    first = {"listing": "L1", "views": 3, "at": AT}
    store.apply([target], {0: batch_of(0, (TEN, 0, 4, first), (NINE, 0, 5, first))})
    later = {"listing": "L2", "views": 5, "at": None}
    store.apply([target], {0: batch_of(2, (TEN, 0, 7, later), (TEN, 1, 6, first))})
    store.settle()
    assert server.rows(BUSIEST) == {TEN: {"hour": TEN, **later}, NINE: {"hour": NINE, **first}}
    store.apply([target], {0: batch_of(4, (NINE, 0, 8, {DELETED: True}))})
    again = server.open()
    again.apply([target], {0: batch_of(0, (TEN, 0, 4, first), (NINE, 0, 5, first))})
    assert server.rows(BUSIEST) == {TEN: {"hour": TEN, **later}}
    again.drop(target)
    assert again.ledgers(target) == {}


def test_a_row_of_a_stream_view_is_deleted_by_its_batch_and_back_with_a_later_one(server: Server) -> None:
    view = gate_view(key="gate", columns={"gate": TEXT, "number": INTEGER}, stores=EVERYWHERE, deleted_by="gone")
    target, store = created(server, view), server.open()

    def take(start: int, *rows: tuple[str, int, dict[str, Any]]) -> None:
        batch = Batch(start, first_offset=start)
        for key, number, fields in rows:
            value = {"b": number, "t": 0, "c": {STREAM_BATCH: number, **fields}}
            read_into(batch, patch_key(target.tag, key).encode(), orjson.dumps(value))
            batch.next_offset += 1
        store.apply([target], {0: batch})
        store.settle()

    take(0, ("a", 2, {"number": 1}), ("b", 2, {"number": 1}), ("c", 2, {"number": 0, DELETED: True}))
    assert server.rows(view) == {"a": {"gate": "a", "number": 1}, "b": {"gate": "b", "number": 1}}
    take(3, ("a", 4, {"number": 5, DELETED: True}))
    take(4, ("a", 3, {"number": 9}), ("a", 4, {"number": 5, DELETED: True}))
    assert server.rows(view) == {"b": {"gate": "b", "number": 1}}
    take(6, ("a", 5, {"number": 6}), ("c", 1, {"number": 7}))
    assert server.rows(view) == {"a": {"gate": "a", "number": 6}, "b": {"gate": "b", "number": 1}}


def test_all_rows_of_the_last_record_are_taken_again_and_no_earlier_one(server: Server) -> None:
    view = gate_view(key="gate", columns={"gate": TEXT, "number": INTEGER}, realtime=True, stores=EVERYWHERE)
    target, store = created(server, view), server.open()

    def take(start: int, *rows: tuple[str, int, int]) -> None:
        batch = Batch(start, first_offset=start)
        for key, offset, number in rows:
            place = {"p": "observations/0", "o": offset, "i": WHOLE, "t": 0}
            value = place | {"c": {STREAM_BATCH: offset, "number": number}}
            read_into(batch, patch_key(target.tag, key).encode(), orjson.dumps(value))
            batch.next_offset += 1
        store.apply([target], {0: batch})
        store.settle()

    take(0, ("a", 4, 4), ("a", 5, 5), ("b", 5, 5))
    take(3, ("a", 4, 4), ("a", 5, 5), ("b", 5, 5), ("c", 5, 5))
    assert server.rows(view) == {key: {"gate": key, "number": 5} for key in "abc"}
    take(7, ("c", 5, 5), ("b", 4, 4), ("a", 6, 6))
    assert server.rows(view) == {"a": {"gate": "a", "number": 6}} | {k: {"gate": k, "number": 5} for k in "bc"}
