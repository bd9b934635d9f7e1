"""What a table view may do with personal fields, and what is refused with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict

from headwater import (
    Aggregate,
    Cache,
    Claim,
    Command,
    Elasticsearch,
    Event,
    Lookup,
    Personal,
    Postgres,
    TableView,
    add,
    approximate_distinct,
    by_key,
    collect,
    count,
    distinct,
    equals,
    events,
    first,
    item,
    last,
    maximum,
    members,
    nested,
    top,
    value,
    when,
)
from headwater.eventlog.declaring import WrongArguments
from headwater.projections.errors import ViewDeclarationError
from headwater.projections.stream.view import late_view
from headwater.projections.table.declared_store import DeclaredStore
from tests.support.personal_customers import Mailed, Paid, Registered, customers
from tests.support.personal_visits import last_visitor


class Line(BaseModel):
    model_config = ConfigDict(frozen=True)
    sku: str
    person: str
    recipient: Annotated[str | None, Personal(of="person")]


class Sent(Event, type="parcel.sent"):
    parcel_id: str
    place: str
    rank: int
    sender: Annotated[str | None, Personal()]
    weight: Annotated[int | None, Personal()]
    note: Annotated[dict[str, str] | None, Personal()]
    lines: list[Line]


class Send(Command, type="parcel.send"):
    parcel_id: str


class State(BaseModel):
    model_config = ConfigDict(frozen=True)


def decide(command: Send, state: State) -> Sequence[Event]:
    return []


def evolve(state: State, event: Sent) -> State:
    return state


parcel = Aggregate("parcel", "parcel_id", State(), decide, evolve)


def view(**more: Any) -> TableView:
    given: dict[str, Any] = {"name": "parcels", "key": "parcel_id", "columns": {"place": last({Sent: "place"})}}
    return TableView(**{**given, "stores": (Postgres(),), **more})


@pytest.mark.parametrize(
    "column",
    [
        last({Sent: "sender"}),
        first({Sent: "weight"}),
        last({Sent: "note"}),
        last({Sent: "lines"}),
        last({Sent: "sender"}, by="rank"),
        collect({Sent: "sender"}),
        collect({Sent: {"who": "sender", "place": "place"}}),
        top(3, {Sent: "sender"}, by="rank"),
        nested("sku", {Sent: item("lines", "sku")}, {"to": last({Sent: item("lines", "recipient")})}),
    ],
)
def test_columns_that_copy_are_personal(column: Any) -> None:
    made = view(columns={"place": last({Sent: "place"}), "column": column})
    assert made.personal == {"column"}


@pytest.mark.parametrize(
    ("column", "name"),
    [
        (count(Sent), ""),
        (add({Sent: "weight"}), "weight"),
        (maximum({Sent: "weight"}), "weight"),
        (distinct({Sent: "sender"}), "sender"),
        (approximate_distinct({Sent: "sender"}), "sender"),
        (distinct(members({Sent: [(1, "sender")]})), "sender"),
        (last({Sent: when(equals("sender", value("x")), "place", value(""))}), "sender"),
        (last({Sent: "place"}, by="weight"), "weight"),
        (top(3, {Sent: "place"}, by="weight"), "weight"),
        (collect({Sent: {"who": when(equals("place", value("x")), "sender", value(""))}}), "sender"),
        (nested("sender", {Sent: "sender"}, {"n": count(Sent)}), "sender"),
        (nested("sku", {Sent: item("lines", "sku")}, {"n": add({Sent: "weight"})}), "weight"),
    ],
)
def test_columns_that_compute_are_refused(column: Any, name: str) -> None:
    if not name:
        assert view(columns={"column": column}).personal == frozenset()
        return
    with pytest.raises(ViewDeclarationError, match=f'computes with "{name}" of "parcel.sent", which is personal'):
        view(columns={"column": column})


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"key": "sender", "columns": {"n": count(Sent)}}, 'its key reads "sender"'),
        ({"key": ("parcel_id", "sender"), "columns": {"n": count(Sent)}}, 'its key reads "sender"'),
        ({"key": {Sent: ["parcel_id", "sender"]}, "key_name": "who"}, 'its key reads "sender"'),
        (
            {
                "where": {by_key(Sent, "place"): equals("sender", value("x"))},
                "key": {Sent: ["parcel_id", "place"]},
                "key_name": "who",
            },
            'a condition reads "sender"',
        ),
        ({"where": {Sent: equals("sender", value("x"))}}, 'a condition reads "sender"'),
        ({"key": item("lines", "recipient"), "key_name": "to", "each": {Sent: "lines"}}, "its key reads"),
        ({"stores": (Postgres(indexes=(("sender",),)),)}, "are encrypted"),
        ({"stores": (Postgres(), Elasticsearch(text=("sender",)))}, "are encrypted"),
        ({"stores": (Postgres(), Elasticsearch(facets=("sender",)))}, "are encrypted"),
        ({"readable_by": {"sender": Claim("sub")}}, "readable_by"),
        ({"lookups": (Lookup("others", on="sender", columns={"x": "y"}),)}, "personal"),
    ],
)
def test_rows_are_not_found_sorted_or_searched_by_personal_values(more: dict[str, Any], problem: str) -> None:
    columns = {"sender": last({Sent: "sender"}), "place": last({Sent: "place"})}
    with pytest.raises(ViewDeclarationError, match=problem):
        view(**{"columns": columns, **more})


CLEAR = {"sender": last({Sent: "sender"}), "place": last({Sent: "place"}), "all": collect({Sent: "sender"})}
CLEAR |= {"lines": last({Sent: "lines"})}


def test_a_store_has_columns_in_clear_and_finds_rows_by_them() -> None:
    stores = (
        Postgres(indexes=(("sender", "-place"),), clear=("sender",)),
        Elasticsearch(text=("sender",), clear=("sender",)),
        Cache(),
    )
    made = view(columns=CLEAR, stores=stores)
    plain = view(columns=CLEAR, stores=(Postgres(), Elasticsearch(), Cache()))
    assert made.personal == {"sender", "all", "lines"}
    assert made.fingerprint != plain.fingerprint, "it needs a new version"
    assert Postgres.of_rows(stores[0].declaration) == "Postgres(clear=('sender',)"
    assert Postgres().declaration == "Postgres(indexes=())"
    assert Elasticsearch().declaration == "Elasticsearch(text=(), facets=())"


@pytest.mark.parametrize(
    ("store", "problem"),
    [
        (Postgres(clear=("nobody",)), r'Postgres\(clear=…\) names the unknown column "nobody"'),
        (Postgres(clear=("place",)), '"place", which has no personal values and is in plaintext: remove it'),
        (Postgres(clear=("parcel_id",)), '"parcel_id", which has no personal values'),
        (Postgres(clear=("all",)), '"all", which may have the values of several persons'),
        (Postgres(clear=("lines",)), '"lines", which may have the values of several persons'),
        (Postgres(clear="sender"), "which is no tuple: write"),  # type: ignore[arg-type]
        (Postgres(clear=("sender", "sender")), "twice: remove one"),
        (Elasticsearch(clear=("sender",), facets=("sender",)), "would be shown to every caller: remove it"),
        (Elasticsearch(text=("sender",)), r'in plaintext, as by Elasticsearch\(clear=\("'),
    ],
)
def test_what_cannot_be_in_clear_is_refused(store: DeclaredStore, problem: str) -> None:
    with pytest.raises(ViewDeclarationError, match=problem):
        view(columns=CLEAR, stores=(Cache(), store))


def test_stores_without_columns_in_clear_say_so() -> None:
    with pytest.raises(WrongArguments, match=r'Cache\(\) has no "clear"'):
        Cache(clear=("sender",))  # type: ignore[call-arg]
    with pytest.raises(ViewDeclarationError, match="has no personal values"):
        TableView("sent", "parcel_id", {"n": count(Sent)}, (Postgres(clear=("n",)),))


def test_a_stream_view_knows_which_columns_of_its_sources_are_sealed() -> None:
    assert events(Mailed, Registered, late_after="1h").sealed == {"address", "email", "name", "born", "contacts"}
    assert last_visitor.personal == {"name", "age", "companions"}
    late = late_view(last_visitor)
    assert late is not None
    assert late.personal == {"data"}
    with pytest.raises(ViewDeclarationError, match=r"Postgres\(clear=…\) is for table views"):
        replace(last_visitor, stores=(Postgres(clear=("name",)),))


def test_caches_and_other_stores_take_sealed_columns() -> None:
    stores = (Postgres(), Elasticsearch(), Cache())
    assert view(columns={"sender": last({Sent: "sender"})}, stores=stores).personal == {"sender"}
    assert customers.personal == {"email", "name", "born", "payees"}
    assert {Registered.type, Paid.type} == set(customers.plan.events)
