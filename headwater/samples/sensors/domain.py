"""Readings of sensors, such as temperatures in a building, a few per second and sensor."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from headwater import Observation


class SensorRead(Observation, type="sensor_read"):
    """A sensor measured a value; the report's source is the gateway that it is connected to."""

    sensor: Annotated[str, Field(min_length=1, max_length=100)]
    value: Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)]
