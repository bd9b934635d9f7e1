"""How events have made a row, and in which streams they are."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from headwater.commands.declaring.registry import CommandRegistry
from headwater.eventlog.envelope import Envelope, Position, encode
from headwater.projections.folding.row_changes import RowChanges, streams_of_row
from headwater.projections.reading.reader import fold
from headwater.projections.registry import ViewRegistry
from headwater.projections.table.computations import envelope
from headwater.projections.table.expressions import Source
from headwater.projections.table.json_text import json_value, with_json
from headwater.projections.table.view import TableView
from tests.support.listed import LISTING
from tests.support.planned import planned, plans_in_postgres, sources

VIEWS = ViewRegistry.load(["listings", "orders", "shop"]).views
AGGREGATES = list(CommandRegistry.load(["listings", "orders", "shop"]).aggregates.values())
AT = datetime(2026, 1, 2, tzinfo=UTC)


def event(version: int, kind: str, listing: str = "L1", **data: Any) -> Envelope:
    data = {"listing_id": listing, "city": "Sacramento", **data}
    return Envelope(f"listing/{listing}/{version}", kind, f"listing/{listing}", AT, data, sequence=version)


LISTED = event(1, "listing.listed", **LISTING | {"description": ""})
CHANGED = event(2, "listing.price_changed", price=61_000, previous_price=59_222)
WITHDRAWN = event(3, "listing.withdrawn", price=61_000, square_feet=836, under_offer=False)
RELISTED = event(4, "listing.relisted", price=62_000, square_feet=836)
HISTORY = [LISTED, CHANGED, WITHDRAWN, RELISTED]


def folded(view: str, key: str, events: list[Envelope]) -> list[Any]:
    changes = RowChanges(VIEWS[view], key)
    return [changes.add(Position(0, at), encode(each)) for at, each in enumerate(events)]


def test_each_change_has_the_row_before_and_after_it() -> None:
    listed, changed, *_ = folded("listings", "L1", HISTORY)
    assert listed.before is None and listed.after["price"] == 59_222
    assert changed.before == listed.after and changed.after["price"] == 61_000
    assert changed.columns == ["price", "price_changes"]
    assert (changed.event.id, changed.position) == ("listing/L1/2", Position(0, 1))


def test_a_row_that_is_deleted_and_restored() -> None:
    _, before, withdrawn, relisted = folded("listing_card", "L1", HISTORY)
    assert before.after is not None and withdrawn.after is None and relisted.before is None
    assert relisted.after["price"] == 62_000 and relisted.after["city"] == "Sacramento"


@pytest.mark.parametrize("view", ["listings", "listing_card", "listing_search", "city_market", "streams"])
def test_the_last_row_is_that_of_the_reference(view: str) -> None:
    declared = VIEWS[view]
    assert isinstance(declared, TableView)
    sources = [Source(each, Position(0, at), 0, encode(each).decode()) for at, each in enumerate(HISTORY)]
    # the time of a record is that of its event
    sources = [replace(source, timestamp_ms=int(AT.timestamp() * 1000)) for source in sources]
    rows = fold(declared, sources)
    for key, row in rows.items():
        changes = RowChanges(declared, key)
        for at, each in enumerate(HISTORY):
            changes.add(Position(0, at), encode(each))
        assert [changes.row] == with_json([row], declared.json_forms, json_value)


def test_other_events_and_records_that_cannot_be_read_change_nothing() -> None:
    other = event(1, "listing.listed", "L2", **LISTING | {"description": ""})
    broken = event(2, "listing.price_changed", price=None, previous_price=1)
    assert folded("listings", "L1", [other, broken]) == [None, None]
    assert RowChanges(VIEWS["listings"], "L1").add(Position(0, 0), b"{") is None


@pytest.mark.parametrize(
    ("view", "key", "streams"),
    [
        ("listings", "L1", ["listing/L1"]),
        ("listing_card", "a/b", ["listing/a/b"]),
        ("streams", "listing/a/b/7", ["listing/a/b"]),
        ("city_market", "Sacramento", None),
        ("hourly_views", "x", None),
    ],
)
def test_the_streams_of_a_row_are_known_if_its_key_tells_them(view: str, key: str, streams: list[str] | None) -> None:
    assert streams_of_row(VIEWS[view], key, AGGREGATES) == streams


def test_a_view_keyed_by_the_stream() -> None:
    declared = VIEWS["listings"]
    assert isinstance(declared, TableView)
    by_stream = replace(declared, key=envelope("stream"), key_name="stream")
    assert streams_of_row(by_stream, "listing/L1", AGGREGATES) == ["listing/L1"]


def test_views_of_captured_tables_and_of_items_tell_no_streams() -> None:
    found = {name: streams_of_row(view, "x", AGGREGATES) for name, view in VIEWS.items()}
    captured = [name for name, view in VIEWS.items() if view.tables]
    assert captured and all(found[name] is None for name in captured)
    assert all(found[name] is None for name, view in VIEWS.items() if getattr(view, "each", None))


def test_an_event_that_nobody_declares_tells_nothing() -> None:
    assert streams_of_row(VIEWS["listings"], "L1", []) is None


def test_a_stream_view_is_not_folded() -> None:
    assert not VIEWS["listings"].has_own_query and VIEWS["hourly_views"].has_own_query
    with pytest.raises(TypeError, match="hourly_views"):
        RowChanges(VIEWS["hourly_views"], "x")


def test_a_change_of_json_has_the_values_and_names_every_column_that_differs() -> None:
    given = [planned("P1", details={"n": 1}), planned("P1", details={"n": 1.0}), planned("P1", details={"n": [True]})]
    changes = RowChanges(plans_in_postgres, "P1")
    first, same, other = (changes.add(source.position, source.record.encode()) for source in sources(*given))
    assert first is not None and same is not None and other is not None
    assert (first.after or {})["details"] == {"n": 1}
    assert "details" in same.columns and "whole_parts" not in same.columns, "1 and 1.0 are two texts"
    assert (other.before or {})["details"] == {"n": 1.0}
    assert (other.after or {})["details"] == {"n": [True]}
    story = [{"details": each["details"], "note": ["of", "two"], "rank": 1} for each in given[1:]]
    assert (other.after or {})["story"] == story
