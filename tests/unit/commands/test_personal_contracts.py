"""The contract test that looks for personal values in all that is stored: it passes, and fails where it should."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, model_validator

from headwater import Aggregate, Command, Event, Observation, Personal, Rejected
from headwater.commands.declaring.observation import ObservationRegistry
from headwater.commands.declaring.process import ProcessRegistry
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.testing.canaries import no_report_is_in_clear, nothing_is_in_clear
from headwater.testing import contracts_of, given, rows_of
from tests.support.memory_vault import memory_vault
from tests.support.personal_customers import (
    Contact,
    Mail,
    Mailed,
    Paid,
    Pay,
    Register,
    Registered,
    customer,
    customers,
    greeting,
)

SHIPPED = vars(contracts_of("tests.support.personal_customers"))
WANTED = (
    "test_no_personal_value_is_stored_or_logged",
    "test_a_retry_of_everything_adds_nothing",
    "test_the_size_of_batches_makes_no_difference",
)
"""Without those of golden files, and of rules that fail on purpose."""
TestContracts = type("TestContracts", (), {name: SHIPPED[name] for name in WANTED})


def test_a_package_without_personal_fields_has_no_such_test() -> None:
    assert not hasattr(contracts_of("orders"), "test_no_personal_value_is_stored_or_logged")


TestContractsOfObservations = contracts_of("tests.support.personal_visits")


class Copying(Observation, type="copying"):
    who: str
    secret: Annotated[str, Personal(of="who", erased_as="")]
    copy_of_it: str = ""

    @model_validator(mode="before")
    @classmethod
    def copied(cls, data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "copy_of_it": data.get("secret", "")}


def test_a_copy_in_a_field_of_an_observation_that_is_not_personal_is_found() -> None:
    registry = ObservationRegistry([("here", Copying)])
    with memory_vault(), pytest.raises(AssertionError, match="a personal value is in plaintext"):
        no_report_is_in_clear(registry, Copying, [{"who": "V1", "secret": "x"}])


class Told(Event, type="gossip.told"):
    gossip_id: str
    secret: Annotated[str | None, Personal()]


class Known(BaseModel):
    model_config = ConfigDict(frozen=True)
    secret: str | None = None


class Tell(Command, type="gossip.tell"):
    gossip_id: str
    secret: Annotated[str, Personal(erased_as="")]


def evolve(state: Known, event: Told) -> Known:
    return Known()


def keeps(state: Known, event: Told) -> Known:
    return Known(secret=event.secret)


def tells(command: Tell, state: Known) -> Sequence[Event]:
    return [Told(gossip_id=command.gossip_id, secret=command.secret)]


def copies(command: Tell, state: Known) -> Sequence[Event]:
    return [Copied(gossip_id=command.gossip_id, what=command.secret)]


class Copied(Event, type="gossip.copied"):
    gossip_id: str
    what: str


def keeps_copies(state: Known, event: Copied) -> Known:
    return state


def names(command: Tell, state: Known) -> Sequence[Event]:
    raise Rejected("no", f"not {command.secret.upper()}")


@pytest.mark.parametrize(
    ("decide", "evolve", "leaks"),
    [(tells, evolve, False), (tells, keeps, True), (copies, keeps_copies, True), (names, evolve, False)],
)
def test_a_copy_in_a_field_that_is_not_personal_is_found(
    decide: Callable[..., Sequence[Event]], evolve: Callable[..., Known], leaks: bool
) -> None:
    gossip = Aggregate("gossip", "gossip_id", Known(), decide, evolve)
    registry, history = CommandRegistry([("here", gossip)]), [("gossip.tell", {"gossip_id": "A", "secret": "x"})]
    with memory_vault():
        if leaks:
            with pytest.raises(AssertionError, match="a personal value is in plaintext"):
                nothing_is_in_clear(registry, ProcessRegistry([]), history)
        else:
            nothing_is_in_clear(registry, ProcessRegistry([]), history)


ADA = Registered(
    customer_id="C1", email="ada@canary.org", name="Ada", born=1815, contacts=[Contact(person_id="C2", phone="1")]
)


def test_given_when_then_have_values_in_clear() -> None:
    pay = Pay(customer_id="C1", payee_id="C2", payee_name="Grace", cents=3)
    paid = Paid(customer_id="C1", payee_id="C2", payer_name="Ada", payee_name="Grace", cents=3)
    given(customer, ADA).when(pay).then(paid)
    again = Register(customer_id="C1", email=None, name="Ada", born=None)
    given(customer, ADA).when(again).then_rejected("registered")
    given(greeting, ADA).when(paid).then(Mail(customer_id="C1", address="ada@canary.org"))


def test_rows_of_a_view_are_shown_as_to_a_caller_who_may_read_them() -> None:
    paid = Paid(customer_id="C1", payee_id="C2", payer_name="Ada", payee_name="Grace", cents=3)
    rows = rows_of(customers, ADA, paid, Mailed(customer_id="C1", address="x"))
    assert rows["C1"] == {
        "customer_id": "C1",
        "email": "ada@canary.org",
        "name": "Ada",
        "born": 1815,
        "payees": ["Grace"],
        "payments": 1,
    }
