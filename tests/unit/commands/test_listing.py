"""Every rule of the listing aggregate: given events, when a command comes, then events or a refusal."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from headwater.commands.declaring.aggregate import Command, Event
from headwater.samples.listings.domain import (
    ChangePrice,
    DetailsRevised,
    Listed,
    ListProperty,
    PriceChanged,
    PutListingUnderOffer,
    PutUnderOffer,
    Relist,
    Relisted,
    ReviseDetails,
    Sell,
    Sold,
    Withdraw,
    Withdrawn,
    listing,
)
from headwater.testing import given
from tests.support.listed import LISTING

DETAILS = LISTING | {"listing_id": "L1", "description": ""}
LISTED = Listed(**DETAILS)
REPRICED = PriceChanged(listing_id="L1", city="Sacramento", price=58_000, previous_price=59_222)
OFFERED = PutUnderOffer(listing_id="L1", city="Sacramento", offer=57_000)
SOLD = Sold(listing_id="L1", city="Sacramento", sold_for=57_500, price=59_222, square_feet=836)
WITHDRAWN = Withdrawn(listing_id="L1", city="Sacramento", price=59_222, square_feet=836, under_offer=False)
RELISTED = Relisted(listing_id="L1", city="Sacramento", price=59_222, square_feet=836)

LIST = ListProperty(**DETAILS)
REPRICE = ChangePrice(listing_id="L1", price=58_000)
OFFER = PutListingUnderOffer(listing_id="L1", offer=57_000)
SELL = Sell(listing_id="L1", sold_for=57_500)
WITHDRAW = Withdraw(listing_id="L1")
RELIST = Relist(listing_id="L1")
REVISE = ReviseDetails(listing_id="L1", square_feet=900)


def revised(added: int, **changes: Any) -> DetailsRevised:
    fields = ("listing_id", "city", "property_type", "beds", "baths", "square_feet", "description")
    now = {name: DETAILS[name] for name in fields} | changes
    return DetailsRevised(**now, square_feet_added=added)


@pytest.mark.parametrize(
    ("past", "command", "events"),
    [
        pytest.param([], LIST, [LISTED], id="a property is listed"),
        pytest.param([LISTED], REPRICE, [REPRICED], id="a price changes, and the event tells the one before"),
        pytest.param([LISTED, REPRICED], REPRICE, [], id="the same price again changes nothing"),
        pytest.param([LISTED], OFFER, [OFFERED], id="an offer is accepted"),
        pytest.param([LISTED, OFFERED], SELL, [SOLD], id="a sale follows an offer"),
        pytest.param([LISTED], WITHDRAW, [WITHDRAWN], id="a listing is withdrawn"),
        pytest.param(
            [LISTED, OFFERED],
            WITHDRAW,
            [WITHDRAWN.model_copy(update={"under_offer": True})],
            id="an offer falls with its listing",
        ),
        pytest.param([LISTED, WITHDRAWN], RELIST, [RELISTED], id="relisted at its old price"),
        pytest.param(
            [LISTED, REPRICED, WITHDRAWN],
            RELIST,
            [RELISTED.model_copy(update={"price": 58_000})],
            id="relisted at its last price",
        ),
        pytest.param(
            [LISTED, WITHDRAWN],
            Relist(listing_id="L1", price=61_000),
            [RELISTED.model_copy(update={"price": 61_000})],
            id="relisted at a new price",
        ),
        pytest.param([LISTED], REVISE, [revised(64, square_feet=900)], id="revised, with the area added"),
        pytest.param([LISTED, OFFERED], REVISE, [revised(64, square_feet=900)], id="revised under offer"),
        pytest.param(
            [LISTED, WITHDRAWN], REVISE, [revised(0, square_feet=900)], id="a withdrawn one adds no area to the market"
        ),
        pytest.param([LISTED], ReviseDetails(listing_id="L1", beds=2), [], id="a revision to the same changes nothing"),
        pytest.param([LISTED], ReviseDetails(listing_id="L1"), [], id="an empty revision changes nothing"),
    ],
)
def test_decides(past: list[Event], command: Command, events: list[Event]) -> None:
    given(listing, *past).when(command).then(*events)


CHANGES = (REPRICE, OFFER, SELL, WITHDRAW, RELIST, REVISE)
NOT_FOR_SALE = [LISTED, OFFERED, SOLD]


@pytest.mark.parametrize(
    ("past", "command", "code"),
    [
        *(pytest.param([], c, "not_listed", id=f"{c.type} needs a listing") for c in CHANGES),
        *(pytest.param(NOT_FOR_SALE, c, "already_sold", id=f"{c.type} comes too late") for c in CHANGES),
        pytest.param([LISTED], LIST, "already_listed", id="listed once"),
        pytest.param(NOT_FOR_SALE, LIST, "already_listed", id="a sold one is not listed again"),
        pytest.param([LISTED, WITHDRAWN], LIST, "already_listed", id="a withdrawn one is relisted instead"),
        pytest.param([LISTED], SELL, "not_under_offer", id="no sale without an offer"),
        pytest.param([LISTED, WITHDRAWN], SELL, "not_under_offer", id="no sale while withdrawn"),
        pytest.param([LISTED, OFFERED], REPRICE, "not_listed", id="no price change under offer"),
        pytest.param([LISTED, WITHDRAWN], REPRICE, "not_listed", id="no price change while withdrawn"),
        pytest.param([LISTED, OFFERED], OFFER, "not_listed", id="one offer at a time"),
        pytest.param([LISTED, WITHDRAWN], OFFER, "not_listed", id="no offer while withdrawn"),
        pytest.param([LISTED, WITHDRAWN], WITHDRAW, "already_withdrawn", id="withdrawn once"),
        pytest.param([LISTED], RELIST, "not_withdrawn", id="only a withdrawn one is relisted"),
        pytest.param([LISTED, OFFERED], RELIST, "not_withdrawn", id="nor one under offer"),
        pytest.param([LISTED, OFFERED, WITHDRAWN, RELISTED], SELL, "not_under_offer", id="the offer fell with it"),
    ],
)  # fmt: skip
def test_refuses(past: list[Event], command: Command, code: str) -> None:
    given(listing, *past).when(command).then_rejected(code)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("price", 0),
        ("price", -1),
        ("price", 59_222.5),
        ("price", "59222"),
        ("latitude", 90.1),
        ("latitude", float("nan")),
        ("longitude", -180.1),
        ("longitude", float("inf")),
        ("zip", "9583"),
        ("zip", "z95838\n"),
        ("zip", "٩٥٨٣٨"),
        ("city", ""),
        ("listing_id", ""),
        ("listing_id", "x" * 101),
        ("beds", -1),
        ("square_feet", 0),
        ("property_type", "Castle"),
        ("description", "x" * 10_001),
        ("unknown", 1),
    ],
)
def test_a_listing_that_cannot_be_is_malformed(field: str, value: object) -> None:
    with pytest.raises(ValidationError):
        ListProperty(**DETAILS | {field: value})


@pytest.mark.parametrize(
    ("command", "amount"),
    [(ChangePrice, "price"), (PutListingUnderOffer, "offer"), (Sell, "sold_for"), (Relist, "price")],
)
def test_every_amount_is_positive(command: type[Command], amount: str) -> None:
    command.model_validate({"listing_id": "L1", amount: 1})
    with pytest.raises(ValidationError):
        command.model_validate({"listing_id": "L1", amount: 0})
