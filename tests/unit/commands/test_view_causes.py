"""Rows of views as inputs of processes: each change has its effect once, in whatever generation it comes again."""

from __future__ import annotations

import random
import re
from collections import Counter
from datetime import timedelta
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from headwater.commands.declaring.process import Process, ProcessRegistry, Reaction
from headwater.commands.declaring.row_inputs import RowDeleted
from headwater.commands.declaring.view_rows import ViewRow
from headwater.commands.errors import DeclarationError
from headwater.commands.reacting.row_router import process_topics, row_role
from headwater.eventlog import topics
from headwater.eventlog.envelope import decode, partition_of
from headwater.eventlog.ports import Entry
from headwater.eventlog.settings import LogSettings
from headwater.samples.payments import domain as card
from headwater.samples.payments.processes import RapidPayments, card_blocking
from headwater.samples.shop.source import Customer
from tests.support.process_world import PATCH_PARTITIONS, World
from tests.support.seeds import examples, seed_of

VIEW = "rapid_payments"


class Lateness(ViewRow, view="bus_lateness"):
    bus: str
    minutes: int | None


class Seen(BaseModel):
    model_config = ConfigDict(frozen=True)
    seen: tuple[int | None, ...] = ()


def note(event: Lateness | RowDeleted[Lateness], state: Seen) -> Reaction[Seen]:
    minutes = event.minutes if isinstance(event, Lateness) else -1
    blocked = card.BlockCard(card=str(minutes), rule="late")
    return Reaction(Seen(seen=(*state.seen, minutes)), [blocked])


def noting(**other: Any) -> Process[Seen]:
    declared: dict[str, Any] = {"name": "noting", "key": "row", "initial": Seen(), "starts": (Lateness,)}
    return Process(**{**declared, "react": note, "begins": "origin", **other})


def alert(number: str, *ids: str, **other: Any) -> dict[str, Any]:
    """A row of the view. other: columns that the process does not read."""
    return {"card": number, "ids": "[" + ",".join(f'"{id_}"' for id_ in ids) + "]", **other}


def late(minutes: int | None, **other: Any) -> dict[str, Any]:
    return {"bus": "7", "minutes": minutes, **other}


def sent(world: World) -> Counter[str]:
    """The commands of processes, by id: how often each was sent."""
    found = (partition for p in range(world.log.partitions) for partition in world.log.read(topics.COMMANDS, p, 0))
    ids = (decode(record.value).id for record in found)
    return Counter(id_ for id_ in ids if ":" in id_)


def seen(world: World, key: str) -> list[int | None]:
    instance = world.instance(f"noting/{key}")
    return list(instance["state"]["seen"]) if instance else []


@pytest.fixture
def world() -> World:
    world = World(random.Random(seed_of(1)))
    world.deploy(card_blocking, noting())
    return world


def blocked(world: World) -> dict[str, tuple[str, ...]]:
    """The evidence by card, of those that were blocked; a card that was blocked twice fails."""
    events = [event for event in world.events() if event.type == "card.blocked"]
    found = {event.data["card"]: tuple(event.data["evidence"]) for event in events}
    assert len(found) == len(events)
    return found


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(15), deadline=None)
def test_each_card_with_an_alert_is_blocked_once_whatever_fails_and_comes_again(seed: int) -> None:
    chance = random.Random(seed)
    world = World(chance)
    world.deploy(card_blocking)
    shown: dict[str, dict[str, Any]] = {}
    for number in range(30):
        if chance.random() < 0.3 and shown:
            key = chance.choice(sorted(shown))  # the same row again
            world.show(VIEW, key, shown[key], generation=2, batch=number)
        else:
            name = f"card {chance.randrange(8)}"
            key, row = f"{name}/{number}", alert(name, f"p{number}", f"p{number + 1}")
            shown[key] = row
            world.show(VIEW, key, row, batch=number)
        world.some_steps(4)
        if chance.random() < 0.05:
            world.redeliver()
    world.settle()
    found = blocked(world)
    assert found.keys() == {row["card"] for row in shown.values()}
    assert all(alert(name, *ids) in shown.values() for name, ids in found.items())
    assert (world.letters(), world.instances()) == ({}, [])
    assert world.outcomes().keys() == {"accepted"}


def test_ids_of_commands_are_the_same_in_each_generation_and_at_each_offset(world: World) -> None:
    row = alert("A", "p1", "p2")
    world.show(VIEW, "A/1", {**row, "payments": 2})
    world.settle()
    (first,) = sent(world)
    world.wait(timedelta(days=1))
    world.show(VIEW, "A/1", {**row, "payments": 2}, generation=2, batch=9)
    world.show(VIEW, "A/1", {**row, "payments": 3, "new_column": "x"}, generation=3)
    world.redeliver()
    world.settle()
    assert sent(world).keys() == {first}, "columns that the class does not have are no cause"
    assert first.startswith("card_blocking:views.rapid_payments/A/1@")
    world.send("card.unblock", card="A")
    world.settle()
    world.redeliver()
    world.show(VIEW, "A/1", row, generation=4)
    world.settle()
    assert world.states()["card/A"].blocked_by is None, "an alert that a person has answered comes again for nothing"


