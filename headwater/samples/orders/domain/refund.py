"""A refund to a customer: requested once per order, completed once the money is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, assert_never

from pydantic import BaseModel, ConfigDict, Field

from headwater import Aggregate, Command, Event, Rejected

OrderId = Annotated[str, Field(min_length=1, max_length=100)]


class Requested(Event, type="refund.requested"):
    """A refund to the customer was requested."""

    order_id: str
    customer: str
    amount_cents: int
    reason: str


class Completed(Event, type="refund.completed"):
    """The refund was sent to the customer; `reference` is the payment provider's."""

    order_id: str
    customer: str
    amount_cents: int
    reference: str


class Refund(BaseModel):
    """What is owed to whom, and whether it is done."""

    model_config = ConfigDict(frozen=True)

    status: Literal["none", "requested", "completed"] = "none"
    customer: str = ""
    amount_cents: int = 0


def evolve(state: Refund, event: Requested | Completed) -> Refund:
    """The state after `event`."""
    match event:
        case Requested():
            return Refund(status="requested", customer=event.customer, amount_cents=event.amount_cents)
        case Completed():
            return state.model_copy(update={"status": "completed"})
        case _:
            assert_never(event)


class Request(Command, type="refund.request"):
    """Request the refund of an order's payment."""

    order_id: OrderId
    customer: Annotated[str, Field(min_length=1, max_length=100)]
    amount_cents: Annotated[int, Field(gt=0, le=2**53)]
    reason: Annotated[str, Field(min_length=1, max_length=500)]


class Complete(Command, type="refund.complete"):
    """Record that the refund was sent."""

    order_id: OrderId
    reference: Annotated[str, Field(min_length=1, max_length=200)]


def decide(command: Request | Complete, state: Refund) -> Sequence[Event]:
    """The events of `command`; raises Rejected if a rule refuses it."""
    match command:
        case Request():
            if state.status != "none":
                raise Rejected(
                    "already_requested", f'a refund for order "{command.order_id}" is {state.status} already'
                )
            return [Requested(**command.model_dump())]
        case Complete():
            if state.status != "requested":
                raise Rejected("not_requested", f'no refund of order "{command.order_id}" is waiting')
            return [
                Completed(
                    order_id=command.order_id,
                    customer=state.customer,
                    amount_cents=state.amount_cents,
                    reference=command.reference,
                )
            ]
        case _:
            assert_never(command)


refund = Aggregate(name="refund", id_field="order_id", initial=Refund(), decide=decide, evolve=evolve)
