"""Times at the edges of the calendar: what no store has is no time, whoever reads it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from headwater.projections.reading.reader import lift
from headwater.projections.table.event_data import Unreadable
from headwater.projections.table.expressions import Source
from headwater.projections.table.patch import Patch
from headwater.projections.table.view import TableView
from tests.support.edge_times import INSIDE, OUTSIDE, journeys, legs, trains, travelled
from tests.support.topic_records import TopicRecord, patches_in

LACKS = '"journey.travelled" lacks a field, or has it with another type: '


def read(view: TableView, source: Source) -> dict[str, Any]:
    (patch,) = patches(view, source)
    return patch.fields


def leg_of(source: Source) -> list[dict[str, Any]]:
    (found,) = read(legs, source).values()
    return list(found)


def patches(view: TableView, source: Source) -> list[Patch]:
    return patches_in(view, TopicRecord("0", source.position.offset, source.timestamp_ms, b"k", source.record.encode()))


@pytest.mark.parametrize("text", OUTSIDE)
def test_an_event_with_a_time_that_no_store_has_cannot_be_read_if_it_needs_one(text: str) -> None:
    with pytest.raises(Unreadable, match=f"^{re.escape(LACKS)}began$"):
        patches(journeys, travelled(1, began=text))
    for view in (legs, trains):
        assert patches(view, travelled(1, began=text))
    with pytest.raises(Unreadable, match=f"^{re.escape(LACKS)}{re.escape('legs[].left')}$"):
        patches(legs, travelled(1, left=text))


@pytest.mark.parametrize("text", OUTSIDE)
def test_a_time_that_no_store_has_is_null_if_it_may_be(text: str) -> None:
    row = read(journeys, travelled(1, ended=text))
    assert row["began"] == "2026-01-02T03:04:05.000Z"
    assert row["ended"] is None
    assert row["first"] is None
    (leg,) = leg_of(travelled(1, arrived=text))
    assert leg["left"] == "2026-01-02T03:04:05.000Z"
    assert "arrived" not in leg
    assert read(trains, travelled(1, arrived=text))["arrived"] is None


@pytest.mark.parametrize(("text", "shown"), INSIDE.items())
def test_the_first_and_the_last_time_of_the_calendar_are_times(text: str, shown: str) -> None:
    assert read(journeys, travelled(1, began=text, ended=text))["ended"] == shown
    (leg,) = leg_of(travelled(1, left=text, arrived=text))
    assert (leg["left"], leg["arrived"]) == (shown, shown)


def test_an_optional_field_of_an_item_with_another_type_is_null_and_any_value_is_a_text() -> None:
    source = travelled(1, arrived=[7])
    (leg,) = source.envelope.data["legs"]
    leg["train"] = 12
    (found,) = lift(legs, source)[0].fields.values()
    assert [(each["train"], "arrived" in each) for each in found] == [("12", False)]


def test_whatever_an_event_brings_its_record_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> dict[str, Any]:
        raise OverflowError("date value out of range")

    monkeypatch.setattr("headwater.projections.table.event_data.EventFields.read", broken)
    source = travelled(1, ended=7)  # not as declared
    with pytest.raises(Unreadable, match="OverflowError: date value out of range"):
        patches(journeys, source)
