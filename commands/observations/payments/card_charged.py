"""Payments by card, reported by the places where they are made."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from commands import Observation


class CardCharged(Observation, type="card_charged"):
    """A card was charged; the report's source is the shop. latitude, longitude: of the place of payment, in degrees."""

    card: Annotated[str, Field(min_length=1, max_length=100)]
    cents: Annotated[int, Field(ge=1, le=10**12)]
    latitude: Annotated[float, Field(ge=-90, le=90)]
    longitude: Annotated[float, Field(ge=-180, le=180)]
