"""Devices from which the holders of accounts buy."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from commands import Observation

Name = Annotated[str, Field(min_length=1, max_length=100)]


class DeviceAdded(Observation, type="device_added"):
    """Somebody signed in to this account from a device for the first time."""

    account: Name
    device: Name


class DeviceConfirmed(Observation, type="device_confirmed"):
    """The account's holder said that the device is theirs."""

    account: Name
    device: Name
