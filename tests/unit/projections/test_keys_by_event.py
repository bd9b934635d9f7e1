"""Keys by event: one event changes several rows, each in its own way."""

# mypy: disable-error-code="arg-type, call-arg, dict-item, list-item"

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from headwater import (
    EVERY,
    Aggregate,
    Cache,
    Claim,
    Deleted,
    Event,
    Postgres,
    TableView,
    add,
    at_least,
    by_key,
    collect,
    count,
    envelope,
    item,
    last,
    negative,
    nested,
    value,
)
from headwater.eventlog.envelope import Envelope, Position, encode
from headwater.projections.errors import Unloadable, ViewDeclarationError
from headwater.projections.folding.row_changes import RowChanges, streams_of_row
from headwater.projections.loading.refused_patches import apply_fitting
from headwater.projections.reading.reader import fold, lift, remaining
from headwater.projections.registry import ViewRegistry
from headwater.projections.stores.memory import Memory, MemoryStore
from headwater.projections.stores.store import Batch, Target
from headwater.projections.table.event_data import problem
from headwater.projections.table.expressions import Source
from headwater.projections.table.types import ColumnType
from headwater.samples.shop.source import Customer
from headwater.testing import check_any_order, rows_of
from tests.contracts.fold_views import ARRIVED, LEFT, Moved, Packed
from tests.contracts.view_histories import Put
from tests.support import tenants
from tests.support.recording import recording

ANY: Any = None


class Opened(Event, type="holder.opened"):
    account_id: str
    owner: str


class Transferred(Event, type="ledger.transferred"):
    transfer_id: str
    from_account: str
    to_account: str | None
    cents: int


holder = recording("holder", "account_id", Opened)
ledger = recording("ledger", "transfer_id", Transferred)


class Received(Event, type="pallet.received"):
    pallet_id: str
    depot: str


class Sent(Event, type="pallet.sent"):
    pallet_id: str
    from_depot: str
    to_depot: str


pallet = recording("pallet", "pallet_id", Received, Sent)
GONE, COME = by_key(Sent, "from_depot"), by_key(Sent, "to_depot")

SENT, RECEIVED = by_key(Transferred, "from_account"), by_key(Transferred, "to_account")
COLUMNS = {
    "owner": last({Opened: "owner"}),
    "cents": add({SENT: negative("cents"), RECEIVED: "cents"}),
    "sent": count(SENT),
    "transfers": count(Transferred),
    "last": last({SENT: value("sent"), RECEIVED: value("received")}),
}
KEYS = {Opened: "account_id", Transferred: ["from_account", "to_account"]}


def view(**changes: Any) -> TableView:
    declared = {
        "name": "accounts", "key": KEYS, "key_name": "account_id", "columns": COLUMNS, "stores": (Postgres(),)
    }  # fmt: skip
    return TableView(**declared | changes)


ACCOUNTS = view()


def moved(come_from: str, go_to: str | None, cents: int) -> Transferred:
    return Transferred(transfer_id="T", from_account=come_from, to_account=go_to, cents=cents)


def transferred(come_from: str, go_to: str | None, cents: int = 5, number: int = 1) -> Source:
    data = {"transfer_id": "T", "from_account": come_from, "to_account": go_to, "cents": cents}
    time = datetime(2026, 1, 1, tzinfo=UTC)
    made = Envelope(f"ledger/T/{number}", "ledger.transferred", "ledger/T", time, data, sequence=number)
    return Source(made, Position(0, number), 1_767_225_600_000, encode(made).decode())


def test_one_event_changes_two_rows_each_in_its_own_way() -> None:
    opened = [Opened(account_id=each, owner=each.lower()) for each in "AB"]
    happened = [*opened, moved("A", "B", 5)]
    assert rows_of(ACCOUNTS, *happened) == {
        "A": {"account_id": "A", "owner": "a", "cents": -5, "sent": 1, "transfers": 1, "last": "sent"},
        "B": {"account_id": "B", "owner": "b", "cents": 5, "sent": 0, "transfers": 1, "last": "received"},
    }
    check_any_order(ACCOUNTS, *happened)


