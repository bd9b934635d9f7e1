"""Whether indexes have all rows of bulk: one that was restored as it was in mid-bulk has lost its generation."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from elasticsearch import AsyncElasticsearch

from headwater.api.ports import GenerationGone
from headwater.projections.stores.elasticsearch.schema import COMPLETE

SURE_S: Final = 1.0
"""How long an index that was complete is not looked at again: most reads ask for nothing more."""

Ask = Callable[[Awaitable[Any]], Awaitable[Any]]


class CompleteIndexes:
    """The indexes that were complete a moment ago."""

    def __init__(self) -> None:
        self._until_s: dict[str, float] = {}

    async def check(self, client: AsyncElasticsearch, index: str, ask: Ask) -> None:
        """Raise GenerationGone if the index is gone, or lacks rows of bulk. ask: awaits a call, translates errors."""
        now_s = time.monotonic()
        if now_s < self._until_s.get(index, now_s):
            return
        self._until_s.pop(index, None)
        # with "error", or the answer for a missing index would be empty
        answer = await ask(client.indices.get_mapping(index=index, filter_path="*.mappings._meta,error"))
        for found in answer.body.values():
            if not found["mappings"]["_meta"].get(COMPLETE):
                raise GenerationGone(f"{index} lacks rows")
        self._until_s[index] = now_s + SURE_S
