"""Properties that are listed, repriced, sold and withdrawn, and who looks at them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, assert_never

from pydantic import BaseModel, ConfigDict, Field

from headwater import Aggregate, Command, Event, Observation, Rejected

ListingId = Annotated[str, Field(min_length=1, max_length=100)]
City = Annotated[str, Field(min_length=1, max_length=100)]
Price = Annotated[int, Field(gt=0, le=10_000_000_000, description="whole US dollars")]
Rooms = Annotated[int, Field(ge=0, le=1000)]
Baths = Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]
SquareFeet = Annotated[int, Field(gt=0, le=100_000_000)]
Description = Annotated[str, Field(max_length=10_000)]
Latitude = Annotated[float, Field(ge=-90, le=90, allow_inf_nan=False, description="degrees north")]
Longitude = Annotated[float, Field(ge=-180, le=180, allow_inf_nan=False, description="degrees east")]
PropertyType = Literal["Residential", "Condo", "Multi_Family"]
Status = Literal["unlisted", "listed", "under_offer", "sold", "withdrawn"]


# Events


class Listed(Event, type="listing.listed"):
    """A property came on the market for the first time."""

    listing_id: str
    city: str
    zip: str
    property_type: str
    beds: int
    baths: float
    square_feet: int
    price: int
    latitude: float
    longitude: float
    description: str


class DetailsRevised(Event, type="listing.details_revised"):
    """The details of the property were corrected: all details as they are now, and the previous area."""

    listing_id: str
    city: str
    property_type: str
    beds: int
    baths: float
    square_feet: int
    description: str
    square_feet_added: int


class PriceChanged(Event, type="listing.price_changed"):
    """The asking price changed, from `previous_price`."""

    listing_id: str
    city: str
    price: int
    previous_price: int


class PutUnderOffer(Event, type="listing.put_under_offer"):
    """An offer was accepted; the property stays on the market until it is sold."""

    listing_id: str
    city: str
    offer: int


class Sold(Event, type="listing.sold"):
    """The property was sold for `sold_for`; it leaves the market with its last asking price."""

    listing_id: str
    city: str
    sold_for: int
    price: int
    square_feet: int


class Withdrawn(Event, type="listing.withdrawn"):
    """The owner took the listing off the market; `under_offer`: whether it was under offer."""

    listing_id: str
    city: str
    price: int
    square_feet: int
    under_offer: bool


class Relisted(Event, type="listing.relisted"):
    """A withdrawn listing is back on the market."""

    listing_id: str
    city: str
    price: int
    square_feet: int


# State


class Listing(BaseModel):
    """What the rules need to know of a listing."""

    model_config = ConfigDict(frozen=True)

    status: Status = "unlisted"
    city: str = ""
    property_type: str = ""
    beds: int = 0
    baths: float = 0.0
    square_feet: int = 0
    price: int = 0
    description: str = ""


def evolve(
    state: Listing,
    event: Listed | DetailsRevised | PriceChanged | PutUnderOffer | Sold | Withdrawn | Relisted,
) -> Listing:
    """The state after `event`."""
    match event:
        case Listed():
            return Listing(
                status="listed",
                city=event.city,
                property_type=event.property_type,
                beds=event.beds,
                baths=event.baths,
                square_feet=event.square_feet,
                price=event.price,
                description=event.description,
            )
        case DetailsRevised():
            revised = {
                "property_type": event.property_type,
                "beds": event.beds,
                "baths": event.baths,
                "square_feet": event.square_feet,
                "description": event.description,
            }
            return state.model_copy(update=revised)
        case PriceChanged():
            return state.model_copy(update={"price": event.price})
        case PutUnderOffer():
            return state.model_copy(update={"status": "under_offer"})
        case Sold():
            return state.model_copy(update={"status": "sold"})
        case Withdrawn():
            return state.model_copy(update={"status": "withdrawn"})
        case Relisted():
            return state.model_copy(update={"status": "listed", "price": event.price})
        case _:
            assert_never(event)


# Commands


class ListProperty(Command, type="listing.list_property"):
    """List a property for sale."""

    listing_id: ListingId
    city: City
    zip: Annotated[str, Field(pattern="^z?[0-9]{5}$")]
    property_type: PropertyType
    beds: Rooms
    baths: Baths
    square_feet: SquareFeet
    price: Price
    latitude: Latitude
    longitude: Longitude
    description: Description = ""


class ReviseDetails(Command, type="listing.revise_details"):
    """Correct the details of the property; omitted fields do not change."""

    listing_id: ListingId
    property_type: PropertyType | None = None
    beds: Rooms | None = None
    baths: Baths | None = None
    square_feet: SquareFeet | None = None
    description: Description | None = None


class ChangePrice(Command, type="listing.change_price"):
    """Change the asking price."""

    listing_id: ListingId
    price: Price


class PutListingUnderOffer(Command, type="listing.put_under_offer"):
    """Accept an offer."""

    listing_id: ListingId
    offer: Price


class Sell(Command, type="listing.sell"):
    """Complete the sale of a property under offer."""

    listing_id: ListingId
    sold_for: Price


class Withdraw(Command, type="listing.withdraw"):
    """Take the listing off the market."""

    listing_id: ListingId


class Relist(Command, type="listing.relist"):
    """List a withdrawn listing again, at its old price or a new one."""

    listing_id: ListingId
    price: Price | None = None


def decide(
    command: ListProperty | ReviseDetails | ChangePrice | PutListingUnderOffer | Sell | Withdraw | Relist,
    state: Listing,
) -> Sequence[Event]:
    """The events of `command`; raises Rejected with one of the codes below."""
    if isinstance(command, ListProperty):
        if state.status != "unlisted":
            raise Rejected("already_listed", f'"{command.listing_id}" was listed before: relist or revise it instead')
        return [Listed(**command.model_dump())]
    if state.status == "unlisted":
        raise Rejected("not_listed", f'there is no listing "{command.listing_id}": list the property first')
    if state.status == "sold":
        raise Rejected("already_sold", f'"{command.listing_id}" is sold: nothing about it changes any more')
    match command:
        case ReviseDetails():
            return _revise(command, state)
        case ChangePrice():
            return _change_price(command, state)
        case PutListingUnderOffer():
            _require_status(command.listing_id, state, "listed", "put under offer")
            return [PutUnderOffer(listing_id=command.listing_id, city=state.city, offer=command.offer)]
        case Sell():
            return _sell(command, state)
        case Withdraw():
            return _withdraw(command, state)
        case Relist():
            return _relist(command, state)
        case _:
            assert_never(command)


def _revise(command: ReviseDetails, state: Listing) -> Sequence[Event]:
    changes = command.model_dump(exclude={"listing_id"}, exclude_none=True)
    revised = state.model_copy(update=changes)
    if revised == state:
        return []
    return [
        DetailsRevised(
            listing_id=command.listing_id,
            city=state.city,
            property_type=revised.property_type,
            beds=revised.beds,
            baths=revised.baths,
            square_feet=revised.square_feet,
            description=revised.description,
            # a withdrawn listing is in no market's total, so its area changes no total
            square_feet_added=0 if state.status == "withdrawn" else revised.square_feet - state.square_feet,
        )
    ]


def _change_price(command: ChangePrice, state: Listing) -> Sequence[Event]:
    _require_status(command.listing_id, state, "listed", "repriced")
    if command.price == state.price:
        return []
    return [
        PriceChanged(listing_id=command.listing_id, city=state.city, price=command.price, previous_price=state.price)
    ]


def _sell(command: Sell, state: Listing) -> Sequence[Event]:
    _require_status(command.listing_id, state, "under_offer", "sold")
    return [
        Sold(
            listing_id=command.listing_id,
            city=state.city,
            sold_for=command.sold_for,
            price=state.price,
            square_feet=state.square_feet,
        )
    ]


def _withdraw(command: Withdraw, state: Listing) -> Sequence[Event]:
    if state.status == "withdrawn":
        raise Rejected("already_withdrawn", f'"{command.listing_id}" is withdrawn already')
    return [
        Withdrawn(
            listing_id=command.listing_id,
            city=state.city,
            price=state.price,
            square_feet=state.square_feet,
            under_offer=state.status == "under_offer",
        )
    ]


def _relist(command: Relist, state: Listing) -> Sequence[Event]:
    _require_status(command.listing_id, state, "withdrawn", "relisted")
    return [
        Relisted(
            listing_id=command.listing_id,
            city=state.city,
            price=command.price or state.price,
            square_feet=state.square_feet,
        )
    ]


def _require_status(listing_id: str, state: Listing, status: Status, to_be: str) -> None:
    if state.status != status:
        raise Rejected(f"not_{status}", f'"{listing_id}" is {state.status}, not {status}: it cannot be {to_be}')


listing = Aggregate(name="listing", id_field="listing_id", initial=Listing(), decide=decide, evolve=evolve)


class ListingViewed(Observation, type="listing_viewed"):
    """A user opened the page of a listing; the report's source is the site or app, its id that of the page view."""

    listing_id: Annotated[str, Field(min_length=1, max_length=100)]
    came_from: Literal["search", "map", "mail", "link", "unknown"] = "unknown"
    seconds: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] | None = None
