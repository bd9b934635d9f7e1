"""Whether the views of a process that has just started can be read with `after=`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from headwater.api.errors import NotCaughtUp, ViewPaused
from headwater.api.ports import ViewReader
from headwater.api.reading import KeyReaders
from headwater.api.service import Service
from headwater.api.waiting.awaited import After
from headwater.eventlog.envelope import Position
from headwater.eventlog.source_positions import positions_text, topic_and_partition
from headwater.eventlog.topics import EVENTS
from headwater.projections.errors import GenerationMissing
from headwater.projections.view import View

HOLD_S: Final = 60.0
"""How long views may keep a new process from being ready, if some are built: one that cannot be built, or that is far
behind, must not keep all commands away."""
READY: Final = "ready"

logger = logging.getLogger(__name__)


class ViewsAtStart:
    """Checks once that every view has applied what the log had when the process was first asked.

    Later, a view that is behind is a matter of the requests that read it.
    """

    def __init__(self, service: Service, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: returns the time in seconds."""
        self._service, self._clock = service, clock
        self._views = [view for view in service.views.values() if any(store.answers for store in view.stores)]
        self._left = list(self._views)
        self._asked_at: float | None = None
        self._after = ""

    async def state(self) -> str:
        """`ready`, or why not. Raises StoreUnavailable or LogUnavailable."""
        if not self._left:
            return READY
        asked_at = self._asked_at = self._clock() if self._asked_at is None else self._asked_at
        unbuilt = [view.name for view in self._views if not await self._is_built(view)]
        if len(unbuilt) == len(self._views):
            return "no view is built yet: start `headwater projections`"
        if self._clock() - asked_at >= HOLD_S:
            names = ", ".join(view.name for view in self._left)
            logger.warning("ready, although after %g s these views are not built or up to date: %s", HOLD_S, names)
            self._left = []
            return READY
        if unbuilt:
            return f"not built yet: {', '.join(unbuilt)}"
        return await self._applied()

    async def _is_built(self, view: View) -> bool:
        try:
            await self._service.generations.live(view)
        except GenerationMissing:
            return False
        return True

    async def _applied(self) -> str:
        """Whether all views have applied the last events at the first time that there were some."""
        if not self._after:
            ends = await self._service.events.ends((EVENTS,))
            if not await self._service.events.hold_events(ends):
                # queries of stream views begin with the first event: until then, nobody applies heartbeats
                self._left = [view for view in self._left if not view.has_own_query]
            self._after = positions_text({source: await self._last(source, end) for source, end in ends.items() if end})
        if not self._after:
            return "the log is empty: start `headwater handler`"
        after = After(self._after, wait_ms=0)
        for view in list(self._left):

            async def wait(reader: ViewReader, view: View = view) -> None:
                await self._service.waiter.reach(view, reader, after)

            try:
                with suppress(ViewPaused):  # it answers with what it has, for as long as an operator wants
                    await KeyReaders(self._service.readers, view).ask(wait)
            except NotCaughtUp as error:
                behind = "an unknown number of" if error.lag_events is None else error.lag_events
                return f'view "{view.name}" is {behind} events behind'
            self._left = [each for each in self._left if each is not view]
        return READY

    async def _last(self, source: str, end: int) -> int:
        """The offset of the last event before `end`, where the end of its transaction may be."""
        at = Position(topic_and_partition(source)[1], end - 1)
        return end - 2 if end > 1 and await self._service.events.event_at(at) is None else end - 1
