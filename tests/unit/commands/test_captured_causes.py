"""Captured rows as inputs of processes: each change has its effect once, in order, whatever fails or comes again."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from headwater.commands.declaring.process import Process, ProcessRegistry, Reaction
from headwater.commands.declaring.row_inputs import RowDeleted
from headwater.commands.errors import DeclarationError
from headwater.commands.reacting.row_router import row_role
from headwater.eventlog.capturing import Captured, Source
from headwater.eventlog.capturing.values import PLACEHOLDER
from headwater.eventlog.heartbeats import heartbeat_key
from headwater.eventlog.ports import Entry
from headwater.samples.shop.domain import customer, payment
from headwater.samples.shop.domain.customer import Details
from headwater.samples.shop.processes import customer_import
from headwater.samples.shop.source import Customer, Order, OrderLine
from tests.support.captured_customers import Customers, row
from tests.support.collector import recorded
from tests.support.process_world import World
from tests.support.seeds import examples, seed_of
from tests.unit.capturing.records import record


class Seen(BaseModel):
    model_config = ConfigDict(frozen=True)
    seen: tuple[str, ...] = ()


def note(event: Customer | RowDeleted[Customer], state: Seen) -> Reaction[Seen]:
    return Reaction(Seen(seen=(*state.seen, event.name if isinstance(event, Customer) else "deleted")))


def noting(**other: Any) -> Process[Seen]:
    declared: dict[str, Any] = {"name": "noting", "key": "customer_id", "initial": Seen(), "starts": (Customer,)}
    return Process(**{**declared, "react": note, "begins": "origin", **other})


def histories(world: World) -> Mapping[int, list[Details | None]]:
    """By customer, what the events say, one after another."""
    found: dict[int, list[Details | None]] = defaultdict(list)
    for envelope in world.events():
        kind, _, number = envelope.stream.partition("/")
        if kind == "customer":
            data = envelope.data
            told = (
                None if envelope.type == "customer.removed" else {field: data[field] for field in Details.model_fields}
            )
            found[int(number)].append(None if told is None else Details(**told))
    return found


def seen(world: World, key: str) -> list[str]:
    instance = world.instance(f"noting/{key}")
    return list(instance["state"]["seen"]) if instance else []


@pytest.fixture
def world() -> World:
    world = World(random.Random(seed_of(1)))
    world.deploy(customer_import, noting())
    return world


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(15), deadline=None)
def test_a_row_becomes_a_customer_with_a_history_whatever_fails(seed: int) -> None:
    chance = random.Random(seed)
    world = World(chance)
    table = Customers(world)
    for _ in range(40):
        for _ in range(chance.randrange(3)):
            table.change_somehow(chance)
        world.some_steps(3)
        if chance.random() < 0.03:
            world.redeliver()
    world.settle()
    assert histories(world) == table.histories, f"seed {seed}"
    assert {int(stream.partition("/")[2]): state.details for stream, state in world.states().items()} == {
        number: history[-1] for number, history in table.histories.items()
    }
    assert world.letters() == {}
    assert world.instances() == [], "the import keeps nothing in memory"
    assert world.outcomes().keys() <= {"accepted"}


def test_changes_that_are_read_again_change_nothing(world: World) -> None:
    table = Customers(world)
    for name in ("Ada", "Bo", "Ada"):
        table.put(1, name=name)
    table.delete(1)
    table.put(1, name="Chen")
    world.settle()
    before = world.events()
    world.redeliver()
    world.settle()
    table.append_again(table.records)
    world.settle()
    assert world.events() == before, "the ids of commands come from the place in the database"
    table.snapshot()
    world.settle()
    assert world.events() == before, "the row is as it is known"


def test_an_instance_sees_each_change_once_and_a_delete_with_its_tombstone_is_one(world: World) -> None:
    table = Customers(world)
    table.put(7, name="Ada")
    table.put(7, name="Bo")
    table.delete(7)
    table.put(7, name="Chen")
    world.settle()
    world.redeliver()
    world.settle()
    assert seen(world, "7") == ["Ada", "Bo", "deleted", "Chen"]


def test_a_change_begins_a_trace_that_leads_to_the_commands_of_a_process(world: World) -> None:
    table = Customers(world)
    with recorded() as found:
        table.put(7, name="Ada")
        world.settle()
    routed = found.named(f"route {Customer.topic()}")
    reaction = next(span for span in found if span.name.startswith("react "))
    decision = next(span for span in found if span.name.startswith("decide "))
    assert (routed.parent, reaction.parent, decision.parent) == ("", routed.id, reaction.id)
    assert {span.trace for span in (routed, reaction, decision)} == {routed.trace}
    assert "Ada" not in str(found)


@pytest.mark.parametrize("beats", [0, 3])
def test_a_tombstone_that_another_owner_reads_is_still_the_same_delete(beats: int) -> None:
    world = World(random.Random(1), partitions=1)
    world.deploy(noting(starts=(Customer, RowDeleted[Customer])))
    role = row_role(Customer.topic(), 1)
    world.change(Customer, {"id": 7}, record(op="d"))
    world.step(role, 0, 100)
    world.restart(role, 0)
    for _ in range(beats):
        world.log.submit(Entry(Customer.topic(), heartbeat_key(0), b"{}", 0), 0)
    world.change(Customer, {"id": 7}, None)
    world.settle()
    assert seen(world, "7") == ["deleted"]


def test_a_delete_and_its_tombstone_are_one_deletion_for_a_process_that_is_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While it catches up, changes that happen now are routed in between."""
    monkeypatch.setattr("headwater.commands.reacting.router.MAX_SPAN_OFFSETS", 1)
    world = World(random.Random(1), partitions=1)
    world.deploy(noting(starts=(Customer, RowDeleted[Customer])))
    role = row_role(Customer.topic(), 1)
    world.change(Customer, {"id": 7}, record(op="d"))
    world.change(Customer, {"id": 7}, None)
    world.settle()
    world.deploy(noting(), noting(name="later", starts=(Customer, RowDeleted[Customer])))
    for number in range(100, 104):
        world.change(Customer, {"id": number}, record(op="d", lsn=number))
        world.step(role, 0, 100)
    world.settle()
    later = world.instance("later/7")
    assert later is not None
    assert later["state"]["seen"] == ["deleted"]


