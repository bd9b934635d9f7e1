"""Homes for sale, reported by agents."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from commands import Observation


class HomeOffered(Observation, type="home_offered"):
    """A home is for sale, or something about it has changed: all of it, as it is now."""

    home: Annotated[str, Field(min_length=1, max_length=100)]
    city: Annotated[str, Field(min_length=1, max_length=100)]
    price: Annotated[int, Field(ge=0, le=10_000_000_000, description="whole US dollars")]
    beds: Annotated[int, Field(ge=0, le=100)]
    description: Annotated[str, Field(max_length=2_000)] = ""
    latitude: Annotated[float, Field(ge=-90, le=90, allow_inf_nan=False, description="degrees north")]
    longitude: Annotated[float, Field(ge=-180, le=180, allow_inf_nan=False, description="degrees east")]