def test_a_row_with_other_values_is_another_cause(world: World) -> None:
    world.show(VIEW, "A/1", alert("A", "p1", "p2"))
    world.settle()
    world.send("card.unblock", card="A")
    world.settle()
    world.show(VIEW, "A/1", alert("A", "p1", "p2", "p3"), generation=2)
    world.settle()
    assert world.states()["card/A"].blocked_by == VIEW
    assert len(sent(world)) == 2


def test_a_topic_that_was_made_again_causes_nothing_twice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.show("bus_lateness", "7", late(1))
    world.show("bus_lateness", "7", late(2))
    world.settle()
    before = sent(world)
    for place in [place for place in world.log._records if place[0].startswith(topics.VIEWS)]:
        del world.log._records[place]
    monkeypatch.setattr(world.log, "incarnation", lambda topic: f"new/{topic}")
    world.show("bus_lateness", "7", late(2))
    world.restart_all()
    world.settle()
    assert sent(world) == before
    world.show("bus_lateness", "7", late(3))
    world.settle()
    assert seen(world, "7") == [1, 2, 3]


def test_an_instance_sees_each_change_once_also_one_back_to_earlier_values(world: World) -> None:
    for minutes in (5, 5, None, 5, 5):
        world.show("bus_lateness", "7", late(minutes))
    world.show("bus_lateness", "7", None)
    world.show("bus_lateness", "7", None)
    world.show("bus_lateness", "7", late(5))
    world.settle()
    world.redeliver()
    world.settle()
    assert seen(world, "7") == [5, None, 5, -1, 5]
    assert len(sent(world)) == 5
    assert set(sent(world).values()) == {1}
    world.restart_all()
    world.show("bus_lateness", "7", late(5))
    world.settle()
    assert seen(world, "7") == [5, None, 5, -1, 5], "a restart forgets nothing"


def test_a_row_that_was_deleted_twice_has_two_deletions() -> None:
    world = World(random.Random(1))

    def end(event: Lateness | RowDeleted[Lateness], state: Seen) -> Reaction[Seen]:
        command = card.BlockCard(card="7", rule="late") if isinstance(event, Lateness) else card.UnblockCard(card="7")
        return Reaction(state, [command], ended=True)

    world.deploy(noting(react=end, starts=(Lateness, RowDeleted[Lateness])))
    for minutes in (1, 2):
        world.show("bus_lateness", "7", late(minutes))
        world.settle()
        world.wait(timedelta(seconds=1))
        world.show("bus_lateness", "7", None)
        world.settle()
    assert [event.type for event in world.events()] == ["card.blocked", "card.unblocked"] * 2
    world.redeliver()
    world.settle()
    assert len(sent(world)) == 4


def test_a_process_that_begins_now_sees_later_rows_and_one_that_begins_at_the_origin_all() -> None:
    world = World(random.Random(1))
    world.deploy()
    for number in range(20):
        world.show("bus_lateness", f"bus {number}", late(1))
    world.deploy(noting(begins="now"), noting(name="all"))
    world.settle()
    assert {key.partition("/")[0] for key in world.instances()} == {"all"}
    assert len(world.instances()) == 20
    for number in range(20):
        world.show("bus_lateness", f"bus {number}", late(2))
    world.settle()
    assert {tuple(seen(world, f"bus {number}")) for number in range(20)} == {(2,)}
    used = {partition for partition in range(PATCH_PARTITIONS) if world.log.end("views.bus_lateness", partition)}
    assert used == set(range(PATCH_PARTITIONS)), "there are more than the log has otherwise"


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"card": "A"}, 'a row of the view "rapid_payments" does not match "RapidPayments".*ids'),
        ({"card": None, "ids": "[]"}, "card.*valid string"),
        ({"card": "A", "ids": "[1"}, 'the column "ids" is not JSON'),
        ({"card": "A", "ids": "{}"}, "ids.*valid array"),
        ({"card": "x" * 20_000, "ids": "[]"}, "the key of an instance has more than"),
    ],
)  # fmt: skip
def test_a_row_that_does_not_fit_is_a_dead_letter_and_the_partition_goes_on(
    world: World, row: dict[str, Any], says: str
) -> None:
    at = world.show(VIEW, "A/1", row)
    world.show(VIEW, "A/1", alert("B", "p1"))
    world.settle()
    ((key, letter),) = world.letters().items()
    assert key == f"views.rapid_payments/{at.partition}/{at.offset}/router"
    assert re.search(says, letter.reason, re.DOTALL), letter.reason
    assert letter.value == at.value
    assert blocked(world) == {"B": ("p1",)}


