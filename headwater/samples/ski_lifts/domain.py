"""Rides on ski lifts, reported by the turnstiles."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from headwater import Observation


class LiftRidden(Observation, type="lift_ridden"):
    """A skier passed the turnstile of a lift; the report's source is the turnstile."""

    lift: Annotated[str, Field(min_length=1, max_length=100)]
    ski_pass: Annotated[str, Field(min_length=1, max_length=100)]
