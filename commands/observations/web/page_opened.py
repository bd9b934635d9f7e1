"""Pages of a website that visitors opened, reported by browsers and by the server."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from commands import Observation


class PageOpened(Observation, type="page_opened"):
    """A visitor opened a page. Browser and server may both report it, with the same `view_id` and the same `time`."""

    view_id: Annotated[str, Field(min_length=1, max_length=100)]
    visitor: Annotated[str, Field(min_length=1, max_length=100)]
    page: Annotated[str, Field(min_length=1, max_length=1_000)]
