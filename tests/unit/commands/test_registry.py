"""Registering aggregates, and what a declaration may not be."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pydantic import BaseModel, ConfigDict

from headwater.commands.declaring.aggregate import Aggregate, Command, Event
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import DeclarationError, UnknownCommand
from headwater.samples.listings.domain import listing


class Lit(Event, type="lamp.lit"):
    lamp_id: str


class Light(Command, type="lamp.light"):
    lamp_id: str


class Lamp(BaseModel):
    model_config = ConfigDict(frozen=True)


def decide(command: Light, state: Lamp) -> Sequence[Event]:
    return [Lit(lamp_id=command.lamp_id)]


def evolve(state: Lamp, event: Lit) -> Lamp:
    return state


def lamp() -> Aggregate[Lamp]:
    return Aggregate(name="lamp", id_field="lamp_id", initial=Lamp(), decide=decide, evolve=evolve)


def test_the_shipped_aggregates_are_found() -> None:
    registry = CommandRegistry.load(["listings"])
    assert registry.aggregates["listing"] is listing
    assert registry.command("listing.sell").aggregate is listing
    assert registry.events["listing.sold"] is listing.events["listing.sold"]


def test_two_aggregates_of_one_name_are_an_error_that_names_both_modules() -> None:
    with pytest.raises(DeclarationError, match=r'"a\.one" and "b\.two".*"lamp"'):
        CommandRegistry([("a.one", lamp()), ("b.two", lamp())])


def test_an_unknown_command_is_told_which_are_known() -> None:
    with pytest.raises(UnknownCommand, match=r"lamp\.light") as error:
        CommandRegistry([("a", lamp())]).command("lamp.dim")
    assert error.value.known == ("lamp.light",)


class Dim(Command, type="lamp.dim", internal=True):
    lamp_id: str


def decide_internal(command: Light | Dim, state: Lamp) -> Sequence[Event]:
    return [Lit(lamp_id=command.lamp_id)]


INTERNAL = CommandRegistry([("a", Aggregate("lamp", "lamp_id", Lamp(), decide_internal, evolve))])


def test_an_internal_command_is_unknown_to_clients_only() -> None:
    assert (INTERNAL.command("lamp.dim").command, INTERNAL.public_command("lamp.light").command) == (Dim, Light)
    with pytest.raises(UnknownCommand) as error:
        INTERNAL.public_command("lamp.dim")
    assert error.value.known == ("lamp.light",)


@pytest.mark.parametrize("name", ["Lamp", "", "1lamp", "la-mp", "heartbeat", "headwater"])
def test_a_name_that_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(DeclarationError):
        Aggregate(name=name, id_field="lamp_id", initial=Lamp(), decide=decide, evolve=evolve)


def test_messages_must_have_the_id_and_the_name_of_their_aggregate() -> None:
    with pytest.raises(DeclarationError, match="bulb_id"):
        Aggregate(name="lamp", id_field="bulb_id", initial=Lamp(), decide=decide, evolve=evolve)
    with pytest.raises(DeclarationError, match=r'must start "torch\."'):
        Aggregate(name="torch", id_field="lamp_id", initial=Lamp(), decide=decide, evolve=evolve)


def test_a_state_that_can_change_is_refused() -> None:
    class Loose(BaseModel):
        pass

    def decide_loosely(command: Light, state: Loose) -> Sequence[Event]:
        return []

    def loose(state: Loose, event: Lit) -> Loose:
        return state

    with pytest.raises(DeclarationError, match="frozen"):
        Aggregate(name="lamp", id_field="lamp_id", initial=Loose(), decide=decide_loosely, evolve=loose)


def test_a_message_type_that_cannot_be_is_refused() -> None:
    with pytest.raises(DeclarationError, match="Lamp-Lit"):
        type("Bad", (Event,), {}, type="Lamp-Lit")
