"""The stock of one product: received, reserved for orders or refused, released, dispatched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, assert_never

from pydantic import BaseModel, ConfigDict, Field

from headwater import Aggregate, Command, Event, Rejected

Sku = Annotated[str, Field(min_length=1, max_length=100, description="stock keeping unit: what is in the warehouse")]
OrderId = Annotated[str, Field(min_length=1, max_length=100)]
Quantity = Annotated[int, Field(gt=0, le=1_000_000)]
MAX_STOCK = 1_000_000_000


# Events


class Received(Event, type="stock.received"):
    """Stock was received; `available` is the unreserved quantity after it."""

    sku: str
    quantity: int
    available: int


class Reserved(Event, type="stock.reserved"):
    """Stock was reserved for an order."""

    sku: str
    order_id: str
    quantity: int
    available: int


class ReservationRefused(Event, type="stock.reservation_refused"):
    """An order needs more than is available. It is an event, because processes see only events."""

    sku: str
    order_id: str
    quantity: int
    available: int


class Released(Event, type="stock.released"):
    """Stock that was reserved for an order is available again."""

    sku: str
    order_id: str
    quantity: int
    available: int


class Dispatched(Event, type="stock.dispatched"):
    """Stock that was reserved for an order was dispatched."""

    sku: str
    order_id: str
    quantity: int


# State


class Stock(BaseModel):
    """What is available, and how much is kept for which order."""

    model_config = ConfigDict(frozen=True)

    available: int = 0
    reserved: Mapping[str, int] = {}


def evolve(state: Stock, event: Received | Reserved | ReservationRefused | Released | Dispatched) -> Stock:
    """The state after `event`."""
    match event:
        case Received():
            return state.model_copy(update={"available": event.available})
        case Reserved():
            kept = {**state.reserved, event.order_id: event.quantity}
            return Stock(available=event.available, reserved=kept)
        case ReservationRefused():
            return state
        case Released():
            return Stock(available=event.available, reserved=_without(state, event.order_id))
        case Dispatched():
            return state.model_copy(update={"reserved": _without(state, event.order_id)})
        case _:
            assert_never(event)


# Commands


class Receive(Command, type="stock.receive"):
    """Receive stock."""

    sku: Sku
    quantity: Quantity


class Reserve(Command, type="stock.reserve"):
    """Reserve stock for an order, once; if there is too little, the refusal is an event."""

    sku: Sku
    order_id: OrderId
    quantity: Quantity


class Release(Command, type="stock.release"):
    """Release the stock reserved for an order; does nothing if none is reserved."""

    sku: Sku
    order_id: OrderId


class Dispatch(Command, type="stock.dispatch"):
    """Dispatch the stock reserved for an order; does nothing if none is reserved."""

    sku: Sku
    order_id: OrderId


def decide(command: Receive | Reserve | Release | Dispatch, state: Stock) -> Sequence[Event]:
    """The events of `command`; raises Rejected if a rule refuses it."""
    match command:
        case Receive():
            available = state.available + command.quantity
            if available > MAX_STOCK:
                raise Rejected("too_much", f'no more than {MAX_STOCK} of "{command.sku}" can be in stock')
            return [Received(sku=command.sku, quantity=command.quantity, available=available)]
        case Reserve():
            return _reserve(command, state)
        case Release():
            quantity = state.reserved.get(command.order_id)
            if quantity is None:
                return []
            available = state.available + quantity
            return [Released(sku=command.sku, order_id=command.order_id, quantity=quantity, available=available)]
        case Dispatch():
            quantity = state.reserved.get(command.order_id)
            if quantity is None:
                return []
            return [Dispatched(sku=command.sku, order_id=command.order_id, quantity=quantity)]
        case _:
            assert_never(command)


def _reserve(command: Reserve, state: Stock) -> Sequence[Event]:
    if command.order_id in state.reserved:
        return []
    left = state.available - command.quantity
    if left < 0:
        return [ReservationRefused(**command.model_dump(), available=state.available)]
    return [Reserved(**command.model_dump(), available=left)]


def _without(state: Stock, order_id: str) -> Mapping[str, int]:
    return {kept: quantity for kept, quantity in state.reserved.items() if kept != order_id}


stock = Aggregate(name="stock", id_field="sku", initial=Stock(), decide=decide, evolve=evolve)
