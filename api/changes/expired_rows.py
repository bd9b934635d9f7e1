"""Rows that expire while a view is followed: no patch names them, so a query by their time finds them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final, cast

from headwater.api.changes.patch_tail import Touch, Touched
from headwater.api.ports import Finder, Generations, ViewReader
from headwater.api.reading import read_live
from headwater.api.requests.filters import Filter
from headwater.api.requests.query import MAX_ROWS, Order, Query
from headwater.projections.table.expiry import Expiry
from headwater.projections.view import View

LOOK_S: Final = 1.0
CLOCKS: Final = timedelta(seconds=5)
"""How far the clocks of API processes may differ, and how long a read may take. A row is looked for so much later than
it expires, because a follower may have read it in another process until then."""
NO_PATCH: Final = Touch(0, -1, None)
"""What touches a row that expires: before all patches, so no store has to apply anything first."""


class ExpiredRows:
    """Looks for the expired rows of one view in the first of its stores that finds rows."""

    def __init__(self, view: View, expiry: Expiry, stores: Sequence[ViewReader], generations: Generations) -> None:
        finding = {store.name for store in view.stores if store.finds}
        self.store = cast(Finder, next(each for each in stores if each.name in finding))
        self._view, self._expiry, self._generations = view, expiry, generations
        self._looked_to = self._bound()
        self._next_look_at = 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is time to look again, and rows may have expired since."""
        if time.monotonic() < self._next_look_at:
            return False
        self._next_look_at = time.monotonic() + LOOK_S
        return self._looked_to != self._bound()  # the bound of days moves once a day

    async def look(self) -> Touched | None:
        """Those that expired since the last look; None if they are more than MAX_ROWS.

        Call it while the store has everything that was sent to followers, who else may have newer rows than it has.
        Raises ProjectionError; then the next look finds them.
        """
        name, start, end = self._view.key_name, self._looked_to, self._bound()
        passed = (Filter(self._expiry.column, "gt", (start,)), Filter(self._expiry.column, "lte", (end,)))
        query = Query(passed, (Order(name),), MAX_ROWS, fields=(name,))
        page, _ = await read_live(
            self._generations,
            self._view,
            lambda live: self.store.find(live.readable_by(()).with_expired(), query),
        )
        self._looked_to = end
        return None if page.last is not None else {row[name]: NO_PATCH for row in page.rows}

    def _bound(self) -> datetime | date:
        return self._expiry.bound(datetime.now(UTC) - CLOCKS)
