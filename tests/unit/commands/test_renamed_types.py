"""An event whose type was renamed is one event, under whichever type it was recorded."""

from __future__ import annotations

import asyncio
import random
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Union

import pytest
from pydantic import BaseModel, ConfigDict

from headwater import Personal, Postgres, TableView, add, count, envelope, last, rename, upcast
from headwater.api.guard.caller import Caller
from headwater.api.guard.scopes import Scopes
from headwater.api.lookups import PersonalValues
from headwater.api.openapi.model_schemas import message_components
from headwater.commands.codec import fold, read_event
from headwater.commands.declaring.aggregate import Aggregate, Command, Event
from headwater.commands.declaring.golden_files import GoldenFiles
from headwater.commands.declaring.observation import ObservationRegistry
from headwater.commands.declaring.process import Process, ProcessRegistry, Reaction
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import DeclarationError
from headwater.commands.testing.past import Past, recorded
from headwater.eventlog.envelope import Envelope, decode, encode
from headwater.eventlog.ports import PROCESSES, ROUTER
from headwater.testing import rows_of
from tests.support.memory_vault import memory_vault
from tests.support.process_world import World
from tests.support.recording import recording
from tests.support.seeds import seed_of


class Before(Event, type="crate.weighed"):
    """As earlier code declared it."""

    crate_id: str
    grams: int


class Measured(
    Event,
    type="crate.measured",
    version=3,
    history=[
        upcast(1, recorded_as="crate.weighed"),
        upcast(2, recorded_as="crate.scaled"),
    ],
):
    """Twice renamed, with the same fields."""

    crate_id: str
    grams: int


class Moved(Event, type="crate.moved"):
    crate_id: str


class Ask(Command, type="crate.ask"):
    crate_id: str


class Crate(BaseModel):
    model_config = ConfigDict(frozen=True)
    grams: int = 0


def decide(command: Ask, state: Crate) -> list[Event]:
    return []


def crate(*events: type[Event]) -> Aggregate[Crate]:
    def evolve(state: Crate, event: Any) -> Crate:
        return Crate(grams=state.grams + getattr(event, "grams", 0))

    evolve.__annotations__["event"] = Union[events]  # noqa: UP007 - the events are known only here
    return Aggregate(name="crate", id_field="crate_id", initial=Crate(), decide=decide, evolve=evolve)


OLDER, NEWER = crate(Before, Moved), crate(Measured, Moved)
TYPES = ("crate.weighed", "crate.scaled", "crate.measured")


def an_event(number: int, kind: str, version: int, grams: int = 1) -> Envelope:
    time = datetime(2026, 1, 2, tzinfo=UTC)
    data = {"crate_id": "C", "grams": grams}
    return Envelope(f"crate/C/{number}", kind, "crate/C", time, data, data_version=version, sequence=number)


def test_a_state_has_the_events_of_all_types() -> None:
    past = [an_event(number, kind, number, 10**number) for number, kind in enumerate(TYPES, 1)]
    assert fold(NEWER, past)[0] == Crate(grams=1110)
    assert Measured.history.types == TYPES
    assert [Measured.history.type_of(version) for version in (1, 2, 3, 4)] == [*TYPES, "crate.measured"]


def test_a_type_may_get_its_first_name_back() -> None:
    class Again(
        Event,
        type="crate.weighed",
        version=3,
        history=[
            upcast(1, recorded_as="crate.weighed"),
            upcast(2, rename("g", "grams"), recorded_as="crate.scaled"),
        ],
    ):
        crate_id: str
        grams: int

    assert Again.history.types == ("crate.weighed", "crate.scaled")
    again = crate(Again)
    assert list(again.recorded) == ["crate.weighed", "crate.scaled"]
    assert again.events == {"crate.weighed": Again}


WRONG: list[tuple[str, Any, str]] = [
    ("crate.x", upcast(1, recorded_as="parcel.a"), 'recorded_as="parcel.a", but the next version is "crate.x"'),
    ("crate.x", upcast(1, recorded_as="weighed"), "recorded_as='weighed', which is no type of a message"),
    ("crate.x", upcast(1, recorded_as="crate.x"), "name an earlier type of the same aggregate, or none"),
]


