"""Where the phones of card holders are."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from commands import Observation


class PhoneLocated(Observation, type="phone_located"):
    """The phone of a card's holder was at this place. latitude, longitude: in degrees."""

    card: Annotated[str, Field(min_length=1, max_length=100)]
    latitude: Annotated[float, Field(ge=-90, le=90)]
    longitude: Annotated[float, Field(ge=-180, le=180)]
