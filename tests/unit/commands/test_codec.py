"""Folding, and reading commands, events and snapshots."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from headwater.commands.codec import fingerprint_of, fold, read_command, read_event
from headwater.commands.declaring.aggregate import Aggregate, Command, Event
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import BrokenStream, MalformedCommand
from headwater.eventlog.envelope import Envelope
from headwater.eventlog.errors import NotAnEnvelope
from headwater.samples.listings.domain import listing
from tests.support.badly_behaved import wild
from tests.support.domains import SHIPPED

SELL = CommandRegistry.load(["listings"]).command("listing.sell")


def repriced(sequence: int, **more: Any) -> Envelope:
    data = {"listing_id": "L1", "city": "S", "price": sequence, "previous_price": 1}
    fields: dict[str, Any] = {"type": "listing.price_changed", "data": data, "sequence": sequence, **more}
    return Envelope(id=f"listing/L1/{sequence}", stream="listing/L1", time=datetime(2026, 1, 2, tzinfo=UTC), **fields)


def test_events_are_folded_in_their_sequence() -> None:
    state, version = fold(listing, [repriced(1), repriced(2)])
    assert (state.price, version) == (2, 2)
    assert fold(listing, [repriced(3)], state, version)[0].price == 3
    assert fold(listing, []) == (listing.initial, 0)


def test_a_validator_cannot_end_the_process_that_reads_the_command() -> None:
    kind = CommandRegistry([("here", wild)]).command("wild.do")
    with pytest.raises(RuntimeError, match=r'"wild\.do" raised SystemExit\(4\)'):
        read_command(kind, {"wild_id": "w", "what": "validator exits"})


def test_an_erased_event_leaves_a_gap() -> None:
    state, version = fold(listing, [repriced(2), repriced(5)])
    assert (state.price, version) == (5, 5)


@pytest.mark.parametrize("sequences", [[1, 1], [1, 2, 1], [3, 2], [0]])
def test_a_version_that_comes_twice_or_too_late_is_an_error(sequences: list[int]) -> None:
    with pytest.raises(BrokenStream, match="listing/L1"):
        fold(listing, [repriced(sequence) for sequence in sequences])


@pytest.mark.parametrize(
    "wrong", [{"type": "listing.unknown"}, {"data_version": 2}, {"data": {"listing_id": "L1"}}, {"data": {}}]
)
def test_an_event_that_does_not_fit_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(NotAnEnvelope):
        read_event(listing, repriced(1, **wrong))


def test_the_details_of_a_malformed_command_name_the_fields() -> None:
    with pytest.raises(MalformedCommand) as error:
        read_command(SELL, b'{"listing_id": "", "sold_for": "1"}')
    assert [detail["loc"] for detail in error.value.details] == [("listing_id",), ("sold_for",)]


def test_the_fingerprint_knows_the_type_the_body_and_the_expected_version_and_no_order_or_space() -> None:
    one = read_command(SELL, b'{"listing_id":"L1","sold_for":5}').body
    same = read_command(SELL, b'{ "sold_for": 5, "listing_id": "L1" }').body
    other = read_command(SELL, {"listing_id": "L1", "sold_for": 6}).body
    assert fingerprint_of("listing.sell", one, None) == fingerprint_of("listing.sell", same, None)
    prints = {("a", one, None), ("b", one, None), ("a", other, None), ("a", one, 0), ("a", one, 1)}
    assert len({fingerprint_of(*asked) for asked in prints}) == len(prints)


@pytest.mark.parametrize(("price", "fits"), [(2**63 - 1, True), (-(2**63), True), (2**63, False), (2**64 - 1, False)])
def test_an_integer_that_no_store_can_hold_is_refused_with_its_place(price: int, fits: bool) -> None:
    kind = CommandRegistry.load(SHIPPED).command("order.place")
    line = {"sku": "tea", "quantity": 1, "unit_cents": price}
    body = {"order_id": "O", "customer": "9" * 30, "lines": [line]}
    try:
        details = []
        read_command(kind, body)
    except MalformedCommand as error:
        details = [detail["loc"] for detail in error.details if detail["type"] == "int_too_large"]
    assert details == ([] if fits else [("lines", 0, "unit_cents")])


class Opened(Event, type="box.opened"):
    box_id: str | None


class Open(Command, type="box.open"):
    box_id: str | None


class Box(BaseModel):
    model_config = ConfigDict(frozen=True)


def decide(command: Open, state: Box) -> list[Event]:
    return []


def evolve(state: Box, event: Opened) -> Box:
    return state


@pytest.mark.parametrize("body", [b'{"box_id": null}', b'{"box_id": ""}'])
def test_an_empty_id_is_refused(body: bytes) -> None:
    box = Aggregate(name="box", id_field="box_id", initial=Box(), decide=decide, evolve=evolve)
    kind = CommandRegistry([("here", box)]).command("box.open")
    with pytest.raises(MalformedCommand, match=r'invalid body for "box\.open": see box_id') as empty:
        read_command(kind, body)
    (detail,) = empty.value.details
    assert detail["msg"] == 'it is the id of the "box", and empty: send a text of at least one character'
    assert read_command(kind, b'{"box_id": "0"}').stream == "box/0"