@pytest.mark.parametrize(("kind", "change", "says"), WRONG)
def test_a_renaming_that_does_not_lead_to_the_type_is_refused(kind: str, change: Any, says: str) -> None:
    with pytest.raises(DeclarationError, match=re.escape(says)):

        class Wrong(Event, type=kind, version=2, history=[change]):
            crate_id: str


@pytest.mark.parametrize("taken", ["crate.moved", "crate.ask", "crate.scaled"])
def test_an_earlier_type_that_another_message_has_is_refused(taken: str) -> None:
    class Other(Event, type="crate.other", version=2, history=[upcast(1, recorded_as=taken)]):
        crate_id: str

    with pytest.raises(DeclarationError, match=f'was recorded as "{taken}", which is a type of '):
        crate(Measured, Moved, Other)


def test_registries_and_the_openapi_document_know_all_types() -> None:
    commands = CommandRegistry([("m", NEWER)])
    assert dict(commands.recorded) == dict.fromkeys(TYPES, Measured) | {"crate.moved": Moved}
    assert list(commands.events) == ["crate.measured", "crate.moved"]
    assert commands.types_of("crate.scaled") == commands.types_of("crate.measured") == TYPES
    assert commands.types_of("nothing.known") == ("nothing.known",)
    components = message_components(commands, ObservationRegistry([]))
    assert components["crate.measured.event"]["properties"]["type"] == {"enum": sorted(TYPES)}
    reference = "#/components/schemas/crate.measured.event"
    assert components["Event"]["discriminator"]["mapping"]["crate.weighed"] == reference
    assert [each["$ref"] for each in components["Event"]["oneOf"]].count(reference) == 1


def test_golden_files_stay_where_they_were_written(tmp_path: Path) -> None:
    files = GoldenFiles(tmp_path)
    GoldenFiles(tmp_path).write(Before, 1, {"crate_id": "C", "grams": 1})
    files.write(Measured, 3, {"crate_id": "C", "grams": 1})
    assert files.read(Measured, 1) == files.read(Measured, 3)
    assert files.versions(Measured) == {1, 3}
    assert files.path(Measured, 2) == tmp_path / "crate.scaled" / "2.json"


def view(event: type[Event], **columns: Any) -> TableView:
    made = {"grams": add({event: "grams"}), "times": count(event), **columns}
    return TableView("crates", "crate_id", made, (Postgres(),), restored_by=(event,), deleted_by=(Moved,))


def test_a_view_of_a_renamed_event_is_built_anew() -> None:
    """A live query of code before passes over the new type, so its rows may lack events."""
    assert view(Before).fingerprint != view(Measured).fingerprint


def test_rows_have_the_events_of_all_types_and_a_column_with_the_type_has_that_which_was_recorded() -> None:
    given = [recorded(Measured, version, {"crate_id": "C", "grams": 10**version}) for version in (1, 2, 3)]
    rows = rows_of(view(Measured, kind=last({Measured: envelope("type")})), *given[:2])
    assert rows == {"C": {"crate_id": "C", "grams": 110, "times": 2, "kind": "crate.scaled"}}
    assert [decode(Past().add(each).value).type for each in given] == list(TYPES)


class Home(BaseModel):
    street: Annotated[str, Personal(of="guest_id", erased_as="(no street)")]


