"""Rows that patches wrote and rows that a rebuild wrote are the same to `replay verify`, in every real store."""

from __future__ import annotations

import random

import pytest

from headwater.projections.reading.reader import states
from headwater.projections.stores.open import compared_of
from headwater.projections.stores.store import Target
from headwater.projections.table.view import TableView
from headwater.projections.testing.contracts import History, history, load
from headwater.replay.comparison import compare
from tests.contracts.deciding import of_stores
from tests.contracts.opened_stores import RealServer
from tests.contracts.test_view_stores import START, VIEWS, arrow, created, events_of, server, store_name

__all__ = ["server", "store_name"]  # fixtures
REAL = ("postgres", "elasticsearch", "valkey")
DELETING = {name: view for name, view in VIEWS.items() if view.deleted_by}


def never_deleted(view: TableView) -> History:
    """A history in which nothing deletes or restores a row: random ones do both to almost every row."""
    kept = [event for event in events_of(view) if event not in (*view.deleted_by, *view.restored_by)]
    return history(view, kept, 7)


def differences(server: RealServer, view: TableView, told: History) -> list[object]:
    """Compare generation 1, loaded live, with generation 2, written in bulk."""
    live, bulk = created(server, view), Target(view, 2)
    load(server.open(), live, told, random.Random(1))
    store = server.open()
    store.create(bulk, {}, START)
    store.bulk_writer(bulk).write(iter([arrow(view, states(view, told.sources))]))
    store.finish(bulk)
    return compared_again(server, live, bulk)


def compared_again(server: RealServer, live: Target, bulk: Target) -> list[object]:
    found: list[object] = []
    for name, (reader, row_of) in compared_of(server.open().name, live.view, server.settings).items():
        result = compare(reader, name, live, bulk, lambda: frozenset, row_of)
        assert result.rows
        found += result.sample
    return found


@pytest.mark.parametrize(("store_name", "view"), of_stores(REAL, VIEWS.values(), ("postgres",)))
def test_a_rebuild_writes_what_patches_wrote(server: RealServer, view: TableView) -> None:
    assert differences(server, view, history(view, events_of(view), 7)) == []


@pytest.mark.parametrize(("store_name", "view"), of_stores(REAL, DELETING.values(), ()))
def test_so_it_does_if_no_row_was_deleted(server: RealServer, view: TableView) -> None:
    assert differences(server, view, never_deleted(view)) == []
