"""Mistakes in the declarations of views: each error names the view and the field, and says what to write."""

# mypy: disable-error-code="arg-type, call-arg, dict-item, list-item, misc"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headwater import (
    EVERY,
    INTEGER,
    POINT,
    TEXT,
    Cache,
    Deleted,
    Elasticsearch,
    Lookup,
    Postgres,
    StreamView,
    TableView,
    Topic,
    above,
    add,
    all_of,
    any_of,
    approximate_distinct,
    average,
    collect,
    count,
    current,
    distinct,
    envelope,
    equals,
    events,
    field,
    first,
    highest,
    item,
    last,
    lowest,
    maximum,
    members,
    minimum,
    minus,
    negated,
    negative,
    nested,
    observations,
    point,
    ratio,
    top,
    value,
    when,
)
from headwater.eventlog.declaring import WrongDeclaration
from headwater.projections.errors import ViewDeclarationError
from headwater.samples.shop.source import Customer
from tests.contracts.view_histories import Put, Removed, Taken
from tests.support.observed import Passed

ANY: Any = None
"""What a type checker would refuse."""


def table(**changes: Any) -> TableView:
    return TableView(
        **{"name": "wrong", "key": "thing_id", "columns": {"n": count(Put)}, "stores": (Postgres(),)} | changes
    )


def query(passed: Any) -> Any:
    return passed


def stream(**changes: Any) -> StreamView:
    declared = {
        "name": "wrong",
        "key": "gate",
        "columns": {"gate": TEXT, "number": INTEGER, "place": POINT},
        "sources": {"passed": observations(Passed, late_after="1h")},
        "query": query,
        "stores": (Postgres(),),
    }
    return StreamView(**declared | changes)


def column(make: Callable[[], Any]) -> Callable[[], TableView]:
    return lambda: table(columns={"n": make()})