@pytest.mark.parametrize("value", [b"\xff", b"{}", b"null"])
def test_what_is_no_row_is_a_dead_letter(world: World, value: bytes) -> None:
    world.log.submit(Entry(f"{topics.VIEWS}{VIEW}", "A", value, 0), partition_of("A", PATCH_PARTITIONS))
    stranger = world.show("bus_lateness", "B", late(1))
    world.log.submit(Entry(f"{topics.VIEWS}{VIEW}", "B", stranger.value, 0), partition_of("B", PATCH_PARTITIONS))
    world.settle()
    letters = [letter.reason for letter in world.letters().values()]
    assert len(letters) == 2
    assert any('its type is "views.bus_lateness" and not "views.rapid_payments"' in reason for reason in letters)


def test_worst_keys_are_keys(world: World) -> None:
    for key in ("", "heartbeat/0", "a/%2F%25/%", "🏠" * 100):
        world.show("bus_lateness", key, late(1))
    world.settle()
    assert world.letters() == {}
    assert {seen(world, key)[0] for key in ("", "heartbeat/0", "a/%2F%25/%", "🏠" * 100)} == {1}


def test_more_evidence_than_fits_a_command_is_cut() -> None:
    world = World(random.Random(1))
    world.deploy(card_blocking)
    world.show(VIEW, "A/1", alert("A", *(f"card_charged/shop/{number}" for number in range(5_000))))
    world.settle()
    assert len(blocked(world)["A"]) == card.MAX_EVIDENCE


def test_handlers_make_the_topic_with_as_many_partitions_as_the_view_has() -> None:
    settings = LogSettings(partitions=4, patch_partitions=7)
    made = {
        topic.name: topic.partitions for topic in process_topics(settings, ProcessRegistry.load(["payments", "shop"]))
    }
    assert made == {
        "views.rapid_payments": 7,
        "routed.views.rapid_payments": 7,
        "cdc.shop.public.customers": 4,
        "routed.cdc.shop.public.customers": 4,
    }
    assert row_role(Customer.topic(), 7).partitions is None


def of(annotation: Any) -> Any:
    def react(event: Any, state: Seen) -> Reaction[Seen]:
        return Reaction(state)

    react.__annotations__["event"] = annotation
    return react


class Same(ViewRow, view="bus_lateness"):
    bus: str


class Weight(ViewRow, view="weights"):
    kilograms: float


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"react": of(Lateness | ViewRow)}, "annotated with Event classes, captured classes, ViewRow classes"),
        ({"react": of(RowDeleted[ViewRow])}, r"write RowDeleted\[Customer\], with a captured class or a ViewRow"),
        ({"react": of(Lateness | Same)}, '"Lateness" and "Same" in "react" of "noting" are the same rows'),
        ({"react": of(Lateness | RowDeleted[Lateness]), "key": "bus"}, "of a deleted row only its key is known"),
        ({"react": of(Weight), "starts": (Weight,), "key": "kilograms"}, 'column of the view "weights" with float'),
        ({"react": of(Lateness), "starts": (RowDeleted[Lateness],)}, r"does not handle .*bus_lateness\.deleted"),
    ],
)  # fmt: skip
def test_a_process_that_cannot_be_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(DeclarationError, match=says):
        noting(**wrong)


@pytest.mark.parametrize(
    ("view", "fields", "says"),
    [
        ("", {"a": int}, r'"Wrong" names no view: write class Wrong\(ViewRow, view="rapid_payments"\)'),
        ("Big", {"a": int}, '"Big" is not the name of a view'),
        ("v", {}, '"Wrong" has no columns: declare those of "v"'),
        ("v", {"columns": int}, 'column "columns" of view "v" has the name of an attribute of ViewRow'),
        ("v", {"a": complex}, 'column "a" of view "v" has the type .*complex'),
    ],
)
def test_a_class_of_rows_that_cannot_be_is_refused(view: str, fields: dict[str, Any], says: str) -> None:
    with pytest.raises(DeclarationError, match=says):
        type("Wrong", (ViewRow,), {"__annotations__": fields, "__module__": __name__}, view=view)


def test_columns_have_aliases_and_what_is_declared_any_is_as_it_is() -> None:
    class Row(ViewRow, view="v"):
        view_: Annotated[str, Field(alias="view")]
        anything: Any = None
        place: dict[str, float] | None = None

    assert Row.read({"view": "x", "anything": "[1]", "more": 1}).anything == "[1]"
    assert Row.read({"view": "x", "place": {"lat": 1.5, "lon": 2.5}}).place == {"lat": 1.5, "lon": 2.5}
    assert Row.json_columns == {"place"}


def test_a_row_of_a_view_is_like_its_json() -> None:
    assert RapidPayments.read({"card": "A", "ids": '["p1"]', "payments": 2}) == RapidPayments(card="A", ids=["p1"])
    assert RapidPayments.read({"card": "A", "ids": ["p1"]}) == RapidPayments(card="A", ids=["p1"])
