"""Searches that are saved, changed and deleted, and homes that are offered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, assert_never

from pydantic import BaseModel, ConfigDict, Field

from headwater import Aggregate, Command, Event, Observation, Rejected

SearchId = Annotated[str, Field(min_length=1, max_length=100)]
City = Annotated[str, Field(min_length=1, max_length=100)]
Price = Annotated[int, Field(ge=0, le=10_000_000_000, description="whole US dollars")]
Beds = Annotated[int, Field(ge=0, le=100, description="at least so many")]
Words = Annotated[str, Field(max_length=200, description="all of them must be in the description of the home")]
Latitude = Annotated[float, Field(ge=-90, le=90, allow_inf_nan=False, description="degrees north")]
Longitude = Annotated[float, Field(ge=-180, le=180, allow_inf_nan=False, description="degrees east")]
Kilometres = Annotated[float, Field(gt=0, le=500, allow_inf_nan=False, description="from the place")]
_PLACE: Final = ("latitude", "longitude", "within_km")


# Events


class SearchSaved(Event, type="saved_search.saved"):
    """A search was saved, or saved again after it was deleted."""

    search_id: str
    city: str
    min_price: int | None
    max_price: int | None
    beds: int
    words: str
    latitude: float | None
    longitude: float | None
    within_km: float | None


class SearchChanged(Event, type="saved_search.changed"):
    """The search looks for something else in its city: all of it, as it is now."""

    search_id: str
    city: str
    min_price: int | None
    max_price: int | None
    beds: int
    words: str
    latitude: float | None
    longitude: float | None
    within_km: float | None


class SearchDeleted(Event, type="saved_search.deleted"):
    """The search was deleted."""

    search_id: str
    city: str


# State


class Wanted(BaseModel):
    """What a home must be like, apart from its city."""

    model_config = ConfigDict(frozen=True)

    min_price: Price | None = None
    max_price: Price | None = None
    beds: Beds = 0
    words: Words = ""
    latitude: Latitude | None = None
    longitude: Longitude | None = None
    within_km: Kilometres | None = None


class SavedSearch(BaseModel):
    """What the rules need to know. wanted: what it looks for; None if it is not saved."""

    model_config = ConfigDict(frozen=True)

    city: str = ""
    wanted: Wanted | None = None


def evolve(state: SavedSearch, event: SearchSaved | SearchChanged | SearchDeleted) -> SavedSearch:
    """The state after `event`."""
    match event:
        case SearchSaved() | SearchChanged():
            wanted = Wanted(**event.model_dump(include=set(Wanted.model_fields)))
            return SavedSearch(city=event.city, wanted=wanted)
        case SearchDeleted():
            return state.model_copy(update={"wanted": None})
        case _:
            assert_never(event)


# Commands


class Save(Wanted, Command, type="saved_search.save"):
    """Save a search in a city."""

    search_id: SearchId
    city: City


class Change(Wanted, Command, type="saved_search.change"):
    """Look for something else, in the same city: what is left out does not matter any more."""

    search_id: SearchId


class Delete(Command, type="saved_search.delete"):
    """Delete the search."""

    search_id: SearchId


def decide(command: Save | Change | Delete, state: SavedSearch) -> Sequence[Event]:
    """The events of `command`; raises Rejected with one of the codes below."""
    if isinstance(command, Save | Change):
        _check(command)
    if isinstance(command, Save):
        if state.wanted is not None:
            raise Rejected("already_saved", f'"{command.search_id}" is saved: change it, or delete it first')
        return [SearchSaved(**command.model_dump())]
    if state.wanted is None:
        raise Rejected("not_saved", f'there is no search "{command.search_id}": save it first')
    match command:
        case Change():
            values = command.model_dump()
            if Wanted(**{name: values[name] for name in Wanted.model_fields}) == state.wanted:
                return []
            return [SearchChanged(city=state.city, **values)]
        case Delete():
            return [SearchDeleted(search_id=command.search_id, city=state.city)]
        case _:
            assert_never(command)


def _check(wanted: Save | Change) -> None:
    if wanted.min_price is not None and wanted.max_price is not None and wanted.min_price > wanted.max_price:
        raise Rejected("no_such_price", f"min_price {wanted.min_price} is above max_price {wanted.max_price}")
    if len({getattr(wanted, name) is None for name in _PLACE}) > 1:
        raise Rejected("no_such_place", f"a distance needs all of {', '.join(_PLACE)}, or none of them")


saved_search = Aggregate(name="saved_search", id_field="search_id", initial=SavedSearch(), decide=decide, evolve=evolve)
"""A search stays in its city, because the searches of a city are looked up together."""


class HomeOffered(Observation, type="home_offered"):
    """A home is for sale, or something about it has changed: all of it, as it is now."""

    home: Annotated[str, Field(min_length=1, max_length=100)]
    city: Annotated[str, Field(min_length=1, max_length=100)]
    price: Annotated[int, Field(ge=0, le=10_000_000_000, description="whole US dollars")]
    beds: Annotated[int, Field(ge=0, le=100)]
    description: Annotated[str, Field(max_length=2_000)] = ""
    latitude: Annotated[float, Field(ge=-90, le=90, allow_inf_nan=False, description="degrees north")]
    longitude: Annotated[float, Field(ge=-180, le=180, allow_inf_nan=False, description="degrees east")]
