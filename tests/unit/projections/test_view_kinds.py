"""Views of any kind are registered, looked up and described by what they have in common."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from headwater.eventlog.settings import LogSettings
from headwater.projections.errors import ViewDeclarationError
from headwater.projections.generations.registry.sources import read_by, sources
from headwater.projections.kinds import table_view
from headwater.projections.registry import ViewRegistry
from headwater.projections.stores.declared import Postgres
from headwater.projections.table.folds import last
from headwater.projections.table.lookups import Lookup, looked_up_types
from headwater.projections.table.types import ColumnType
from headwater.projections.table.view import TableView
from headwater.samples.listings.domain import Listed
from tests.support.whole_rows import BUSIEST, KINDS

MOST_VIEWED = Lookup("busiest", "city", {"most_viewed": "listing"})


def homes(*lookups: Lookup) -> TableView:
    return TableView("homes", "listing_id", {"city": last({Listed: "city"})}, (Postgres(),), lookups=lookups)


def test_a_registry_has_views_of_several_kinds() -> None:
    view = homes(MOST_VIEWED)
    registry = ViewRegistry([("bank.views", view), ("bank.streams", BUSIEST)])
    assert registry.of_kind(TableView) == [view]
    assert registry.in_store("valkey") == [BUSIEST]
    assert looked_up_types(view, registry.views) == {"most_viewed": ColumnType.TEXT}


def test_a_deployment_has_the_views_of_every_kind_in_its_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.projections.registry.KINDS", KINDS)
    assert [*ViewRegistry.load(["tests.support.whole_rows"]).views] == ["streams", "busiest"]
    nowhere = replace(BUSIEST, classes=(Listed,))
    monkeypatch.setattr("tests.support.whole_rows.BUSIEST", nowhere)
    with pytest.raises(ViewDeclarationError, match='of the sample "listings"'):
        ViewRegistry.load(["tests.support.whole_rows"])


def test_views_of_two_kinds_cannot_have_one_name() -> None:
    with pytest.raises(ViewDeclarationError, match='view "homes": declared in ') as refused:
        ViewRegistry([("bank.views", homes()), ("bank.streams", replace(BUSIEST, name="homes"))])
    said = r'declared in "bank\.views", .*:\d+ and in "bank\.streams": rename one'
    assert re.search(said, str(refused.value))


def test_the_sources_of_views_are_those_of_all_their_topics() -> None:
    settings = LogSettings(partitions=2)
    assert sources([homes(), BUSIEST], settings) == ["0", "1", "observations/0", "observations/1"]
    ranges = {"0": (0, 5), "observations/1": (0, 7)}
    assert (read_by(BUSIEST, ranges), read_by(homes(), ranges)) == (ranges, {"0": (0, 5)})


def test_only_table_views_are_folded() -> None:
    assert table_view(homes()).name == "homes"
    with pytest.raises(TypeError, match='view "busiest" is a WholeRows: only a TableView is folded'):
        table_view(BUSIEST)


def test_what_follows_from_a_declaration_is_computed_once_and_not_for_a_view_of_another_name() -> None:
    view = homes()
    assert (view.plan.lifts is view.plan.lifts, view.layout is view.plan.layout) == (True, True)
    other = view.named("houses")
    assert (other.tag, other.declaration[1:], other.plan is view.plan) == ("houses@1", view.declaration[1:], False)
