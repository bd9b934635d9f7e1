"""A customer's order: placed, paid, confirmed once its stock is reserved, shipped; or cancelled, or expired unpaid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, assert_never

from pydantic import BaseModel, ConfigDict, Field

from headwater import Aggregate, Command, Event, Rejected

OrderId = Annotated[str, Field(min_length=1, max_length=100)]
Sku = Annotated[str, Field(min_length=1, max_length=100, description="stock keeping unit: what is in the warehouse")]
Quantity = Annotated[int, Field(gt=0, le=10_000)]
Cents = Annotated[int, Field(gt=0, le=10_000_000_000, description="US cents")]
Reason = Annotated[str, Field(min_length=1, max_length=500)]
Status = Literal["new", "placed", "paid", "confirmed", "shipped", "cancelled", "expired"]


class Line(BaseModel):
    """So many of one product, at a price."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    sku: Sku
    quantity: Quantity
    unit_cents: Cents


Lines = tuple[Line, ...]


# Events


class Placed(Event, type="order.placed"):
    """An order was placed; it waits for payment."""

    order_id: str
    customer: str
    lines: Lines
    total_cents: int


class Paid(Event, type="order.paid"):
    """The full amount was paid; the stock is not reserved yet."""

    order_id: str
    customer: str
    lines: Lines
    paid_cents: int


class Confirmed(Event, type="order.confirmed"):
    """The stock of every line is reserved: the order can be shipped."""

    order_id: str
    customer: str


class Shipped(Event, type="order.shipped"):
    """The order was shipped."""

    order_id: str
    customer: str
    lines: Lines


class Cancelled(Event, type="order.cancelled"):
    """The order was cancelled; `paid_cents` is the amount that was paid, 0 if it was not paid."""

    order_id: str
    customer: str
    lines: Lines
    paid_cents: int
    reason: str


class Expired(Event, type="order.expired"):
    """The order was not paid in time."""

    order_id: str
    customer: str


# State


class Order(BaseModel):
    """What the rules need to know of an order."""

    model_config = ConfigDict(frozen=True)

    status: Status = "new"
    customer: str = ""
    lines: Lines = ()
    total_cents: int = 0
    paid_cents: int = 0


def evolve(state: Order, event: Placed | Paid | Confirmed | Shipped | Cancelled | Expired) -> Order:
    """The state after `event`."""
    match event:
        case Placed():
            return Order(status="placed", customer=event.customer, lines=event.lines, total_cents=event.total_cents)
        case Paid():
            return state.model_copy(update={"status": "paid", "paid_cents": event.paid_cents})
        case Confirmed():
            return state.model_copy(update={"status": "confirmed"})
        case Shipped():
            return state.model_copy(update={"status": "shipped"})
        case Cancelled():
            return state.model_copy(update={"status": "cancelled"})
        case Expired():
            return state.model_copy(update={"status": "expired"})
        case _:
            assert_never(event)


# Commands


class Place(Command, type="order.place"):
    """Place an order of products; each product is listed once."""

    order_id: OrderId
    customer: Annotated[str, Field(min_length=1, max_length=100)]
    lines: Annotated[Lines, Field(min_length=1, max_length=100)]


class Pay(Command, type="order.pay"):
    """Pay the full amount."""

    order_id: OrderId
    amount_cents: Annotated[int, Field(gt=0)]


class Confirm(Command, type="order.confirm"):
    """Confirm that all stock is reserved."""

    order_id: OrderId


class Ship(Command, type="order.ship"):
    """Ship a confirmed order."""

    order_id: OrderId


class Cancel(Command, type="order.cancel"):
    """Cancel an order that is not shipped."""

    order_id: OrderId
    reason: Reason


class Expire(Command, type="order.expire"):
    """Expire an unpaid order; does nothing if it was paid."""

    order_id: OrderId


def decide(command: Place | Pay | Confirm | Ship | Cancel | Expire, state: Order) -> Sequence[Event]:
    """The events of `command`; raises Rejected if a rule refuses it."""
    if isinstance(command, Place):
        return _place(command, state)
    if state.status == "new":
        raise Rejected("not_placed", f'there is no order "{command.order_id}": place it first')
    match command:
        case Pay():
            return _pay(command, state)
        case Confirm():
            # the order may have been cancelled or confirmed meanwhile; then nothing changes
            if state.status != "paid":
                return []
            return [Confirmed(order_id=command.order_id, customer=state.customer)]
        case Ship():
            if state.status != "confirmed":
                raise Rejected(
                    "not_confirmed", f'order "{command.order_id}" is {state.status}: only a confirmed one ships'
                )
            return [Shipped(order_id=command.order_id, customer=state.customer, lines=state.lines)]
        case Cancel():
            return _cancel(command, state)
        case Expire():
            return [] if state.status != "placed" else [Expired(order_id=command.order_id, customer=state.customer)]
        case _:
            assert_never(command)


def _place(command: Place, state: Order) -> Sequence[Event]:
    if state.status != "new":
        raise Rejected("already_placed", f'order "{command.order_id}" was placed before: take another id')
    skus = [line.sku for line in command.lines]
    repeated = next((sku for sku in skus if skus.count(sku) > 1), None)
    if repeated is not None:
        raise Rejected("repeated_product", f'"{repeated}" is listed twice: use one line')
    total = sum(line.quantity * line.unit_cents for line in command.lines)
    return [Placed(order_id=command.order_id, customer=command.customer, lines=command.lines, total_cents=total)]


def _pay(command: Pay, state: Order) -> Sequence[Event]:
    if state.status != "placed":
        raise Rejected("not_payable", f'order "{command.order_id}" is {state.status}: it takes no payment')
    if command.amount_cents != state.total_cents:
        raise Rejected("wrong_amount", f'order "{command.order_id}" costs {state.total_cents} cents: pay this sum')
    return [
        Paid(
            order_id=command.order_id,
            customer=state.customer,
            lines=state.lines,
            paid_cents=command.amount_cents,
        )
    ]


def _cancel(command: Cancel, state: Order) -> Sequence[Event]:
    if state.status == "cancelled":
        return []
    if state.status in ("shipped", "expired"):
        raise Rejected(
            f"already_{state.status}", f'order "{command.order_id}" is {state.status}: it cannot be cancelled'
        )
    return [
        Cancelled(
            order_id=command.order_id,
            customer=state.customer,
            lines=state.lines,
            paid_cents=state.paid_cents,
            reason=command.reason,
        )
    ]


order = Aggregate(name="order", id_field="order_id", initial=Order(), decide=decide, evolve=evolve)