def test_personal_values_of_an_earlier_version_are_opened_and_what_is_left_of_them_is_known() -> None:
    class Booked(Event, type="guest.booked"):
        guest_id: str
        called: Annotated[str, Personal(erased_as="(erased)")]
        home: Home

    changes = upcast(1, rename("called", "name"), recorded_as="guest.booked")

    class Reserved(Event, type="guest.reserved", version=2, history=[changes]):
        guest_id: str
        name: Annotated[str, Personal(erased_as="(erased)")]
        home: Home

    recording("guest", "guest_id", Booked)
    guest = recording("guest", "guest_id", Reserved)
    assert Booked.sealed_fields is not None
    with memory_vault() as keys:
        was = {"guest_id": "G", "called": "Ada", "home": {"street": "Elm St"}}
        data = Booked.sealed_fields.sealed(was, "G")
        time = datetime(2026, 1, 2, tzinfo=UTC)
        stored = Envelope("guest/G/1", "guest.booked", "guest/G", time, data, data_version=1, sequence=1)
        assert read_event(guest, stored) == Reserved(guest_id="G", name="Ada", home=Home(street="Elm St"))
        keys.erase("G")
        values = PersonalValues(CommandRegistry([("m", guest)]), ObservationRegistry([]))
        (record,) = asyncio.run(
            values.of_records([encode(stored)], Caller("operator", Scopes.of(["operate", "personal"])))
        )
        assert decode(record).data == {"guest_id": "G", "called": None, "home": {"street": "(no street)"}}


# Processes


class Noted(BaseModel):
    model_config = ConfigDict(frozen=True)
    seen: tuple[int, ...] = ()


def noting(event: type[Event]) -> Process[Noted]:
    def react(event: Any, state: Noted) -> Reaction[Noted]:
        return Reaction(Noted(seen=(*state.seen, event.grams)))

    react.__annotations__["event"] = event
    return Process(name="p", key="crate_id", initial=Noted(), starts=(event,), react=react)


@pytest.fixture(params=range(4), ids=lambda number: f"seed {number}")
def world(request: pytest.FixtureRequest) -> World:
    world = World(random.Random(seed_of(request.param)), partitions=2)
    world.deploy(noting(Before), commands=CommandRegistry([("m", OLDER)]))
    return world


def sees(world: World) -> list[int]:
    instance = world.instance("p/C")
    return list(instance["state"]["seen"]) if instance else []


def happens(world: World, number: int, kind: str) -> None:
    world.record_events("crate/C", (kind, {"crate_id": "C", "grams": number}), first=number)


def is_owned_by(world: World, aggregate: Aggregate[Crate], event: type[Event], *roles: Any) -> None:
    world.commands, world.processes = CommandRegistry([("m", aggregate)]), ProcessRegistry([("m", noting(event))])
    world.settle_declarations()
    for role in roles:
        for partition in range(world.log.partitions):
            world.restart(role, partition)


def test_a_process_handles_each_event_once_before_and_after_the_renaming(world: World) -> None:
    happens(world, 1, "crate.weighed")
    world.settle()
    assert sees(world) == [1]
    world.deploy(noting(Measured), commands=CommandRegistry([("m", NEWER)]))
    happens(world, 2, "crate.weighed")  # an older handler has not stopped yet
    happens(world, 3, "crate.measured")
    happens(world, 4, "crate.scaled")
    world.some_steps(20)
    world.settle()
    world.redeliver()
    world.settle()
    assert sees(world) == [1, 2, 3, 4]
    assert world.letters() == {}


def test_what_an_older_router_passes_over_a_newer_one_brings(world: World) -> None:
    is_owned_by(world, NEWER, Measured, PROCESSES)
    happens(world, 1, "crate.weighed")
    happens(world, 2, "crate.measured")
    world.settle()
    is_owned_by(world, OLDER, Before, ROUTER)
    happens(world, 3, "crate.measured")
    world.settle()
    assert sees(world) == [1], "the routers are older ones"
    is_owned_by(world, NEWER, Measured, ROUTER, PROCESSES)
    world.settle()
    assert sorted(sees(world)) == [1, 2, 3]
    assert world.letters() == {}


def test_an_older_owner_lets_wait_what_has_the_new_type(world: World) -> None:
    is_owned_by(world, NEWER, Measured, ROUTER)
    happens(world, 1, "crate.weighed")
    happens(world, 2, "crate.measured")
    happens(world, 3, "crate.weighed")
    world.settle()
    assert sees(world) == [1]
    is_owned_by(world, NEWER, Measured, PROCESSES)
    world.settle()
    assert sees(world) == [1, 2, 3]
    assert world.letters() == {}
