"""docs/declarations.md: its module can be imported, its tables have all fields, and each usage is a declaration."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields
from types import ModuleType
from typing import Any

import pytest

import headwater
from headwater import Aggregate, Lookup, Postgres, Process, Reaction, StreamView, TableView
from headwater.commands.declaring.observation import ObservationRegistry
from headwater.eventlog.capturing import Source
from headwater.testing import given, rows_of
from tests.support.pages import blocks, read_page
from tests.support.recording import recording

PAGE = read_page("declarations.md")
DECLARED = (Aggregate, Process, Reaction, Source, TableView, StreamView, Lookup)
NAME = "declarations_page"


def table(before: str) -> list[Sequence[str]]:
    """The cells of each line of the first table after a text, which stands once on the page."""
    assert PAGE.count(before) == 1, before
    found = re.search(r"^\|.*\n\| ---.*\n((?:\|.*\n)+)", PAGE.partition(before)[2], re.MULTILINE)
    assert found is not None
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in found[1].splitlines()]


def code(cell: str) -> str:
    """The code that a cell shows."""
    return cell.strip("` ")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The samples of the page, as the one module that they are."""
    path = tmp_path_factory.mktemp("docs") / f"{NAME}.py"
    path.write_text("\n\n".join(blocks("python", PAGE)))
    spec = importlib.util.spec_from_file_location(NAME, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[NAME] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules[NAME]


def names(page: ModuleType) -> dict[str, Any]:
    """What the usages on the page can name."""
    return {name: getattr(headwater, name) for name in headwater.__all__} | vars(page)


@pytest.mark.parametrize("declared", DECLARED, ids=lambda declared: declared.__name__)
def test_the_table_of_a_declaration_has_all_its_fields_and_defaults(declared: Any) -> None:
    shown = {code(name): default for name, default, _ in table(f"\n`{declared.__name__}`:\n")}
    expected = {}
    for field in fields(declared):
        if field.init:
            default = field.default if field.default_factory is MISSING else field.default_factory()
            expected[field.name] = default
    assert list(shown) == list(expected)
    for name, default in shown.items():
        assert (MISSING if default == "required" else eval(code(default))) == expected[name], name  # noqa: S307


def test_the_page_names_everything_that_declarations_import() -> None:
    assert [name for name in headwater.__all__ if not re.search(rf"\b{name}\b", PAGE)] == []


def test_the_samples_work(page: ModuleType) -> None:
    line = page.Line(sku="tea", quantity=2, cents=250)
    placed = given(page.basket).when(page.Place(basket_id="B1", customer="Ada", lines=[line]))
    (event,) = placed.events
    assert event.cents == 500
    placed.when(page.Cancel(basket_id="B1")).then(page.Cancelled(basket_id="B1", cents=500))
    placed.when(page.Place(basket_id="B1", customer="Ada", lines=[])).then_rejected("already_placed")
    given(page.expiry).when(event)
    report = re.search(r'```json\n(\{"id".*)\n```', PAGE)
    assert report is not None
    registry = ObservationRegistry([(NAME, page.BasketOpened)])
    assert registry.read("basket_opened", report[1].encode()).data == page.BasketOpened(basket_id="B1", page="/tea")


@pytest.mark.parametrize("usage", [code(row[0]) for row in table("## Folds")])
def test_the_usage_of_a_fold_declares_a_column(page: ModuleType, usage: str) -> None:
    fold = eval(usage, names(page))  # noqa: S307
    key, columns = page.envelope("stream"), {"shown": fold}
    if "by_key" in usage:
        key = {page.Transferred: ["from_account", "to_account"]}
        columns |= {"sent": page.count(page.sent)}
    if usage == "count(Client)":
        key = "email"
    TableView("usage", key=key, key_name="stream", columns=columns, stores=(Postgres(),))


def test_the_recipes_of_several_rows_per_event_fold_as_they_say(page: ModuleType) -> None:
    recording("account", "account_id", page.AccountOpened)
    recording("transfer", "transfer_id", page.Transferred)
    recording("parcel", "parcel_id", page.ParcelReceived, page.ParcelMoved)
    opened = [page.AccountOpened(account_id=each, owner=each) for each in "AB"]
    transfer = page.Transferred(transfer_id="T", from_account="A", to_account="B", cents=500)
    assert rows_of(page.accounts, *opened, transfer) == {
        "A": {"account_id": "A", "owner": "A", "cents": -500, "sent": 1, "transfers": 1},
        "B": {"account_id": "B", "owner": "B", "cents": 500, "sent": 0, "transfers": 1},
    }
    received = page.ParcelReceived(parcel_id="P", depot="Oslo")
    moved = page.ParcelMoved(parcel_id="P", from_depot="Oslo", to_depot="Rome")
    assert rows_of(page.depots, received, moved) == {
        "Oslo": {"depot": "Oslo", "parcels": 0, "here": []},
        "Rome": {"depot": "Rome", "parcels": 1, "here": [{"parcel_id": "P", "from": "Oslo"}]},
    }


@pytest.mark.parametrize("usage", [code(row[0]) for row in table("## Expressions")])
def test_the_usage_of_an_expression_declares_a_column(page: ModuleType, usage: str) -> None:
    TableView(
        "usage",
        key=page.envelope("stream"),
        key_name="stream",
        columns={"shown": page.last({page.Placed: eval(usage, names(page))})},  # noqa: S307
        each={page.Placed: "lines"} if usage.startswith("item") else {},
        stores=(Postgres(),),
    )


@pytest.mark.parametrize("usage", [code(row[0]) for row in table("## Conditions")])
def test_the_usage_of_a_condition_filters_and_decides_a_column(page: ModuleType, usage: str) -> None:
    condition = eval(usage, names(page))  # noqa: S307
    column = page.last({page.Placed: headwater.when(condition, 1, 0)})
    where = {page.Placed: condition}
    TableView("usage", key="basket_id", columns={"shown": column}, where=where, stores=(Postgres(),))


@pytest.mark.parametrize("usage", [code(row[0]) for row in table("### Stores")])
def test_the_usage_of_a_store_is_a_store_of_a_stream_view(page: ModuleType, usage: str) -> None:
    store = eval(usage, names(page))  # noqa: S307
    StreamView(
        "usage",
        key="customer",
        columns={"customer": page.TEXT, "cents": page.INTEGER, "placed_at": page.TIME},
        sources={"placed": page.events(page.Placed, late_after="1h")},
        query=page.large,
        stores=(store,) if store.answers else (Postgres(), store),
    )
