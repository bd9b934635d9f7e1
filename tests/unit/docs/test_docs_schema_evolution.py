"""docs/schema-evolution.md and docs/processes.md do what they say."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import pytest

from headwater import _WORDS
from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.process import Process, TimedOut
from headwater.commands.declaring.row_inputs import RowDeleted
from headwater.samples.orders.domain import order
from headwater.samples.payments.domain import BlockCard
from headwater.samples.shop.domain.customer import ImportCustomer, RemoveCustomer
from headwater.samples.shop.source import Customer
from headwater.testing import given
from tests.support.captured_customers import ADA
from tests.support.pages import blocks, names_of, read_page

TEXT = read_page("schema-evolution.md")
EVOLVING = blocks("python", TEXT)
PROCESSES = blocks("python", read_page("processes.md"))


@pytest.mark.parametrize(("name", "shown"), [("PriceChanged", 0), ("Placed", 1)])
def test_an_event_of_version_1_is_read_as_it_says(name: str, shown: int) -> None:
    event = names_of(EVOLVING[shown])[name]
    assert issubclass(event, Event)
    documents = [json.loads(block) for block in blocks("json", TEXT)]
    assert len(documents) == 4
    recorded, reads = documents[2 * shown : 2 * shown + 2]
    assert event.history.upcast(1, recorded) == reads
    event.model_validate(reads)


def test_the_renamed_event_has_both_types() -> None:
    event = names_of(EVOLVING[2])["Sold"]
    assert issubclass(event, Event)
    assert event.history.types == ("house.purchased", "house.sold")


def test_every_word_is_told() -> None:
    told = set(re.findall(r"\b([a-z]+)\(", TEXT))
    assert set(_WORDS["headwater.commands.declaring.history"].split()) <= told


def test_the_documented_process_expires_an_unpaid_order() -> None:
    names = names_of(PROCESSES[0])
    expiry = names["expiry"]
    assert isinstance(expiry, Process)
    placed = order.Placed(order_id="O", customer="Ada", lines=(), total_cents=0)
    waiting = given(expiry).when(placed).then().then_timers({"unpaid": timedelta(minutes=30)})
    waiting.when(TimedOut("unpaid")).then(order.Expire(order_id="O")).then_ended()


def test_the_documented_process_blocks_cards() -> None:
    names = names_of(PROCESSES[2])
    alert = names["RapidPayments"](card="A", payments=4, ids=["1", "2", "3", "4"])
    block = BlockCard(card="A", rule="three_at_once", evidence=("1", "2", "3"))
    blocked = given(names["three_at_once"]).when(alert).then(block).then_ended()
    blocked.when(alert.model_copy(update={"payments": 2})).then().then_ended()


def test_the_documented_process_imports_customers() -> None:
    names = names_of(PROCESSES[1])
    process = names["customer_names"]
    assert isinstance(process, Process)
    known = ImportCustomer(
        customer_id="42", name="Ada", email="ada@example.org", is_business=False, credit_limit_cents=None
    )
    imported = given(process).when(ADA).then(known).then_ended()
    imported.when(RowDeleted(Customer, "42")).then(RemoveCustomer(customer_id="42")).then_ended()