def test_from_and_to_one_row_both_changes_apply_once_in_the_order_of_the_key() -> None:
    source = transferred("A", "A")
    first, second = lift(ACCOUNTS, source)
    assert [(patch.key, patch.place.offset, patch.place.number) for patch in (first, second)] == [
        ("A", 1, 0),
        ("A", 1, 1),
    ]
    assert fold(ACCOUNTS, [source])["A"] == {
        "account_id": "A", "owner": None, "cents": 0, "sent": 1, "transfers": 2, "last": "received"
    }  # fmt: skip
    reversed_keys = view(key={Opened: "account_id", Transferred: ["to_account", "from_account"]})
    assert fold(reversed_keys, [source])["A"]["last"] == "sent"
    store, target = MemoryStore(Memory()), Target(ACCOUNTS, 1)
    store.create(target, {}, {0: 0})
    for _ in range(3):  # delivered again, whole and in part
        for some in ([first, second], [first], [second]):
            store.apply([target], {0: Batch(1, {ACCOUNTS.tag: some})})
    assert store.rows(target)["A"]["transfers"] == 2
    assert store.rows(target)["A"]["last"] == "received"


def test_the_rows_of_an_event_are_known_from_it() -> None:
    assert ACCOUNTS.rows_of(transferred("A", "B").envelope) == ("A", "B")
    assert ACCOUNTS.rows_of(transferred("A", "A").envelope) == ("A", "A")


def test_an_event_with_one_null_key_is_a_dead_letter_and_changes_neither_row() -> None:
    source = transferred("A", None)
    assert lift(ACCOUNTS, source) == []
    assert ACCOUNTS.rows_of(source.envelope) == ()
    reason = '"ledger.transferred" lacks a field, or has it with another type: to_account'
    assert problem([ACCOUNTS.plan], source.envelope) == reason
    with pytest.raises(ValueError, match="would be a dead letter"):
        rows_of(ACCOUNTS, moved("A", None, 5))


def test_an_erased_event_is_gone_from_both_rows() -> None:
    sources = [transferred("A", "B", 5, 1), transferred("B", "C", 3, 2)]
    left = remaining(sources, {(0, "ledger/T/1"): 9})
    assert {key: row["cents"] for key, row in fold(ACCOUNTS, left).items()} == {"B": -3, "C": 3}


def test_a_condition_of_one_row_leaves_the_other() -> None:
    large = view(where={RECEIVED: at_least("cents", 10)})
    assert fold(large, [transferred("A", "B")]).keys() == {"A"}
    both = view(where={Transferred: at_least("cents", 10)})
    assert fold(both, [transferred("A", "B")]) == {}
    own = view(where={Transferred: at_least("cents", 1), RECEIVED: at_least("cents", 10)})
    assert fold(own, [transferred("A", "B")]).keys() == {"A"}


def test_if_a_store_refuses_one_row_the_other_is_changed() -> None:
    letters = Letters()
    store, target = MemoryStore(Memory()), Target(ACCOUNTS, 1)
    store.create(target, {}, {0: 0})

    def apply(targets: Sequence[Target], batches: Mapping[int, Batch]) -> None:
        if any(record.key == "A" for batch in batches.values() for made in batch.patches.values() for record in made):
            raise Unloadable("memory", "too long")
        store.apply(targets, batches)

    patches = lift(ACCOUNTS, transferred("A", "B"))
    assert apply_fitting(apply, [target], {0: Batch(1, {ACCOUNTS.tag: patches})}, "memory", letters) == 1
    assert store.rows(target).keys() == {"B"}
    assert letters.keys == ["patches/memory/accounts@1/0/1/0"]


class Letters:
    def __init__(self) -> None:
        self.keys: list[str] = []

    def add(self, key: str, reason: str, record: bytes) -> None:
        self.keys.append(key)


