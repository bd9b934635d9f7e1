"""Clicks on results of searches."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from commands import Observation


class ResultClicked(Observation, type="result_clicked"):
    """A visitor opened a result of a search. result: its place among the results, from 1."""

    search_id: Annotated[str, Field(min_length=1, max_length=100)]
    result: Annotated[int, Field(ge=1, le=10_000)]
