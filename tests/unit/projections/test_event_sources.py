"""Declarations with events as a source: what is refused, and what the rest of Headwater knows of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headwater import Deleted, Event, events, observations
from headwater.eventlog.envelope import Envelope
from headwater.projections.errors import ViewDeclarationError
from headwater.projections.registry import ViewRegistry
from headwater.projections.view import View
from headwater.samples.orders.domain.order import Placed
from tests.support.captured_things import Thing
from tests.support.gate_events import Entered, Locked, entered_view
from tests.support.observed import START, Passed, gate_view

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HOUR: Any = {"late_after": "1h"}
AN_ENTERED: Any = Entered
A_PASSED: Any = Passed
A_THING: Any = Thing


class Kept(Event, type="gate.kept"):
    """Has a field that every source of events has."""

    gate: str
    sequence: int


class Barred(Event, type="gate.barred"):
    """Declares the weight as a text."""

    gate: str
    weight: str


class Untyped(Event):
    """Has no type."""

    gate: str


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (events(**HOUR), "events() needs at least one class of events"),
        (events(Entered, late_after="soon"), '"soon" is not a duration'),
        (events(Untyped, **HOUR), '"Untyped" is not a class of events with a type'),
        (events(A_PASSED, **HOUR), '"Passed" is not a class of events'),
        (observations(AN_ENTERED, **HOUR), '"Entered" is not a class of observations'),
        (events(Kept, **HOUR), 'field "sequence" of "gate.kept" has the name of a column that every source has'),
        (events(Entered, Barred, **HOUR), 'field "weight" with different types'),
        (events(A_THING, **HOUR), '"Thing" is a captured table: its topic keeps only the last change of each row'),
        (events(Deleted(Thing), **HOUR), "use a Lookup for what is true now; for what was true then, let a process"),
        (observations(A_THING, **HOUR), '"Thing" is a captured table'),
        (Thing, '"Thing" is a captured table'),
        (Entered, '"Entered" is not a source: use observations(…) or events(…)'),
    ],
)
def test_what_is_refused(source: Any, problem: str) -> None:
    with pytest.raises(ViewDeclarationError) as refused:
        entered_view(sources={"passed": source})
    assert problem.lower() in str(refused.value).lower()
    assert str(refused.value).startswith('view "gates": source "passed": ')


def of_both(entered: DataFrame, passed: DataFrame) -> DataFrame:
    return entered.union(passed)


def test_what_it_is_to_the_rest() -> None:
    view = entered_view(sources={"passed": events(Entered, Locked, late_after="1h")})
    assert (view.topics, view.classes, view.beaten) == (("events",), (Entered, Locked), ())
    assert (view.reads("events"), view.reads("observations")) == (True, False)
    assert [view.handles(each) for each in ("gate.entered", "gate.came", "gate.locked", "gate.kept")] == [
        True,
        True,
        True,
        False,
    ]
    known: View = view
    envelope = Envelope("gate/a/1", "gate.entered", "gate/a", START, {"gate": "a", "weight": 1}, sequence=1)
    assert known.rows_of(envelope) is None, "the query decides"


def test_what_a_view_over_events_and_observations_is_to_the_rest() -> None:
    sources = {"entered": events(Entered, late_after="1h"), "passed": observations(Passed, late_after="1h")}
    view = gate_view(sources=sources, query=of_both)
    assert (view.topics, view.classes) == (("events", "observations"), (Entered,))
    assert view.beaten == ("observations",), "owners append the heartbeats of events"
    assert (view.reads("events"), view.reads("observations")) == (True, True)
    assert (view.handles("gate.entered"), view.handles("passed")) == (True, False)
    assert gate_view().classes == ()


def test_a_fingerprint_follows_the_classes() -> None:
    before = entered_view().fingerprint
    assert entered_view().fingerprint == before
    for source in (
        events(Entered, late_after="11m"),
        events(Entered, Locked, late_after="10m"),
        observations(Passed, late_after="10m"),
    ):
        assert entered_view(sources={"passed": source}).fingerprint != before


def test_the_domain_of_the_events_must_be_deployed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "orders_by_time.py").write_text(
        "from headwater.samples.orders.domain.order import Placed\n"
        "from headwater import TEXT, Postgres, StreamView, events\n"
        "def all_of_them(placed):\n    return placed.select('order_id')\n"
        "orders_by_time = StreamView(name='orders_by_time', key='order_id', columns={'order_id': TEXT},\n"
        "    sources={'placed': events(Placed, late_after='1h')}, query=all_of_them, stores=(Postgres(),))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ViewDeclarationError, match=r'reads "order\.placed" of the sample "orders"'):
        ViewRegistry.load(["orders_by_time"])
    assert ViewRegistry.load(["orders_by_time", "orders"]).view("orders_by_time").classes == (Placed,)


def test_its_columns_are_documented() -> None:
    text = (Path(__file__).parents[3] / "docs" / "stream-views.md").read_text()
    (line,) = re.findall(r"`events\(.*?\n(?=- )", text, re.DOTALL)
    given = set(events(Entered, Locked, late_after="1h").columns) - {"gate", "weight", "verdict"}
    assert given == {"time", "recordedtime", "id", "stream", "sequence", "type"}
    assert all(f"`{name}`" in line for name in given)
