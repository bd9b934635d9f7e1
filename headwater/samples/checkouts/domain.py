"""New devices of accounts, and payments from them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from headwater import Observation

Name = Annotated[str, Field(min_length=1, max_length=100)]


Cents = Annotated[int, Field(ge=1, le=10**12)]


class DeviceAdded(Observation, type="device_added"):
    """Somebody signed in to this account from a device for the first time."""

    account: Name
    device: Name


class DeviceConfirmed(Observation, type="device_confirmed"):
    """The account's holder said that the device is theirs."""

    account: Name
    device: Name


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
