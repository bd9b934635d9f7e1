"""Visitors who open pages, search, and click on results."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from headwater import Observation


class PageOpened(Observation, type="page_opened"):
    """A visitor opened a page. Browser and server may both report it, with the same `view_id` and the same `time`."""

    view_id: Annotated[str, Field(min_length=1, max_length=100)]
    visitor: Annotated[str, Field(min_length=1, max_length=100)]
    page: Annotated[str, Field(min_length=1, max_length=1_000)]


class ResultClicked(Observation, type="result_clicked"):
    """A visitor opened a result of a search. result: its place among the results, from 1."""

    search_id: Annotated[str, Field(min_length=1, max_length=100)]
    result: Annotated[int, Field(ge=1, le=10_000)]


class Searched(Observation, type="searched"):
    """A visitor searched, and was shown results."""

    search_id: Annotated[str, Field(min_length=1, max_length=100)]
    query: Annotated[str, Field(max_length=1_000)]
