"""What `late="keep"` declares: a second view, of the late observations."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from headwater import (
    FLOAT,
    INTEGER,
    JSON,
    TEXT,
    TIME,
    Cache,
    Elasticsearch,
    Postgres,
    Ranking,
    StreamView,
    events,
    observations,
)
from headwater.projections.errors import ViewDeclarationError
from headwater.projections.registry import ViewRegistry
from headwater.projections.stream.view import late_view
from tests.support.gate_events import Entered, Locked
from tests.support.observed import Closed, Passed, Weighed, gate_view, kept


def two(passed: Any, others: Any) -> Any:
    return passed, others


def test_the_view_of_late_observations() -> None:
    view = kept(version=3, final=True)
    assert (view.tag, view.key_name) == ("gates_late@3", "id")
    assert view.types == {
        "id": TEXT, "source": TEXT, "type": TEXT, "time": TIME, "recordedtime": TIME, "late_s": FLOAT, "data": JSON,
    }  # fmt: skip
    assert not view.final
    assert late_view(view) is None
    assert late_view(gate_view()) is None
    assert late_view(gate_view(late="amend", keep_state="1d")) is None


def test_each_class_is_late_by_the_strictest_of_its_sources() -> None:
    sources = {
        "passed": observations(Passed, late_after="2h"),
        "others": observations(Closed, Passed, late_after="70m"),
    }
    view = kept(sources=sources, query=two)
    assert {name: source.late_after for name, source in view.sources.items()} == {"passed": "70m", "closed": "70m"}
    assert [line for line in view.declaration if line.startswith("source closed")] == [
        "source closed: late observations(closed 1 [('gate', 'text')]; late after 70m)"
    ]
    apart = {"passed": sources["passed"], "others": observations(Weighed, late_after="1h")}
    assert {*kept(sources=apart, query=two).sources} == {"passed", "weighed"}, "fields may have different types"


def test_events_are_kept_beside_observations() -> None:
    sources = {"passed": events(Entered, Locked, late_after="2h"), "others": observations(Passed, late_after="1h")}
    view = kept(sources=sources, query=two)
    assert view.types == kept().types
    assert (view.topics, view.classes) == (("events", "observations"), (Entered, Locked))
    assert {*view.sources} == {"gate.entered", "gate.locked", "passed"}
    assert view.sources["gate.locked"].declaration == (
        "late events(gate.locked 1 [('gate', 'text'), ('verdict', 'text')]; late after 2h)"
    )
    assert view.sources["passed"].declaration == kept().sources["passed"].declaration.replace("10m", "1h")
    assert kept(sources={"passed": sources["passed"]}).fingerprint != view.fingerprint


def test_it_has_the_same_stores_and_the_indexes_of_columns_that_both_views_have() -> None:
    columns = {"gate": TEXT, "time": TIME, "data": INTEGER, "source": TEXT}
    stores = (
        Postgres(indexes=(("gate",), ("time",), ("source", "-time"), ("source", "-gate"), ("data",))),
        Elasticsearch(text=("gate", "source"), facets=("data", "source")),
        Cache(),
    )
    view = kept(columns=columns, key="gate", stores=stores)
    assert view.stores == (
        Postgres(indexes=(("time",), ("source", "-time"))),
        Elasticsearch(text=("source",), facets=("source",)),
        Cache(),
    )


def test_its_cache_has_the_rankings_of_columns_that_both_views_have() -> None:
    rankings = (
        Ranking("-time"),
        Ranking("-weight"),
        Ranking("-weight", within=("source",)),
        Ranking("time", within=("source",)),
        Ranking("time", within=("door", "source")),
        Ranking("time", within=("id",)),
        Ranking("late_s", within=("id", "source")),
    )
    columns = {"gate": TEXT, "door": TEXT, "time": TIME, "weight": INTEGER, "source": TEXT, "id": TEXT, "late_s": FLOAT}
    changes = {"columns": columns, "key": "gate", "stores": (Cache(rankings=rankings),)}
    view = kept(**changes)
    assert view.stores == (Cache(rankings=(Ranking("-time"), Ranking("time", within=("source",)))),)
    registry = ViewRegistry([("gates.views", gate_view(late="keep", **changes))])
    assert [*registry.views] == ["gates", "gates_late"], "a deployment with it starts"


def test_a_registry_has_it_beside_its_view() -> None:
    view = gate_view(late="keep")
    registry = ViewRegistry([("gates.views", view)])
    assert [*registry.views] == ["gates", "gates_late"]
    assert registry.of_kind(StreamView)[1].fingerprint == kept().fingerprint
    assert [span.name for span in registry.in_store("valkey")] == ["gates", "gates_late"]


@pytest.mark.parametrize("is_first", [True, False])
def test_another_view_cannot_have_its_name(*, is_first: bool) -> None:
    found = [("gates.views", gate_view(late="keep")), ("bank.views", gate_view(name="gates_late"))]
    with pytest.raises(ViewDeclarationError) as refused:
        ViewRegistry(found if is_first else found[::-1])
    said, _, place = str(refused.value).partition(" (")
    assert said == (
        'view "gates_late": declared in "bank.views", and by late="keep" of the view "gates" in "gates.views": '
        "rename one"
    )
    assert place == f"{found[0][1].place})"


def test_a_deployment_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("gates_here")
    module.view = gate_view(late="keep")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gates_here", module)
    assert {"gates", "gates_late"} <= ViewRegistry.load(["gates_here"]).views.keys()


def test_its_version_and_fingerprint_are_those_of_what_it_reads() -> None:
    before = kept()
    for changes in (
        {"sources": {"passed": observations(Passed, late_after="11m")}},
        {"sources": {"passed": observations(Passed, Closed, late_after="10m")}},
        {"version": 2},
    ):
        assert kept(**changes).fingerprint != before.fingerprint
    assert kept(final=True).fingerprint == before.fingerprint
    assert replace(gate_view(), late="keep").fingerprint != gate_view().fingerprint
