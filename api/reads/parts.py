"""What stores share that keep documents: pages in parts, and ledgers as JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import orjson

from headwater.api.limits import MAX_PAGE_BYTES, fitting_rows, next_portion
from headwater.api.reading import Applied, Page
from headwater.api.requests.query import Query
from headwater.projections.table.patch import places_from_json

FIRST_ROWS: Final = 100
"""Rows that are read at once before their size is known."""
StoredLedgers = Mapping[int, Mapping[str, Any]]
"""By partition of `patches`."""


async def in_portions(query: Query, read: Callable[[Query], Awaitable[Page]]) -> Page:
    """The page of a query, read in parts, from a store that cannot stop in the middle of an answer.

    It ends early with the row that reaches MAX_PAGE_BYTES; `last` is where to continue. Total and facets are those of
    the first part.

    read: the page of a part, which ends early likewise (see `fitting`).
    """
    first = page = await read(replace(query, limit=min(query.limit, FIRST_ROWS)))
    rows, matches = list(page.rows), list(page.matches)
    size_bytes, portion_bytes = 0, _size_bytes(page)
    while page.last is not None and len(rows) < query.limit:
        size_bytes += portion_bytes
        if size_bytes >= MAX_PAGE_BYTES:
            break
        left = query.limit - len(rows)
        limit = next_portion(len(page.rows), portion_bytes, MAX_PAGE_BYTES - size_bytes, left)
        page = await read(replace(query, limit=limit, beyond=tuple(page.last), count=False))
        rows += page.rows
        matches += page.matches
        portion_bytes = _size_bytes(page)
    return replace(first, rows=rows, matches=matches or first.matches, last=page.last)


def fitting(sizes_bytes: Iterable[int]) -> int:
    """How many of the first rows, with these sizes, are on a page: up to the one that reaches MAX_PAGE_BYTES."""
    return fitting_rows(sizes_bytes, MAX_PAGE_BYTES)


def _size_bytes(page: Page) -> int:
    return len(orjson.dumps(page.rows))


def applied_in(ledgers: StoredLedgers) -> Mapping[int, Applied]:
    """What the generation has applied."""
    return {partition: places_from_json(ledger["applied"]) for partition, ledger in ledgers.items()}


def next_in(ledgers: StoredLedgers) -> Mapping[int, int]:
    """The loader's next `patches` offset."""
    return {partition: ledger["next"] for partition, ledger in ledgers.items()}
