"""Which rows of a view a dead letter is about."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from headwater.eventlog.letters import Letter
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry
from headwater.eventlog.topics import EVENTS
from headwater.projections.view import View
from headwater.replay.dead_letters import LetterRows, rows_of_letter
from headwater.replay.errors import CannotRetry
from headwater.samples.listings.views import listing_card
from tests.support.listed import LISTING
from tests.support.observed import gate_view

LISTED = {
    "specversion": "1.0",
    "id": "listing/L1/1",
    "source": "/headwater",
    "type": "listing.listed",
    "subject": "listing/L1",
    "time": "2026-01-02T03:04:05.000000Z",
    "dataversion": 1,
    "sequence": 1,
    "data": {"listing_id": "L1", **LISTING},
}
BROKEN = {name: value for name, value in LISTED.items() if name != "id"}
RECORDS = (LISTED, BROKEN, None, LISTED | {"type": "order.placed"})
"""In partition 0 of `events`."""


@pytest.fixture
def deployment() -> Any:
    log = MemoryLog(partitions=1)
    for record in RECORDS:
        value = None if record is None else orjson.dumps(record)
        log.submit(Entry(EVENTS, "listing/L1/1", value, 1_767_323_045_000), 0).result()
    return SimpleNamespace(log=log)


def rows(deployment: Any, key: str, row: bytes | None = b"L1", view: View = listing_card) -> LetterRows | None:
    return rows_of_letter(deployment, view, key, Letter("refused", "", row, None))


def test_an_event_tells_its_rows_and_from_where_on_stores_have_it(deployment: Any) -> None:
    assert rows(deployment, "events/0/0") == LetterRows(frozenset({"L1"}), {"0": 0})
    assert rows(deployment, "events/0/3") == LetterRows(frozenset(), {"0": 3}), "the view does not read it"
    assert rows(deployment, "events/0/2") == LetterRows(), "it was erased"


def test_an_event_that_still_cannot_be_read_is_named(deployment: Any) -> None:
    with pytest.raises(CannotRetry, match='record 0:1 still cannot be read: not an event: "id" is missing'):
        rows(deployment, "events/0/1")


@pytest.mark.parametrize("key", ["events/0/4", "events/0/x", "events", "patches/0/17"])
def test_what_is_gone_or_nothing_is_known_about_tells_no_rows(deployment: Any, key: str) -> None:
    assert rows(deployment, key) is None


def test_a_refused_patch_tells_its_row(deployment: Any) -> None:
    key = "patches/postgres/listing_card@1/0/5/0"
    assert rows(deployment, key, "a/ü".encode()) == LetterRows(frozenset({"a/ü"}))
    assert rows(deployment, key, None) is None, "its key was too large to be kept"


def test_the_rows_of_a_stream_view_are_not_known(deployment: Any) -> None:
    assert rows(deployment, "events/0/0", view=gate_view()) is None
