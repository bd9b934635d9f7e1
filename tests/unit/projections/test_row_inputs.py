"""Rows of views that processes read: the deployment does not start if no view has them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict

from headwater import (
    BOOLEAN,
    DATE,
    DECIMAL,
    FLOAT,
    INTEGER,
    JSON,
    POINT,
    TEXT,
    TIME,
    Event,
    Postgres,
    Process,
    Reaction,
    RowDeleted,
    TableView,
    Topic,
    ViewRow,
    last,
)
from headwater.commands.errors import DeclarationError
from headwater.projections.registry import ViewRegistry
from headwater.projections.row_inputs import FITTING, check_view_rows
from tests.contracts.view_histories import BY_THING
from tests.support.observed import gate_view
from tests.support.personal_visits import visits_at_once

COLUMNS = {"gate": TEXT, "start": TIME, "people": INTEGER, "share": FLOAT, "ok": BOOLEAN, "place": POINT, "ids": JSON}


class Nothing(BaseModel):
    model_config = ConfigDict(frozen=True)


class Gate(ViewRow, view="gates"):
    gate: str
    start: datetime
    people: int | None
    share: float
    ok: bool
    place: dict[str, float]
    ids: list[str]


def reading(fields: Mapping[str, Any], view: str = "gates") -> Process[Nothing]:
    """A process that reads rows with these columns, and their deletion."""
    row = type("Row", (ViewRow,), {"__annotations__": dict(fields), "__module__": __name__}, view=view)

    def react(event: Any, state: Nothing) -> Reaction[Nothing]:
        return Reaction(state)

    react.__annotations__["event"] = row | RowDeleted[row]  # type: ignore[valid-type]
    return Process(name="reading", key="row", initial=Nothing(), starts=(row,), react=react)


def gates(**changes: Any) -> Any:
    declared = {"name": "gates", "key": ("gate", "start"), "columns": COLUMNS, "stores": (Postgres(), Topic())}
    return gate_view(**{**declared, **changes})


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_that_the_view_has_are_accepted(name: str) -> None:
    views = {"gates": gates()}
    for fields in ({name: Gate.__annotations__[name], "key": "str"}, {name: Any}):
        check_view_rows(reading(fields), "here", views)
    assert FITTING.keys() >= set(COLUMNS.values())


@pytest.mark.parametrize(
    ("process", "views", "says"),
    [
        (reading({"gate": str}), [], r'"reading" reads rows of the view "gates", which this deployment does not have'),
        (reading({"gate": str}), [gates(stores=(Postgres(),))], r'has no topic: add Topic\(\) to its stores'),
        (reading({"lane": str}), [gates()], 'has no column "lane": it has key, gate, start, people, share, ok, place'),
        (reading({"people": str}), [gates()], 'column "people" is INTEGER: declare it in "Row" as Decimal, float, int'),
        (reading({"gate": int}), [gates()], 'column "gate" is TEXT: declare it in "Row" as Decimal, UUID, an Enum, by'),
        (reading({"ok": str}), [gates()], 'column "ok" is BOOLEAN: declare it in "Row" as bool'),
        (reading({"share": int}), [gates()], 'column "share" is FLOAT: declare it in "Row" as Decimal, float'),
        (reading({"place": str}), [gates()], 'column "place" is POINT: declare it in "Row" as dict'),
        (reading({"ids": int}), [gates()], 'column "ids" is JSON: declare it in "Row" as dict, list'),
        (reading({"start": int}), [gates()], r'"start" is TIME: .* as .* str \(declared in "here", .*\.py:\d+\)'),
    ],
)  # fmt: skip
def test_rows_that_no_view_has_are_refused(process: Process[Nothing], views: list[Any], says: str) -> None:
    with pytest.raises(DeclarationError, match=says):
        check_view_rows(process, "here", {view.name: view for view in views})


@pytest.mark.parametrize(("column", "kind"), [(DECIMAL(12, 2), Decimal), (DATE, date), (DECIMAL(12, 2), str)])
def test_exact_columns_are_read_as_what_they_are(column: Any, kind: Any) -> None:
    views = {"gates": gates(columns=COLUMNS | {"exact": column})}
    check_view_rows(reading({"exact": kind}), "here", views)
    with pytest.raises(DeclarationError, match='column "exact" is D'):
        check_view_rows(reading({"exact": float}), "here", views)


class Tagged(Event, type="thing.tagged"):
    thing_id: str
    tag: UUID


@pytest.mark.parametrize("kind", [UUID, str])
def test_a_uuid_is_read_as_one_or_as_its_text(kind: Any) -> None:
    tags = TableView(name="tags", key="thing_id", columns={"tag": last({Tagged: "tag"})}, stores=(Postgres(), Topic()))
    check_view_rows(reading({"tag": kind}, "tags"), "here", {"tags": tags})
    with pytest.raises(DeclarationError, match='column "tag" is UUID'):
        check_view_rows(reading({"tag": int}, "tags"), "here", {"tags": tags})


def test_a_deployment_without_the_view_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("acting")
    monkeypatch.setitem(sys.modules, "acting", module)
    module.__dict__.update(process=reading({"card": str}, "rapid_payments"))
    with pytest.raises(DeclarationError, match=r'the view "rapid_payments", which this deployment.*"acting"'):
        ViewRegistry.load(["acting"])
    assert "rapid_payments" in ViewRegistry.load(["acting", "payments"]).views


def test_rows_of_a_table_view_with_a_topic_are_accepted() -> None:
    views = {"gates": replace(BY_THING, name="gates", stores=(Postgres(), Topic()))}
    check_view_rows(reading({"text": str | None, "total": int, "thing_id": str}), "here", views)
    with pytest.raises(DeclarationError, match=r"has no topic: add Topic\(\)"):
        check_view_rows(reading({"total": int}), "here", {"gates": replace(BY_THING, name="gates")})


def test_a_column_with_personal_values_is_refused() -> None:
    views = {"gates": replace(visits_at_once, name="gates")}
    with pytest.raises(DeclarationError, match=r'whose column "name" has ciphertexts, .* leave it out of "Row"'):
        check_view_rows(reading({"id": str, "name": str}), "here", views)
    check_view_rows(reading({"id": str, "room": str}), "here", views)
