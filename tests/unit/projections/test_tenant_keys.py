"""Keys of views and processes over aggregates of tenants: two tenants with the same id share no row and no instance."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

from headwater import Aggregate, Command, Event, Postgres, Process, TableView, count, envelope, last
from headwater.commands.declaring.process import ProcessRegistry
from headwater.commands.errors import DeclarationError
from headwater.projections.errors import ViewDeclarationError
from headwater.projections.registry import ViewRegistry
from tests.support import tenants
from tests.support.tenants import Counted, Counting, Opened, react


class Noted(Event, type="remark.noted"):
    account_id: str


class Note(Command, type="remark.note"):
    account_id: str


def decide(command: Note, state: Counting) -> list[Event]:
    return [Noted(account_id=command.account_id)]


def evolve(state: Counting, event: Noted) -> Counting:
    return state


remark = Aggregate(name="remark", id_field="account_id", initial=Counting(), decide=decide, evolve=evolve)


@pytest.fixture
def module() -> Iterator[types.ModuleType]:
    """A module to declare in."""
    made = sys.modules["tenant_keys_tried"] = types.ModuleType("tenant_keys_tried")
    yield made
    del sys.modules["tenant_keys_tried"]


def load(module: types.ModuleType, registry: Any = ViewRegistry, **declared: object) -> None:
    vars(module).update(declared)
    registry.load([tenants.__name__, module.__name__])


def view(key: Any, **more: Any) -> TableView:
    return TableView(name="tried", key=key, columns={"opened": count(Opened)}, stores=(Postgres(),), **more)


def test_a_view_with_a_part_of_the_id_but_not_the_tenant_is_refused_with_what_to_write(
    module: types.ModuleType,
) -> None:
    with pytest.raises(ViewDeclarationError) as refused:
        load(module, tried=view("account_id"))
    message = str(refused.value)
    assert '"account" without "tenant"' in message
    assert 'key=envelope("stream"), key_name="stream"' in message
    assert "test_tenant_keys.py" in message


@pytest.mark.parametrize(
    ("key", "more"),
    [
        (envelope("stream"), {"key_name": "stream"}),
        (envelope("id"), {"key_name": "event"}),
        ("tenant", {}),  # a row for each tenant
        ("owner", {}),  # a statistic over tenants: no part of an id
    ],
)
def test_right_keys_stay(module: types.ModuleType, key: Any, more: Any) -> None:
    load(module, tried=view(key, **more))


def test_parts_that_no_claim_fills_are_keys_as_they_were(module: types.ModuleType) -> None:
    load(
        module,
        tried=TableView(name="tried", key="place", columns={"counted": count(Counted)}, stores=(Postgres(),)),
    )


def test_one_event_of_several_is_enough(module: types.ModuleType) -> None:
    alone = TableView(name="tried", key="account_id", columns={"n": count(Noted)}, stores=(Postgres(),))
    load(module, remark=remark, tried=alone)
    both = TableView(name="tried", key="account_id", columns={"n": count(Noted, Opened)}, stores=(Postgres(),))
    with pytest.raises(ViewDeclarationError, match='"account" without "tenant"'):
        load(module, remark=remark, tried=both)


def test_a_row_that_is_only_deleted_by_such_an_event_counts_too(module: types.ModuleType) -> None:
    tried = TableView(
        name="tried",
        key="account_id",
        columns={"owner": last({Opened: "owner"})},
        deleted_by=(Opened,),
        stores=(Postgres(),),
    )
    with pytest.raises(ViewDeclarationError, match='"account" without "tenant"'):
        load(module, tried=tried)


def process(key: Any) -> Process[Counting]:
    return Process(name="tried", key=key, initial=Counting(), starts=(Opened,), react=react)


def test_so_is_a_process(module: types.ModuleType) -> None:
    with pytest.raises(DeclarationError) as refused:
        load(module, ProcessRegistry, tried=process("account_id"))
    message = str(refused.value)
    assert 'process "tried" has the key "account_id" of "account.opened" without "tenant"' in message
    assert 'write key=("tenant", "account_id")' in message


@pytest.mark.parametrize("key", [("tenant", "account_id"), ("account_id", "tenant"), "tenant", "owner"])
def test_right_keys_of_processes_stay(module: types.ModuleType, key: Any) -> None:
    load(module, ProcessRegistry, tried=process(key))


def test_keys_of_items_are_no_ids() -> None:
    assert view("account_id").key_fields(Opened) == (frozenset({"account_id"}),)
    assert view(envelope("stream"), key_name="stream").key_fields(Opened) == (frozenset(),)