def test_a_pallet_moves_from_depot_to_depot() -> None:
    depots = TableView(
        name="depots",
        key={Received: "depot", Sent: ["from_depot", "to_depot"]},
        key_name="depot",
        columns={
            "pallets": add({Received: 1, GONE: -1, COME: 1}),
            "here": nested(
                "pallet_id",
                {Received: "pallet_id", GONE: "pallet_id", COME: "pallet_id"},
                {"from": last({COME: "from_depot"})},
                deleted_by=(GONE,),
                restored_by=(Received, COME),
            ),
        },
        stores=(Postgres(),),
    )
    happened = [
        Received(pallet_id="P", depot="Oslo"),
        Sent(pallet_id="P", from_depot="Oslo", to_depot="Rome"),
        Received(pallet_id="Q", depot="Oslo"),
        Sent(pallet_id="Q", from_depot="Oslo", to_depot="Oslo"),
    ]
    assert rows_of(depots, *happened) == {
        "Oslo": {"depot": "Oslo", "pallets": 1, "here": [{"pallet_id": "Q", "from": "Oslo"}]},
        "Rome": {"depot": "Rome", "pallets": 1, "here": [{"pallet_id": "P", "from": "Oslo"}]},
    }
    check_any_order(depots, *happened)


def test_each_event_has_its_own_key() -> None:
    names = view(key={Opened: "owner", Transferred: "to_account"}, columns={"n": count(Opened, Transferred)})
    happened = [Opened(account_id="A", owner="Ada"), moved("B", "Ada", 1)]
    assert rows_of(names, *happened) == {"Ada": {"account_id": "Ada", "n": 2}}
    named = view(key={Transferred: "to_account", EVERY: envelope("stream")}, columns={"n": count(EVERY)})
    assert fold(named, [transferred("A", "B")]) == {"B": {"account_id": "B", "n": 1}}


def test_rows_of_several_streams_are_in_the_order_of_time_and_rows_of_one_in_that_of_its_versions() -> None:
    def order(declared: TableView) -> str:
        return str(declared.plan.lifts[Transferred].rows[0].brings)

    by_ids = view(key={Transferred: "transfer_id"}, columns={"last": last({Transferred: "cents"})})
    assert "sequence" in order(by_ids) and "LogPlace" not in order(by_ids)
    assert "LogPlace" in order(ACCOUNTS)
    by_streams = view(key={Transferred: envelope("stream")}, columns={"last": last({Transferred: "cents"})})
    assert "sequence" in order(by_streams)


def test_the_streams_of_a_row_with_several_keys_are_not_known() -> None:
    aggregates = [holder, ledger]
    several = view(key={Transferred: ["transfer_id", "to_account"]}, columns={"n": count(Transferred)})
    assert streams_of_row(several, "T", aggregates) is None
    changes = RowChanges(several, "T")
    change = changes.add(Position(0, 1), transferred("A", "T").record.encode())
    assert change is not None and change.after == {"account_id": "T", "n": 2}
    one = view(key={Transferred: "transfer_id"}, columns={"n": count(Transferred)})
    assert streams_of_row(one, "T", aggregates) == ["ledger/T"]


def test_the_fingerprint_has_the_keys_and_their_order() -> None:
    turned = view(key={Opened: "account_id", Transferred: ["to_account", "from_account"]})
    assert len({ACCOUNTS.fingerprint, turned.fingerprint, view(deleted_by=(SENT,)).fingerprint}) == 3
    assert view(key=dict(reversed(KEYS.items()))).fingerprint == ACCOUNTS.fingerprint
    assert '{holder.opened: "account_id", ledger.transferred: ["from_account", "to_account"]}' in ACCOUNTS.declaration
    assert 'deleted by by_key(ledger.transferred, "from_account")' in view(deleted_by=(SENT,)).declaration
    assert 'sent=count(by_key(ledger.transferred, "from_account"))' in ACCOUNTS.declaration


@pytest.mark.parametrize(
    ("keys", "is_refused"),
    [
        (["account_id", "owner"], True),
        (["owner", "account_id"], True),
        (["owner", "tenant"], False),
        ([("tenant", "owner"), ("tenant", "account_id")], False),
        ([("tenant", "owner"), ("owner", "account_id")], True),
    ],
)
def test_each_row_keeps_tenants_apart(keys: list[Any], is_refused: bool) -> None:
    declared = view(name="tried", key={tenants.Opened: keys}, columns={"n": count(tenants.Opened)})
    module = sys.modules["keys_tried"] = types.ModuleType("keys_tried")
    try:
        vars(module)["tried"] = declared
        if is_refused:
            with pytest.raises(ViewDeclarationError, match='"account" without "tenant"'):
                ViewRegistry.load([tenants.__name__, "keys_tried"])
        else:
            ViewRegistry.load([tenants.__name__, "keys_tried"])
    finally:
        del sys.modules["keys_tried"]


