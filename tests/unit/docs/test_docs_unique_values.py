"""docs/unique-values.md: its aggregates refuse what it says, and its process releases what it reserved in vain."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from headwater import Refused
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.receipt import receipt_key
from headwater.eventlog import topics
from headwater.eventlog.envelope import PROCESS, partition_of
from headwater.testing import given
from tests.support.pages import blocks, names_of, read_page
from tests.support.process_world import World

PAGE = read_page("unique-values.md")


@pytest.fixture(scope="module")
def booking() -> dict[str, Any]:
    return names_of(blocks("python", PAGE)[0])


@pytest.fixture(scope="module")
def registering() -> dict[str, Any]:
    return names_of(blocks("python", PAGE)[1])


@pytest.mark.parametrize(("starts", "ends", "code"), [(570, 630, "booked"), (540, 600, "booked"), (700, 700, "empty")])
def test_a_second_booking_at_the_same_time_is_rejected(
    booking: dict[str, Any], starts: int, ends: int, code: str
) -> None:
    first = {"room": "R1", "day": "2026-03-01", "starts": 540, "ends": 600, "guest": "Ada"}
    booked = given(booking["room_day"]).when(booking["Book"](**first)).then(booking["Booked"](**first))
    next_one = booking["Book"](**first | {"starts": 600, "ends": 660})
    booked.when(next_one).then(booking["Booked"](**next_one.model_dump()))
    booked.when(booking["Book"](**first | {"starts": starts, "ends": ends})).then_rejected(code)


def test_an_address_belongs_to_one_account_until_it_is_released(registering: dict[str, Any]) -> None:
    reserve, release, reserved = (registering[name] for name in ("Reserve", "Release", "Reserved"))
    command = reserve(address="Ada@Example.org", account_id="A1")
    taken = given(registering["email"]).when(command).then(reserved(address="ada@example.org", account_id="A1"))
    taken = taken.when(command).then_nothing()
    taken = taken.when(reserve(address="ada@example.org", account_id="A2")).then_rejected("taken")
    taken = taken.when(release(address="ada@example.org", account_id="A2")).then_nothing()
    free = taken.when(release(address="ada@example.org", account_id="A1")).then(
        registering["Released"](address="ada@example.org")
    )
    free.when(reserve(address="ada@example.org", account_id="A2")).then(
        reserved(address="ada@example.org", account_id="A2")
    )


def test_the_process_opens_the_account_or_releases_the_address(registering: dict[str, Any]) -> None:
    names = {"address": "ada@example.org", "account_id": "A1"}
    command = registering["Open"](**names)
    opening = given(registering["registration"]).when(registering["Reserved"](**names)).then(command)
    opening.when(registering["Opened"](**names)).then().then_ended()
    refused = Refused(command, "rejected", "already_open", "the account has another address")
    opening.when(refused).then(registering["Release"](**names)).then_ended()
    given(registering["account"], registering["Opened"](account_id="A1", address="ada@example.com")).when(
        command
    ).then_rejected("already_open")


def test_of_two_at_once_one_has_the_account_and_a_receipt_by_the_id_that_the_page_shows(
    registering: dict[str, Any],
) -> None:
    shown = re.search(r"command_id=(\S+?)&stream=(\S+?)&origin=process", PAGE)
    assert shown is not None
    world = World(random.Random(1))
    commands = CommandRegistry([("page", registering["email"]), ("page", registering["account"])])
    world.deploy(registering["registration"], commands=commands)
    for account_id in ("A1", "A2"):
        world.send("email.reserve", address="ada@example.org", account_id=account_id)
    world.settle()
    states = world.states()
    assert states == {
        "email/ada@example.org": registering["Email"](account_id="A1"),
        "account/A1": registering["Account"](address="ada@example.org"),
    }
    assert world.instances() == []
    partition = partition_of(shown[2], world.log.partitions)
    keys = {record.key for record in world.log.read(topics.RECEIPTS, partition, 0)}
    assert receipt_key(shown[2], PROCESS, shown[1]) in keys
