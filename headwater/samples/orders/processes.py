"""From a placed order to its dispatch: payment reserves stock; otherwise the order is cancelled and refunded."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Literal, assert_never

from pydantic import BaseModel, ConfigDict

from headwater import Command, Process, Reaction, Refused, TimedOut

from .domain import order, refund, stock

UNPAID: Final = "unpaid"
PAY_WITHIN: Final = timedelta(minutes=30)
MAX_REASON: Final = 500
"""The longest reason that `order.cancel` accepts."""


class Fulfilment(BaseModel):
    """How far an order has come. reserved: the products that are kept for it."""

    model_config = ConfigDict(frozen=True)

    status: Literal["awaiting_payment", "reserving", "confirming", "failing"] = "awaiting_payment"
    order_id: str = ""
    wanted: tuple[str, ...] = ()
    reserved: tuple[str, ...] = ()


def react(
    event: order.Placed
    | order.Paid
    | order.Cancelled
    | order.Expired
    | order.Shipped
    | stock.Reserved
    | stock.ReservationRefused
    | Refused
    | TimedOut,
    state: Fulfilment,
) -> Reaction[Fulfilment]:
    """The reaction to `event`."""
    match event:
        case order.Placed():
            wanted = tuple(line.sku for line in event.lines)
            return Reaction(Fulfilment(order_id=event.order_id, wanted=wanted), timers={UNPAID: PAY_WITHIN})
        case order.Paid():
            reserve = [
                stock.Reserve(sku=line.sku, order_id=event.order_id, quantity=line.quantity) for line in event.lines
            ]
            return Reaction(state.model_copy(update={"status": "reserving"}), reserve, {UNPAID: None})
        case stock.Reserved():
            return _reserved(event, state)
        case stock.ReservationRefused():
            reason = f'{event.quantity} of "{event.sku}" are not in stock, {event.available} are'
            return _given_up(state, event.order_id, reason) if state.status == "reserving" else Reaction(state)
        case Refused():
            return _refused(event, state)
        case order.Cancelled():
            return Reaction(state, [*_release(state, event.order_id), *_refund(event)], ended=True)
        case order.Shipped():
            dispatch = [stock.Dispatch(sku=line.sku, order_id=event.order_id) for line in event.lines]
            return Reaction(state, dispatch, ended=True)
        case order.Expired():
            return Reaction(state, ended=True)
        case TimedOut():
            # the order may have been paid at the same moment: then this does nothing
            return Reaction(state, [order.Expire(order_id=state.order_id)])
        case _:
            assert_never(event)


def _reserved(event: stock.Reserved, state: Fulfilment) -> Reaction[Fulfilment]:
    reserved = (*state.reserved, event.sku)
    known = state.model_copy(update={"reserved": reserved})
    if state.status != "reserving" or set(reserved) != set(state.wanted):
        return Reaction(known)
    confirming = known.model_copy(update={"status": "confirming"})
    return Reaction(confirming, [order.Confirm(order_id=event.order_id)])


def _refused(event: Refused, state: Fulfilment) -> Reaction[Fulfilment]:
    """Handle a refused command: without its reservations or its confirmation, an order is never shipped."""
    match event.command:
        case stock.Reserve() if state.status == "reserving":
            reason = f'"{event.command.sku}" cannot be reserved: {event.message}'
        case order.Confirm() if state.status == "confirming":
            reason = f"the order cannot be confirmed: {event.message}"
        case _:
            return Reaction(state)  # an order that cannot be cancelled or expired stays unchanged
    return _given_up(state, state.order_id, reason[:MAX_REASON])


def _given_up(state: Fulfilment, order_id: str, reason: str) -> Reaction[Fulfilment]:
    # other reservations are released by the event of the cancellation
    failing = state.model_copy(update={"status": "failing"})
    return Reaction(failing, [order.Cancel(order_id=order_id, reason=reason)])


def _release(state: Fulfilment, order_id: str) -> Sequence[Command]:
    """Release all requested products, answered or not: a release follows its reservation, and else does nothing."""
    if state.status == "awaiting_payment":
        return []
    return [stock.Release(sku=sku, order_id=order_id) for sku in state.wanted]


def _refund(event: order.Cancelled) -> Sequence[Command]:
    if not event.paid_cents:
        return []
    return [
        refund.Request(
            order_id=event.order_id, customer=event.customer, amount_cents=event.paid_cents, reason=event.reason
        )
    ]


order_fulfilment = Process(
    name="order_fulfilment", key="order_id", initial=Fulfilment(), starts=(order.Placed,), react=react
)
