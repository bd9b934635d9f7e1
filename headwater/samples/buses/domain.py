"""Where buses are, as they report it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from headwater import Observation

Name = Annotated[str, Field(min_length=1, max_length=100)]


class BusLocated(Observation, type="bus_located"):
    """A bus was at this place; the report's source is its radio. latitude, longitude: in degrees."""

    vehicle: Name
    latitude: Annotated[float, Field(ge=-90, le=90)]
    longitude: Annotated[float, Field(ge=-180, le=180)]


class BusStopped(Observation, type="bus_stopped"):
    """A bus opened its doors at a stop. departed_s: seconds since its trip was planned to begin."""

    vehicle: Name
    line: Name
    stop: Name
    departed_s: Annotated[int, Field(ge=-86_400, le=86_400)]
