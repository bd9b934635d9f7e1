"""Purchases, reported by the tills."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from headwater import Observation


class ItemSold(Observation, type="item_sold"):
    """A line of a receipt. cents: of all its pieces."""

    product: Annotated[str, Field(min_length=1, max_length=100)]
    pieces: Annotated[int, Field(ge=1, le=10_000)]
    cents: Annotated[int, Field(ge=0, le=10**12)]