def test_a_key_of_several_fields_is_their_texts_and_each_is_a_column() -> None:
    days = view(
        key=("from_account", "cents"), key_name="", columns={"n": count(Transferred)}, stores=(Postgres(), Cache())
    )
    assert days.key_name == "key"
    sources = [transferred(each, "x") for each in ("a/b", "a", "a/b", "a%2Fb")]
    assert fold(days, sources) == {
        "a%2Fb/5": {"key": "a%2Fb/5", "from_account": "a/b", "cents": 5, "n": 2},
        "a/5": {"key": "a/5", "from_account": "a", "cents": 5, "n": 1},
        "a%252Fb/5": {"key": "a%252Fb/5", "from_account": "a%2Fb", "cents": 5, "n": 1},
    }
    assert days.rows_of(sources[0].envelope) == ("a%2Fb/5",)
    assert dict(days.types)["cents"] is ColumnType.INTEGER
    assert '("from_account", "cents")' in days.declaration


def test_a_list_of_two_fields_is_no_key_of_two_fields() -> None:
    several, one = (
        view(key={Transferred: ["from_account", "to_account"]}, columns=ONE),
        view(key={Transferred: ("from_account", "to_account")}, columns=ONE),
    )
    assert several.fingerprint != one.fingerprint
    assert fold(several, [transferred("A", "B")]).keys() == {"A", "B"}
    assert fold(one, [transferred("A", "B")]).keys() == {"A/B"}


def test_rows_of_tenants_by_the_id_of_the_aggregate_are_in_the_order_of_its_versions() -> None:
    declared = TableView(
        name="tried",
        key=("tenant", "account_id"),
        columns={"owner": last({tenants.Opened: "owner"})},
        stores=(Postgres(),),
        readable_by={"tenant": Claim("tenant")},
    )
    assert "sequence" in str(declared.plan.lifts[tenants.Opened].rows[0].brings)
    assert streams_of_row(declared, "acme/A%2F1", [tenants.account]) == ["account/acme/A%2F1"]
    assert streams_of_row(declared, "acme", [tenants.account]) is None


