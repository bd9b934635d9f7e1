"""Views of a listing's page, reported by a website or an app, far more often than listings change."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from commands import Observation


class ListingViewed(Observation, type="listing_viewed"):
    """A user opened the page of a listing; the report's source is the site or app, its id that of the page view."""

    listing_id: Annotated[str, Field(min_length=1, max_length=100)]
    came_from: Literal["search", "map", "mail", "link", "unknown"] = "unknown"
    seconds: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] | None = None