def test_a_tombstone_without_its_delete_is_a_delete(world: World) -> None:
    """Compaction may have removed the record before it."""
    world.change(Customer, {"id": 7}, record(after=row(7), op="c"))
    world.change(Customer, {"id": 7}, None)
    world.settle()
    assert seen(world, "7") == ["Ada", "deleted"]
    assert histories(world)[7][-1] is None


def test_a_process_that_comes_late_sees_the_last_rows_and_no_more() -> None:
    world = World(random.Random(1))
    world.deploy()
    world.change(Customer, {"id": 1}, record(after=row(1, "Bo"), op="u"))
    world.change(Customer, {"id": 2}, None)
    world.deploy(customer_import, noting(begins="now"))
    world.settle()
    assert {number: [span and span.name for span in told] for number, told in histories(world).items()} == {1: ["Bo"]}
    assert seen(world, "1") == []
    world.change(Customer, {"id": 1}, record(after=row(1, "Chen"), op="u", lsn=24023131))
    world.settle()
    assert seen(world, "1") == ["Chen"]


def test_a_topic_that_was_made_again_is_read_from_the_start(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Customers(world)
    for name in ("Ada", "Bo", "Ada"):
        table.put(1, name=name)
    world.settle()
    before = world.events()
    for place in [place for place in world.log._records if place[0] == Customer.topic()]:
        del world.log._records[place]
    monkeypatch.setattr(world.log, "incarnation", lambda topic: f"new/{topic}")
    table.snapshot()
    world.restart_all()
    world.settle()
    assert world.events() == before
    assert seen(world, "1") == ["Ada", "Bo", "Ada", "Ada"]
    table.put(1, name="Chen")
    world.restart_all()
    world.settle()
    assert [span and span.name for span in histories(world)[1]] == ["Ada", "Bo", "Ada", "Chen"]
    assert seen(world, "1") == ["Ada", "Bo", "Ada", "Ada", "Chen"]


def test_a_process_that_began_in_the_topic_before_sees_all_of_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(random.Random(1))
    world.deploy()
    table = Customers(world)
    for name in ("Ada", "Bo", "Ada"):
        table.put(1, name=name)
    world.deploy(noting(begins="now"))
    for place in [place for place in world.log._records if place[0] == Customer.topic()]:
        del world.log._records[place]
    monkeypatch.setattr(world.log, "incarnation", lambda topic: f"new/{topic}")
    table.put(1, name="Chen")
    world.restart_all()
    world.settle()
    assert seen(world, "1") == ["Chen"]


def test_two_snapshots_at_one_place_of_the_log_are_two_changes_if_the_values_differ(world: World) -> None:
    """A snapshot between the changes may have the position of the last one, whatever row that was about."""
    for name in ("Ada", "Bo", "Bo"):
        world.change(Customer, {"id": 1}, record(after=row(1, name), op="r", lsn=1_000, order=0))
    world.settle()
    assert [span and span.name for span in histories(world)[1]] == ["Ada", "Bo"]


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ({"id": 1}, record(after=row(1) | {"credit_limit": {}}), "declare the column with the type"),
        ({"id": 1}, record(after=row(1) | {"name": None}), 'the column "name" is null: add | None'),
        ({"id": 1}, record(after=row(1) | {"public_id": "no uuid"}), 'does not match "Customer"'),
        ({"id": 1}, b"\xff", "not a record of Debezium"),
        ({"id": 1}, record(op="x"), 'its operation is "x"'),
        ({"other": 1}, record(after=row(1)), 'its key has no "id"'),
        ({"id": 1}, record(op="t"), "run `sweep`"),
    ],
)  # fmt: skip
def test_a_record_that_cannot_be_read_is_a_dead_letter_and_the_partition_goes_on(
    world: World, key: dict[str, Any], value: bytes, says: str
) -> None:
    at = world.change(Customer, key, value)
    world.change(Customer, {"id": 2}, record(after=row(2), op="c"))
    world.settle()
    (letter,) = world.letters().items()
    assert letter[0] == f"{Customer.topic()}/{at.partition}/{at.offset}/router"
    assert says in letter[1].reason
    assert letter[1].value == value
    assert histories(world).keys() == {2}