ONE = {"n": count(Transferred)}
MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (lambda: view(key={}), 'key is empty: write key={Opened: "account_id", Transferred: ["'),
    (lambda: view(key_name=""), 'if the key is not a field, add a "key_name"'),
    (lambda: view(key={Opened: "account_id"}), 'key has no Transferred: add Transferred: "…", with the field that is'),
    (lambda: view(key=KEYS | {Put: "group"}), "no column reads thing.put, which `key` names: leave it out"),
    (lambda: view(key=KEYS | {"opened": "group"}), "key is given 'opened', which is no class of events with a type: "),
    (lambda: view(key=KEYS | {Customer: "id"}), "rows of captured tables have their own key: leave it out"),
    (lambda: view(key=KEYS | {Deleted(Customer): "id"}), "rows of captured tables have their own key: leave it out"),
    (lambda: view(key=KEYS | {SENT: "from_account"}), 'key has by_key(ledger.transferred, "from_account"): write the'),
    (lambda: view(key=KEYS | {Opened: 5}), "the key of holder.opened is 5, which is no text: write the"),
    (lambda: view(key=KEYS | {Opened: ""}), "the key of holder.opened is empty: write the name of a field"),
    (lambda: view(key=KEYS | {Opened: "account"}), 'event "holder.opened" has no field "account"'),
    (
        lambda: view(key=KEYS | {Transferred: ("from_account", "to_account")}),
        "a key of ledger.transferred has 2 fields, and a key of holder.opened has 1 field: give all the same number",
    ),
    (lambda: view(key=KEYS | {Transferred: ["to_account", envelope("id")]}), "only fields of the event make several"),
    (lambda: view(key=KEYS | {Transferred: ["from_account"]}), "lists fewer than two: list one per row"),
    (lambda: view(key=KEYS | {Transferred: []}), "lists fewer than two: list one per row"),
    (
        lambda: view(key=KEYS | {Transferred: ["to_account"] * 2}),
        "key of ledger.transferred has 'to_account' twice",
    ),
    (lambda: view(key=KEYS | {Transferred: ["from_account", 5]}), "a key of ledger.transferred is 5, which is no"),
    (
        lambda: view(key={Transferred: ["from_account", "cents"]}, columns=ONE),
        "its key is integer in ledger.transferred and text in ledger.transferred: give all events a key of one type",
    ),
    (lambda: view(key={EVERY: ["id", "stream"]}, columns={"n": count(EVERY)}), "the key of EVERY lists fields, which"),
    (lambda: view(key={Opened: "account_id", Transferred: "to_account"}), "changes one row only: write Transferred"),
    (lambda: view(key="account_id"), "changes one row only: write Transferred, or list its keys, as in key={Opened"),
    (
        lambda: view(columns={"n": count(by_key(Transferred, "cents"), Opened)}),
        'is no row of this view: write by_key(ledger.transferred, "from_account") or by_key(',
    ),
    (
        lambda: view(columns={"n": count(SENT, Opened)}),
        'nothing changes the row of by_key(ledger.transferred, "to_account"): read it in a column, or',
    ),
    (
        lambda: view(columns=COLUMNS | {"both": count(Transferred, SENT)}),
        'column "both" has ledger.transferred, which stands for all of its rows, and by_key(ledger.transferred, ',
    ),
    (lambda: view(deleted_by=(Transferred,), restored_by=(SENT,)), "which stands for all of its rows, and by_key("),
    (lambda: view(deleted_by=SENT), "deleted_by is one event: write deleted_by=(by_key("),
    (lambda: view(deleted_by=(SENT, SENT)), 'has by_key(ledger.transferred, "from_account") twice: remove one'),
    (lambda: view(deleted_by=(by_key(Transferred, ANY),)), "deleted_by: by_key() key is None, which is no text"),
    (lambda: view(where={by_key(Transferred, "cents"): at_least("cents", 1)}), "is no row of this view: write by_key("),
    (lambda: view(where={SENT: at_least("owner", 1)}), 'event "ledger.transferred" has no field "owner"'),
    (lambda: view(columns={"n": count(by_key(Customer, "id"))}), "a change of a captured row changes one row only"),
    (lambda: view(columns={"n": add({by_key(Opened): 1})}), 'column "n": by_key() lacks "key": write by_key('),
    (
        lambda: view(
            columns={"n": nested("a", {SENT: "to_account"}, {"n": count(RECEIVED)}), "all": count(Opened, RECEIVED)}
        ),
        'its key has no by_key(ledger.transferred, "to_account"): add which part',
    ),
    (
        lambda: view(columns={"n": collect({SENT: "cents", RECEIVED: {"cents": "cents"}}), "all": count(Opened)}),
        "its cases show different fields",
    ),
    (
        lambda: view(
            key={Packed: ["group", "thing_id"]},
            each={Packed: "lines"},
            columns={"n": add({Packed: item("lines", "pieces")})},
        ),
        "thing.packed goes through a list with `each`, so each item changes one row: give it one key",
    ),
    (
        lambda: view(key={Packed: item("lines", "sku")}, columns={"n": count(Packed)}),
        'it is an item of "lines", but nothing goes through "lines": use `each`',
    ),
    (lambda: view(key={Put: "group", Moved: "group"}, columns={"n": count(Put, Moved)}), 'has no field "group"'),
]


@pytest.mark.parametrize(("declare", "said"), MISTAKES)
def test_what_cannot_work_is_refused_when_it_is_declared(declare: Callable[[], Any], said: str) -> None:
    with pytest.raises(ViewDeclarationError, match='view "accounts": ') as refused:
        declare()
    assert said in str(refused.value)


def test_an_aggregate_may_be_declared_later() -> None:
    """The order of rows is asked for when the view is used."""
    assert isinstance(ledger, Aggregate)
    assert by_key(Moved, "from_group") == LEFT and ARRIVED != LEFT
