"""Which order the events of a row have: versions within a stream, times across streams, whatever was imported first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater.commands.declaring.aggregate import Event
from headwater.eventlog.envelope import Envelope, Position
from headwater.projections.reading import reader
from headwater.projections.registry import ViewRegistry
from headwater.projections.stores.declared import Postgres
from headwater.projections.table.computations import envelope, value
from headwater.projections.table.expressions import Expression, Source
from headwater.projections.table.folds import Case, Column, collect, first, last, nested
from headwater.projections.table.types import ColumnType
from headwater.projections.table.view import TableView
from headwater.projections.testing.rows import check_sources
from headwater.samples.orders.domain.order import Expired, Placed
from headwater.samples.orders.domain.refund import Requested

GATES = {
    "events": """
from headwater import Event

class Opened(Event, type="gate.opened"):
    gate_id: str
    by: str
""",
    "domain": """
from pydantic import BaseModel, ConfigDict
from headwater import Aggregate, Command
from .events import Opened

class Open(Command, type="gate.open"):
    gate_id: str

class Gate(BaseModel):
    model_config = ConfigDict(frozen=True)

def decide(command: Open, state: Gate) -> list[Opened]:
    return []

def evolve(state: Gate, event: Opened) -> Gate:
    return state

gate = Aggregate(name="gate", id_field="gate_id", initial=Gate(), decide=decide, evolve=evolve)
""",
    "views": """
from headwater import Postgres, TableView, last
from .events import Opened

gates = TableView(name="gates", key="gate_id", columns={"by": last({Opened: "by"})}, stores=(Postgres(),))
""",
}
START = datetime(2026, 1, 1, tzinfo=UTC)


def happened(event: type[Event], version: int, minute: int, **data: Any) -> Source:
    """An event of order O, in the partition of its aggregate."""
    kind, time = event.type.partition(".")[0], START + timedelta(minutes=minute)
    body = {"order_id": "O", "customer": "c", **data}
    made = Envelope(f"{kind}/O/{version}", event.type, f"{kind}/O", time, body, sequence=version)
    return Source(made, Position(len(kind), minute), int(time.timestamp() * 1000), "{}")


HISTORY = [
    happened(Placed, 1, 0, lines=[], total_cents=5),
    happened(Expired, 2, 1),
    happened(Requested, 1, 2, amount_cents=5, reason="r"),
    happened(Expired, 3, 3),
]
STATES: dict[Case, Expression] = {Placed: value("placed"), Expired: value("expired"), Requested: value("refund")}


def orders(column: Column | None = None, **more: Any) -> TableView:
    columns: dict[str, Column] = {"state": column or last(STATES)}
    return TableView("order_states", "order_id", columns, (Postgres(),), **more)


def shown(view: TableView, *history: Source) -> Any:
    check_sources(view, history, seed=1, tries=5)
    rows = reader.fold(view, history)
    return rows["O"]["state"] if rows else "deleted"


@pytest.mark.parametrize(
    ("declare", "history", "expected"),
    [
        (orders, HISTORY[:3], "refund"),
        (lambda: orders(first({Expired: value("expired"), Requested: value("refund")})), HISTORY[1:3], "expired"),
        (lambda: orders(collect(STATES)), HISTORY, ["placed", "expired", "refund", "expired"]),
        (
            lambda: orders(nested("customer", dict.fromkeys(STATES, "customer"), {"last": last(STATES)})),
            HISTORY[:3],
            [{"customer": "c", "last": "refund"}],
        ),
        (lambda: orders(last({Placed: value("placed")}), deleted_by=(Requested,)), HISTORY[:3], "deleted"),
        (
            lambda: orders(last({Placed: value("placed")}), deleted_by=(Expired,), restored_by=(Requested,)),
            HISTORY[:3],
            "placed",
        ),
    ],
    ids=["last", "first", "collect", "nested", "deleted_by", "restored_by"],
)
def test_events_of_two_aggregates_with_the_same_id_field_are_ordered_by_time(
    declare: Callable[[], TableView], history: list[Source], expected: object
) -> None:
    assert shown(declare(), *history) == expected


@pytest.fixture
def opened() -> Iterator[type[Event]]:
    """An event of an aggregate that is not declared yet."""

    class Opened(Event, type="gate.opened"):
        gate_id: str
        by: str

    yield Opened


def test_a_view_that_is_imported_before_its_aggregate_orders_by_version_too(opened: type[Event]) -> None:
    view = TableView("gates", "gate_id", {"by": last({opened: "by"})}, (Postgres(),))
    opened.id_field = "gate_id"  # what an Aggregate does
    after = TableView("gates", "gate_id", {"by": last({opened: "by"})}, (Postgres(),))
    assert [(field.name, field.type) for field in view.layout.fields] == [
        ("_order0", ColumnType.INTEGER),
        ("by", ColumnType.TEXT),
    ]
    assert view.row_types == after.row_types
    assert view.fingerprint == after.fingerprint


def test_the_types_of_a_row_are_what_is_stored_beside_its_fingerprint() -> None:
    view = TableView(
        "order_states",
        "order_id",
        {"state": last(STATES), "times": collect({Expired: {"at": envelope("time")}})},
        (Postgres(),),
    )
    assert view.row_types == [
        "_order0 text",
        "_state1 entries(_order text, at time)",
        "order_id text",
        "state text",
        "times list",
    ]


def test_the_order_of_modules_does_not_change_a_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The events are in one module, the aggregate and the view each in another that imports them."""
    monkeypatch.syspath_prepend(str(tmp_path))
    found = []
    for number, order in enumerate((("domain", "views"), ("views", "domain"))):
        package = tmp_path / f"gates{number}"
        package.mkdir()
        for name, text in {"__init__": "", **GATES}.items():
            (package / f"{name}.py").write_text(text)
        view = ViewRegistry.load([f"{package.name}.{name}" for name in order]).view("gates")
        found.append((view.fingerprint, view.row_types))
    assert found[0] == found[1]
    assert "_order0 integer" in found[0][1]