FIELDS = [
    (lambda: table(docs="x"), 'it has no "docs" (did you mean "doc"?)'),
    (lambda: table(colour=1), 'it has no "colour" (it has name, key, columns, stores, version, '),
    (lambda: TableView("wrong", "thing_id", {"n": count(Put)}), 'it lacks "stores": add stores=(Postgres(),)'),
    (lambda: TableView(name="wrong", stores=(Postgres(),)), 'it lacks "key", "columns": add key="owner", columns='),
    (lambda: TableView("wrong", "thing_id", {}, (), name="wrong"), "it cannot be called so (multiple values for"),
    (lambda: table(stores="postgres"), "stores='postgres' is no store: write stores=(Postgres(),)"),
    (lambda: table(stores=Postgres), "stores=the class Postgres is no store: write stores=(Postgres(),)"),
    (lambda: table(stores=(Postgres,)), "stores has the class Postgres: write stores=(Postgres(),)"),
    (lambda: table(stores=(Postgres(), "valkey")), "stores has 'valkey', which is no store: write stores="),
    (lambda: table(stores=(Postgres(), Cache(), Postgres())), "stores has Postgres() twice: remove one"),
    (lambda: table(stores=()), "it has no store: add stores=(Postgres(),)"),
    (lambda: table(version="2"), "version is '2': versions are the integers from 1"),
    (lambda: table(version=-1), "version is -1: versions are the integers from 1"),
    (lambda: table(version=True), "version is True: versions are the integers from 1"),
    (lambda: table(name=5), "invalid name: use a-z, 0-9 and _"),
    (lambda: table(name=""), "invalid name: use a-z, 0-9 and _"),
    (lambda: table(doc=5), 'doc=5 is no text: write doc="One line for users."'),
    (lambda: table(key=5), 'key is 5, which is no text: write the name of a field, as in key="owner", or envelope('),
    (lambda: table(key=""), "key is empty: write the name of a field"),
    (lambda: table(key=["thing_id", "group"]), "key is ['thing_id', 'group'], which is no text: write"),
    (lambda: table(key=("thing_id",)), "key is the tuple ('thing_id',): write the one name alone, or several"),
    (lambda: table(key=("thing_id", 5)), "a name in key is 5, which is no text: write the names of fields"),
    (lambda: table(key=("thing_id", "thing_id")), 'key has "thing_id" twice: remove one'),
    (lambda: table(key=("thing_id", "real")), '"real" is float, but a part of a key is a text, an integer, a bool'),
    (lambda: table(key=("thing_id", "n")), 'the key "n" is already a column: remove it'),
    (lambda: table(key=("thing_id", "group"), key_name="group"), "the text of its key needs a column of its own"),
    (lambda: table(key=("thing_id", "group"), columns={"n": count(EVERY)}), "needs an event class: not every event"),
    (
        lambda: table(key=("id", "name"), columns={"n": current(Customer, "name")}),
        "rows of captured tables have their own key, which is one text",
    ),
    (lambda: table(key="thing_ids"), 'event "thing.put" has no field "thing_ids" (did you mean "thing_id"?)'),
    (lambda: table(key=item(ANY)), 'its key: item() lacks "name": write item("lines", "sku")'),
    (lambda: table(key_name=5), 'key_name=5 is no text: write key_name="id"'),
    (lambda: table(columns=[count(Put)]), "is no mapping: write columns={"),
    (lambda: table(columns={"n": "group"}), "column \"n\" is 'group', which is no fold over events: write last({"),
    (lambda: table(columns={"n": Put}), 'column "n" is the class Put, which is no fold over events: write count('),
    (lambda: table(columns={"n": None}), 'column "n" is None, which is no fold over events: write count(Opened)'),
    (lambda: table(columns={5: count(Put)}), '"5" is not a column name: use a-z, 0-9 and _'),
    (lambda: table(deleted_by=Removed), "deleted_by is one class: write deleted_by=(Removed,)"),
    (lambda: table(deleted_by=("thing.removed",)), "deleted_by has 'thing.removed', which is no class of events"),
    (lambda: table(deleted_by=(Removed, Removed)), "deleted_by has Removed twice: remove one"),
    (lambda: table(restored_by="Removed"), "restored_by='Removed' is no tuple of classes of events: write"),
    (lambda: table(where="flag"), 'where has the text "flag": write field("flag"), or where={Opened: equals('),
    (lambda: table(where={"thing.put": equals("small", 1)}), "where has a condition for 'thing.put', which is no"),
    (lambda: table(where={Put: True}), "where has True, which is no condition: write where={Opened: equals("),
    (lambda: table(where=equals(ANY)), 'where: equals() lacks "right": write equals("status", value("sold"))'),
    (lambda: table(where={Put: equals("text", "sold")}), 'a text that is no field is written value("sold")'),
    (lambda: table(each="lines"), "each='lines' does not say of which event: write each={Placed: \"lines\"}"),
    (lambda: table(each={Put: 5}), 'each of Put is 5, which is no text: write each={Placed: "lines"}'),
    (lambda: table(each={"thing.put": "tags"}), "each has 'thing.put', which is no class of events: write each="),
    (lambda: table(lookups=Lookup("a", "thing_id", {"b": "c"})), "is no tuple of lookups: write lookups=(Lookup("),
    (lambda: table(lookups=("owners",)), "lookups has 'owners', which is no lookup: write Lookup("),
    (lambda: table(lookups=(Lookup("a", "thing_id", ("b",)),)), "has columns=('b',), which is no mapping: write"),
    (lambda: table(lookups=(Lookup(5, "thing_id", {"b": "c"}),)), "the view of its lookup is 5, which is no text"),
    (lambda: table(lookups=(Lookup("a", "thing_id", {"b": 5}),)), '"b" of its lookup in "a" is 5, which is no text'),
]  # fmt: skip
STORES = [
    (Elasticsearch(text=("n",)), 'Elasticsearch(text=…) names "n", which is INTEGER and no text: use thing_id, text'),
    (Elasticsearch(text="text"), "Elasticsearch(text=…) is 'text', which is no tuple: write Elasticsearch(text=("),
    (Elasticsearch(text=("text", "text")), 'Elasticsearch(text=…) has "text" twice: remove one'),
    (Elasticsearch(text=("",)), "a name in Elasticsearch(text=…) is empty: write"),
    (Elasticsearch(text=(5,)), "a name in Elasticsearch(text=…) is 5, which is no text"),
    (Elasticsearch(facets=("txt",)), 'Elasticsearch(facets=…) names the unknown column "txt" (did you mean "text"?)'),
    (Elasticsearch(facets=("place",)), 'Elasticsearch(facets=…) names "place", which is POINT and has no values to'),
    (Elasticsearch(facets=("tags",)), 'Elasticsearch(facets=…) cannot index "tags": it is a list'),
    (Postgres(indexes="text"), "Postgres(indexes='text') is no tuple of indexes: write Postgres("),
    (
        Postgres(indexes=("text", "-n")),
        'for an index, which is a tuple of columns: write Postgres(indexes=(("text",), ',
    ),
    (Postgres(indexes=((),)), "an index in Postgres(indexes=…) has no column: write"),
    (Postgres(indexes=(("text", "-text"),)), 'Postgres(indexes=…) has "text" twice: remove one'),
    (Postgres(indexes=(("place",),)), 'Postgres(indexes=…) names "place", which is POINT and has no order'),
    (Postgres(indexes=(("texts",),)), 'Postgres(indexes=…) names the unknown column "texts" (did you mean "text"?)'),
]
CALLS = [
    (lambda: Elasticsearch(txt=("text",)), 'Elasticsearch() has no "txt" (did you mean "text"?): write Elasticsearch('),
    (lambda: Postgres(index=()), 'Postgres() has no "index" (did you mean "indexes"?): write Postgres(indexes='),
    (lambda: Cache(5, 6), "Cache() cannot be called so (too many positional arguments): write Cache(rankings="),
    (lambda: Topic("rows"), "Topic() cannot be called so (too many positional arguments): write Topic()"),
    (lambda: Lookup("owners", on="owner"), 'Lookup() lacks "columns": write Lookup("owners", on="owner", columns='),
    (lambda: observations(Passed), 'observations() lacks "late_after": write observations(PageOpened, late_after='),
    (lambda: events(Put, late="1h"), 'events() has no "late" (did you mean "late_after"?): write events(Placed, late'),
    (lambda: Deleted("customers"), "'customers', which is no ViewRow and no captured table: write deleted_by="),
]  # fmt: skip
COLUMNS = [
    (lambda: last("group"), "last() is given 'group', which does not say of which event: write last({Sold"),
    (lambda: last({"thing.put": "group"}), "last() is given 'thing.put', which is no class of events with a type"),
    (lambda: last({Put: None}), "None cannot be read of an event: write the name of a field, a number, or"),
    (lambda: last({Put: Put}), "the class Put cannot be read of an event: write the name of a field"),
    (lambda: last({Put: ""}), 'an empty text names no field: write its name, or value("")'),
    (lambda: last({Put: "goup"}), 'event "thing.put" has no field "goup" (did you mean "group"?); a text that'),
    (lambda: last({Put: "sold"}), 'it has at, due, flag, group, '),
    (lambda: last({Put: field(5)}), "a field is named by a text, not by 5; it has at, due, flag"),
    (lambda: last({Put: "group"}, orderd="at"), 'last() has no "orderd" (it has cases, by): write last('),
    (last, 'last() lacks "cases": write last({Sold: "price"})'),
    (lambda: last({}), "a fold needs at least one event"),
    (lambda: first(Put), "first() is given the class Put, which does not say of which event: write first("),
    (lambda: first({Put: value([1])}), "[1] is no constant: use a text, an integer, a float, True, False, a Decimal"),
    (lambda: first({Put: value(float("nan"))}), "no store holds the constant nan: use a finite number of at most 64"),
    (lambda: first({Put: 10**30}), "no store holds the constant 1000000000000000000000000000000: use a finite"),
    (lambda: first({Put: envelope("tiem")}), 'an envelope has no "tiem"'),
    (lambda: first({Put: minus("small")}), 'minus() lacks "right": write minus("price", "previous_price")'),
    (lambda: first({Put: negative()}), 'negative() lacks "amount": write negative("price")'),
    (lambda: first({Put: when("flag", 1)}), 'when() lacks "otherwise": write when("is_paid", "price", 0)'),
    (lambda: first({Put: point("latitude")}), 'point() lacks "longitude": write point("latitude", "longitude")'),
    (lambda: first({Put: item("lines")}), 'item() lacks "name": write item("lines", "sku")'),
    (lambda: first({Put: when(all_of(), 1, 0)}), "all_of() has no condition: write all_of("),
    (lambda: first({Put: when(any_of(), 1, 0)}), "any_of() has no condition: write any_of("),
    (lambda: first({Put: when(negated(None), 1, 0)}), "None cannot be read of an event"),
    (lambda: first({Put: when(above("small", [1]), 1, 0)}), "[1] cannot be read of an event"),
    (lambda: count("thing.put"), "count() is given 'thing.put', which is no class of events with a type: write count("),
    (lambda: count([Put]), "which is no class of events with a type: write count(Sold)"),
    (lambda: count(Put, Put), "count() is given the class Put twice: write count(Sold)"),
    (count, "a fold needs at least one event"),
    (lambda: count(events=Put), 'count() has no "events"'),
    (lambda: add(Put), "add() is given the class Put, which does not say of which event: write add({Sold"),
    (lambda: add({Put: "text"}), "it adds texts, but only sums of integers"),
    (lambda: average("small"), "average() is given 'small', which does not say of which event"),
    (lambda: maximum(5), "maximum() is given 5, which does not say of which event: write maximum("),
    (lambda: minimum([Put]), "which does not say of which event: write minimum("),
    (lambda: ratio(add({Put: "small"}), "n"), "ratio() is given 'n', which is no sum: write ratio("),
    (lambda: ratio(add(Put), count(Put)), "add() is given the class Put, which does not say of which event"),
    (lambda: lowest({Put: "small"}), "which is not members(): write lowest(members({…}))"),
    (lambda: highest(members({Put: (1, "small")})), "members() is given 1, which is no pair of 1 or -1 and a value"),
    (lambda: highest(members({Put: "small"})), "members() is given 'small', which is no list of changes: write"),
    (lambda: highest(members({Put: [(2, "small")]})), "members() is given (2, 'small'), which is no pair of 1 or -1"),
    (lambda: members({Put: [(1, "small")]}), "it is members(): wrap it in lowest(), highest() or distinct()"),
    (lambda: distinct("text"), "distinct() is given 'text', which does not say of which event: write distinct("),
    (lambda: distinct({Put: "text"}, limit="5"), "a limit is from 1 to 10000, not '5'"),
    (lambda: approximate_distinct(Put), "approximate_distinct() is given the class Put, which does not say"),
    (lambda: collect("text"), "collect() is given 'text', which does not say of which event: write collect("),
    (lambda: collect({Put: "text"}, limit=True), "a limit is from 1 to 1000, not True"),
    (lambda: collect({Put: "text"}, newest="yes"), "collect() has newest='yes', which is neither True nor False"),
    (lambda: collect({Put: {"Text": "text"}}), '"Text" is not a field name: use a-z, 0-9 and _'),
    (lambda: top({Put: "text"}, 5, by="small"), "top() is given 5, which does not say of which event: write top(10, "),
    (lambda: top(5, {Put: "text"}), 'top() lacks "by": write top(10, {Sold: "buyer"}, by="price")'),
    (lambda: nested("g", "group", {"n": count(Put)}), "nested() is given 'group', which does not say of which event"),
    (lambda: nested("g", {Put: "group"}, count(Put)), "which do not say their names: write nested("),
    (lambda: nested("g", {Put: "group"}, {"n": "small"}), "nested() has the column \"n\", which is 'small' and"),
    (lambda: nested("g", {Put: "group"}, {"n": add(Put)}), 'nested() has a wrong column "n": add() is given the class'),
    (lambda: nested(5, {Put: "group"}, {"n": count(Put)}), "nested() is given 5 as the name of its key, which is no"),
    (lambda: nested("g", {Put: "group"}, {"n": count(Put)}, deleted_by=Put), "nested() has deleted_by=the class Put"),
    (lambda: current("customers", "name"), "is given 'customers', which is no ViewRow and no captured table: write"),
    (lambda: current(Customer), 'current() lacks "readable": write current(Customer, "name")'),
    (lambda: last({Customer: "name"}), '"Customer" is a captured table, of which only current rows are known'),
]  # fmt: skip
STREAMS = [
    (lambda: stream(final="yes"), "final is 'yes': write True or False"),
    (lambda: stream(realtime=1), "realtime is 1: write True or False"),
    (lambda: stream(every=30), 'every=30 is no text: write every="30s"'),
    (lambda: stream(keep_state=7), 'keep_state=7 is no text: write keep_state="30s"'),
    (lambda: stream(keys="gate"), 'it has no "keys" (did you mean "key"?)'),
    (lambda: stream(key=()), "it has no key"),
    (lambda: stream(key=5), "key is 5, which is no tuple: write key=("),
    (lambda: stream(key=("gate", "gate")), 'key has "gate" twice: remove one'),
    (lambda: stream(columns=("gate",)), "columns=('gate',) is no mapping: write columns="),
    (lambda: stream(columns={"gate": str}), 'column "gate" has the type'),
    (lambda: stream(sources=observations(Passed, late_after="1h")), "does not name the arguments of its query: write"),
    (lambda: stream(sources={"passed": Passed}), 'source "passed": "Passed" is not a source: use observations('),
    (lambda: stream(sources={"passed": observations("a", late_after="1h")}), "\"'a'\" is not a class of observations"),
    (lambda: stream(sources={"passed": observations(Passed, late_after=60)}), '"60" is not a duration: write it like'),
    (lambda: stream(sources={"passed": observations(Passed, Passed, late_after="1h")}), 'is given "Passed" twice'),
    (lambda: stream(sources={"passed": events(Put, Put, late_after="1h")}), 'events() is given "Put" twice'),
    (lambda: stream(query="query"), "its query must take an argument per source (passed): 'query' is not a callable"),
    (lambda: stream(version="1"), "version is '1': versions are the integers from 1"),
    (lambda: stream(stores=(Postgres(), Topic(), Topic())), "stores has Topic() twice: remove one"),
    (lambda: stream(stores=Elasticsearch(text=("number",))), 'names "number", which is INTEGER and no text: use gate'),
    (lambda: stream(deleted_by=True), "deleted_by=True is not a text: name the BOOLEAN column"),
]  # fmt: skip


