"""Reads a view: its live generation, from the first available of some stores."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from headwater.api.guard.caller import Caller
from headwater.api.ports import GenerationGone, Generations, Live, NotRanked, ViewReader
from headwater.projections.errors import GenerationMissing, StoreUnavailable
from headwater.projections.view import View

Answer = TypeVar("Answer")
Reader = TypeVar("Reader", bound=ViewReader)

AWAY_S: Final = 1.0
"""How long a store that did not answer is skipped, if the view has another store."""

logger = logging.getLogger(__name__)


class Readers(Generic[Reader]):
    """Stores of one view that can give the same answer; earlier ones are preferred. view: its name."""

    def __init__(self, view: str, readers: Sequence[Reader]) -> None:
        self._view, self.stores = view, readers
        self._away_until: dict[str, float] = {}

    async def ask(self, call: Callable[[Reader], Awaitable[Answer]]) -> Answer:
        """The answer of the first available store; raises StoreUnavailable or NotRanked if there is none."""
        now = time.monotonic()
        there = [each for each in self.stores if self._away_until.get(each.name, 0.0) <= now]
        for reader in (there or self.stores)[:-1]:
            try:
                return await call(reader)
            # a server without persistence loses generations, and an index may be deleted by hand
            except (NotRanked, GenerationGone, GenerationMissing):
                continue
            except StoreUnavailable as error:
                self._away_until[reader.name] = time.monotonic() + AWAY_S
                logger.warning(
                    'view "%s": reading from another store, %s is unavailable: %s', self._view, reader.name, error
                )
        return await call((there or self.stores)[-1])


class KeyReaders(Readers[ViewReader]):
    """The stores of one view, for look-ups by key: those only for that, as caches, first, then in declared order."""

    def __init__(self, readers: Mapping[str, ViewReader], view: View) -> None:
        stores = sorted((store for store in view.stores if store.answers), key=lambda store: store.finds)
        super().__init__(view.name, [readers[store.name] for store in stores])


async def read_live(
    generations: Generations, view: View, ask: Callable[[Live], Awaitable[Answer]], caller: Caller | None = None
) -> tuple[Answer, Live]:
    """Read the live generation; if it was dropped meanwhile, read the registry and try once more.

    caller: who reads its rows; without one, no row exists if the rows are for some readers.
    """

    async def found(*, fresh: bool = False) -> Live:
        live = await generations.live(view, fresh=fresh)
        return live if caller is None else live.readable_by(caller.readable(view))

    live = await found()
    try:
        return await ask(live), live
    except GenerationGone:
        live = await found(fresh=True)
    try:
        return await ask(live), live
    except GenerationGone as error:
        raise GenerationMissing(view.name, live.generation) from error
