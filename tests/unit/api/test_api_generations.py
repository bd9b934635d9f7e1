"""Which generation the API reads: that of its own code's version."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from headwater.api.reading import GenerationGone
from headwater.api.reads.registry import LiveGenerations
from headwater.projections.errors import GenerationMissing
from tests.support.table_views import table_views

LISTINGS = table_views()["listings"]
ROWS = [
    ("listings", 1, 3, "listings@1", {"0": 10}, None, None, None),
    ("listings", 2, 4, "listings@2", {"0": 20}, None, None, None),
    ("then", 1, 7, "then@1", {}, "listings", "until 0:7", None),
]


class Database:
    """Answers with rows that were given, or with an error."""

    def __init__(self, rows: list[tuple[Any, ...]] | Exception) -> None:
        self._rows = rows

    async def rows(self, *_: object) -> list[tuple[Any, ...]]:
        if isinstance(self._rows, Exception):
            raise self._rows
        return self._rows


def read(rows: list[tuple[Any, ...]] | Exception, version: int, name: str = "listings") -> tuple[int, str, object]:
    generations = LiveGenerations(Database(rows), "here")  # type: ignore[arg-type]
    live = asyncio.run(generations.live(replace(LISTINGS, name=name, version=version)))
    return live.generation, live.tag, live.bulk_ends


def test_code_of_each_version_reads_its_own_while_both_run() -> None:
    assert read(ROWS, 1) == (3, "listings@1", {"0": 10})
    assert read(ROWS, 2) == (4, "listings@2", {"0": 20})
    assert read(ROWS, 3) == (4, "listings@2", {"0": 20}), "until version 3 is built"
    assert read(ROWS, 2, "then") == (7, "then@1", {})


@pytest.mark.parametrize("rows", [[], ROWS[1:2], GenerationGone("no table")])
def test_code_reads_no_generation_of_a_later_version(rows: list[tuple[Any, ...]] | Exception) -> None:
    with pytest.raises(GenerationMissing):
        read(rows, 1)