@pytest.mark.parametrize(("declare", "problem"), [*FIELDS, *STREAMS])
def test_a_field_of_a_view_is_named(declare: Callable[[], object], problem: str) -> None:
    refused(declare, problem)


@pytest.mark.parametrize(("store", "problem"), STORES)
def test_a_column_of_a_store_is_named(store: Any, problem: str) -> None:
    columns = {
        "n": count(Put, Taken),
        "text": last({Put: "text"}),
        "place": last({Put: point("latitude", "longitude")}),
        "tags": collect({Put: "text"}),
    }
    refused(lambda: table(columns=columns, stores=(Postgres(), store) if store.name != "postgres" else store), problem)


@pytest.mark.parametrize(("make", "problem"), COLUMNS)
def test_a_column_is_named(make: Callable[[], Any], problem: str) -> None:
    refused(column(make), problem)
    if "captured" not in problem:
        assert 'column "n": ' in str(refused(column(make), problem))


@pytest.mark.parametrize(("call", "problem"), CALLS)
def test_a_word_without_a_view_shows_how_it_is_written(call: Callable[[], object], problem: str) -> None:
    with pytest.raises(WrongDeclaration) as wrong:
        call()
    assert problem in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_one_store_is_enough_without_a_tuple() -> None:
    assert table(stores=Postgres()).stores == (Postgres(),)
    assert table(stores=[Postgres(), Cache()]).stores == (Postgres(), Cache())
    assert table(stores=Postgres()).fingerprint == table().fingerprint
    assert stream(stores=Postgres()).fingerprint == stream().fingerprint


def refused(declare: Callable[[], object], problem: str) -> ViewDeclarationError:
    with pytest.raises(ViewDeclarationError) as wrong:
        declare()
    message = str(wrong.value)
    assert message.startswith('view "')
    assert problem in message
    assert "\n" not in message
    return wrong.value