def test_a_row_that_lacks_a_long_value_is_left_out_because_another_record_follows(world: World) -> None:
    world.change(Customer, {"id": 1}, record(after=row(1), op="c"))
    world.change(Customer, {"id": 1}, record(after=row(1) | {"name": PLACEHOLDER}, lsn=24023131))
    world.settle()
    assert seen(world, "1") == ["Ada"]
    assert world.letters() == {}


def test_heartbeats_of_the_read_side_are_passed_over(world: World) -> None:
    for partition in range(world.log.partitions):
        world.log.submit(Entry(Customer.topic(), heartbeat_key(partition), b"{}", 0), partition)
    world.settle()
    assert world.letters() == {}


def test_commands_say_what_they_follow_from(world: World) -> None:
    table = Customers(world)
    table.put(1, name="Ada")
    world.settle()
    (event,) = world.events()
    assert event.causation_id == "customer_import:cdc.shop.public.customers/1@0/3F0:555:1:0"
    assert event.correlation_id == "cdc.shop.public.customers/1@0/3F0:555:1"


class Totals(BaseModel):
    model_config = ConfigDict(frozen=True)
    lines: int = 0


def test_rows_of_one_order_meet_in_its_instance_and_a_deleted_one_is_named_by_its_key() -> None:
    def count(event: OrderLine | RowDeleted[OrderLine], state: Totals) -> Reaction[Totals]:
        return Reaction(Totals(lines=state.lines + (1 if isinstance(event, OrderLine) else -1)))

    counting = Process(name="counting", key="order_id", initial=Totals(), starts=(OrderLine,), react=count)
    world = World(random.Random(1))
    world.deploy(counting)
    line = {"sku": "tea", "quantity": 1, "unit_price": "2.50"}
    for number in (1, 2, 3):
        key = {"order_id": 9, "line_number": number}
        world.change(OrderLine, key, record(after={**key, **line}, op="c", lsn=number))
    world.change(OrderLine, {"order_id": 9, "line_number": 2}, record(op="d", lsn=4))
    world.settle()
    instance = world.instance("counting/9")
    assert instance is not None
    assert instance["state"]["lines"] == 2


class Loose(Captured, table="public.loose", key="id"):
    id: int
    weight: float
    owner: int | None


loose = Source("loose", (Loose,))


class Homeless(Captured, table="public.homeless", key="id"):
    id: int


def of(annotation: Any) -> Any:
    def react(event: Any, state: Seen) -> Reaction[Seen]:
        return Reaction(state)

    react.__annotations__["event"] = annotation
    return react


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"react": of(Homeless)}, '"public.homeless" belongs to no source: add Homeless to the tables of a Source'),
        ({"react": of(RowDeleted)}, r"write RowDeleted\[Customer\], with a captured class"),
        ({"react": of(RowDeleted[customer.Details])}, r"write RowDeleted\[Customer\]"),  # type: ignore[type-var]
        ({"react": of(Customer | Captured)}, "annotated with Event classes, captured classes"),
        ({"react": of(Loose), "key": "weight", "starts": (Loose,)}, "a column of .* with float values"),
        ({"react": of(Loose | RowDeleted[Loose]), "key": "owner", "starts": (Loose,)}, "only the key of a deleted row"),
        ({"react": of(Customer | payment.PaymentReceived), "key": "id"}, '"payment.received" has no field "id"'),
        ({"react": of(Customer), "starts": (RowDeleted[Customer],)}, r"does not handle .*customers\.deleted"),
        ({"react": of(Customer), "starts": (Order,)}, "must start with events or rows"),
    ],
)  # fmt: skip
def test_a_declaration_that_cannot_be_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(DeclarationError, match=says):
        noting(**wrong)


def test_a_row_whose_key_column_is_null_belongs_to_no_instance() -> None:
    world = World(random.Random(1))

    def react(event: Loose, state: Seen) -> Reaction[Seen]:
        return Reaction(Seen(seen=(*state.seen, str(event.id))))

    world.deploy(Process(name="noting", key="owner", initial=Seen(), starts=(Loose,), react=react))
    for number, owner in ((1, 5), (2, None), (3, 5)):
        after = {"id": number, "weight": 1.5, "owner": owner}
        world.change(Loose, {"id": number}, record(after=after, op="c", lsn=number))
    world.settle()
    assert world.instances() == ["noting/5"]
    assert sorted(seen(world, "5")) == ["1", "3"]


def test_a_process_of_a_source_that_is_not_deployed_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r'"public\.customers" of the source "shop".*add the module "headwater'):
        ProcessRegistry.load(["headwater.samples.shop.processes", "headwater.samples.shop.domain"])
    assert ProcessRegistry.load(["shop"]).tables == {Customer.topic(): Customer}
