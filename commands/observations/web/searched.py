"""Searches on a website."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from commands import Observation


class Searched(Observation, type="searched"):
    """A visitor searched, and was shown results."""

    search_id: Annotated[str, Field(min_length=1, max_length=100)]
    query: Annotated[str, Field(max_length=1_000)]
