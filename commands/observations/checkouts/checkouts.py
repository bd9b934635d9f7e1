"""Payments in a web shop, as its checkout reports them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from commands import Observation
from commands.observations.checkouts.devices import Name

Cents = Annotated[int, Field(ge=1, le=10**12)]


class CheckoutDeclined(Observation, type="checkout_declined"):
    """A payment was tried and refused."""

    account: Name
    device: Name
    cents: Cents


class CheckoutPaid(Observation, type="checkout_paid"):
    """A payment succeeded."""

    account: Name
    device: Name
    cents: Cents
