"""A payment of a customer of the shop: received once, and refunded at most once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, assert_never

from pydantic import BaseModel, ConfigDict, Field

from headwater import Aggregate, Command, Event, Rejected

PaymentId = Annotated[str, Field(min_length=1, max_length=100)]
CustomerId = Annotated[str, Field(pattern=r"^[0-9]{1,19}$")]
"""The customer's id in the shop's database, as text."""


class PaymentReceived(Event, type="payment.received"):
    """The customer's money came."""

    payment_id: str
    customer_id: str
    amount_cents: int


class PaymentRefunded(Event, type="payment.refunded"):
    """The whole amount was sent back."""

    payment_id: str
    customer_id: str
    amount_cents: int


class Payment(BaseModel):
    """Whose payment it is, and where the money is."""

    model_config = ConfigDict(frozen=True)

    status: Literal["none", "received", "refunded"] = "none"
    customer_id: str = ""
    amount_cents: int = 0


def evolve(state: Payment, event: PaymentReceived | PaymentRefunded) -> Payment:
    """The state after `event`."""
    match event:
        case PaymentReceived():
            return Payment(status="received", customer_id=event.customer_id, amount_cents=event.amount_cents)
        case PaymentRefunded():
            return state.model_copy(update={"status": "refunded"})
        case _:
            assert_never(event)


class ReceivePayment(Command, type="payment.receive"):
    """Record that a customer's money came."""

    payment_id: PaymentId
    customer_id: CustomerId
    amount_cents: Annotated[int, Field(gt=0, le=2**53)]


class RefundPayment(Command, type="payment.refund"):
    """Send the money back."""

    payment_id: PaymentId


def decide(command: ReceivePayment | RefundPayment, state: Payment) -> Sequence[Event]:
    """The events of `command`; raises Rejected if a rule refuses it."""
    match command:
        case ReceivePayment():
            if state.status != "none":
                raise Rejected("already_received", f'payment "{command.payment_id}" was received before')
            return [PaymentReceived(**command.model_dump())]
        case RefundPayment():
            if state.status != "received":
                raise Rejected("nothing_to_refund", f'there is nothing to refund of payment "{command.payment_id}"')
            return [
                PaymentRefunded(
                    payment_id=command.payment_id, customer_id=state.customer_id, amount_cents=state.amount_cents
                )
            ]
        case _:
            assert_never(command)


payment = Aggregate(name="payment", id_field="payment_id", initial=Payment(), decide=decide, evolve=evolve)
