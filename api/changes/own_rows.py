"""A follower for whom only some rows of a view exist: it gets their changes, and when one stops being its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from headwater.api.changes.patch_tail import Brought, Touch
from headwater.api.changes.subscription import Change, ResetReason, Subscription
from headwater.api.errors import BadParameter
from headwater.api.reading import Finder, Generations, Live, ViewReader, read_live
from headwater.api.requests.filters import Filter
from headwater.api.requests.query import MAX_ROWS, Order, Query
from headwater.projections.view import View

MAX_OWN_ROWS: Final = 10_000
"""Of a follower of all its rows."""
STORED: Final = -1
"""The offset of what a store has."""
NEEDS_KEYS: Final = "follow the rows that you name with key="


@dataclass(slots=True, eq=False)
class OwnRows(Subscription):
    """The changes of the rows that fulfil `conditions`, for one follower.

    The feed does not know what a row was before a change. So this remembers the rows that the follower may have read,
    and tells of no others that they were removed. Before `know`, nothing is taken. It has no position, since positions
    count changes of all rows; a follower that lost its connection reads its rows again.

    generation_number: of the view when it began.
    """

    conditions: tuple[Filter, ...] = ()
    generation_number: int = 0
    _own: dict[str, int] = field(default_factory=dict)
    """By key, the offset of the last patch after which the row may have been the follower's."""
    _others: dict[str, Change] = field(default_factory=dict)
    """Rows that changed before `know`, and are not the follower's."""
    _knows: bool = False

    @property
    def generation(self) -> int:
        """Of the view."""
        return self.generation_number

    def bring(self, key: str, offset: int, values: Brought) -> None:
        """A patch with these values of the compared columns may have made a row the follower's."""
        if self.keys is not None and key not in self.keys:
            return
        if values.keys() >= {each.column for each in self.conditions} and self._fulfils(values):
            self._own[key] = max(offset, self._own.get(key, STORED))

    def know(self, keys: Iterable[str]) -> None:
        """The keys of the rows that are the follower's in any store."""
        for key in keys:
            self._own.setdefault(key, STORED)
        self._knows = True
        others, self._others = self._others, {}
        self._changes |= {key: gone for key, change in others.items() if (gone := self._gone(change)) is not None}
        self._unread_bytes = sum(len(change.event) for change in self._changes.values())
        self._wake()

    def move(self, position: str) -> None:
        """It has none."""

    def offer(self, changes: Iterable[Change]) -> None:
        """Add those changes that exist for the follower."""
        found = [mine for each in changes if (mine := self._seen(each)) is not None]
        Subscription.offer(self, found)
        if len(self._own) > 2 * MAX_OWN_ROWS or len(self._others) > 2 * MAX_OWN_ROWS:
            self.end("too_slow")

    def reset(self, reason: ResetReason) -> None:
        """What the follower has read before is not known any more: it begins again."""
        self.end("read_again")

    def _seen(self, change: Change) -> Change | None:
        """The change as the follower may see it."""
        if self.keys is not None and change.key not in self.keys:
            return None
        if change.compared is not None and self._fulfils(change.compared):
            self._others.pop(change.key, None)
            self._own[change.key] = max(_offset(change.touch), self._own.get(change.key, STORED))
            return change
        if not self._knows:
            self._changes.pop(change.key, None)
            self._others[change.key] = change
            return None
        return self._gone(change)

    def _gone(self, change: Change) -> Change | None:
        own = self._own.get(change.key)
        if own is None:
            return None
        if own <= _offset(change.touch):
            del self._own[change.key]
        return change.removed()

    def _fulfils(self, values: Mapping[str, Any]) -> bool:
        return all(values.get(each.column) in each.values for each in self.conditions)


def _offset(touch: Touch | None) -> int:
    """In the partition of the row's patches."""
    return STORED if touch is None else touch.offset


class OwnKeys:
    """Reads them for one follower; conditions: what its rows fulfil. readers: by store."""

    def __init__(
        self, readers: Mapping[str, ViewReader], generations: Generations, view: View, conditions: tuple[Filter, ...]
    ) -> None:
        self._generations, self._view, self._conditions = generations, view, conditions
        stores = [store for store in view.stores if store.answers]
        self._stores = [readers[store.name] for store in stores]
        self._finders = [cast(Finder, readers[store.name]) for store in stores if store.finds]

    def check(self, keys: frozenset[str] | None) -> None:
        """Raise BadParameter if the stores cannot find the follower's rows, and it names none."""
        if keys is None and not self._finders:
            problem = f'is missing: "{self._view.name}" has look-ups by key only, and some rows are not yours'
            raise BadParameter("key", f"{problem}: {NEEDS_KEYS}")

    async def read(self, keys: frozenset[str] | None) -> set[str]:
        """The keys, or those of `keys`; raises BadParameter if they are too many to be remembered."""
        found = set[str]()
        if keys is not None:
            for reader in self._stores:
                found.update(await self._named(reader, list(keys)))
            return found
        for finder in self._finders:
            found.update(await self._every(finder))
        return found

    async def _named(self, reader: ViewReader, keys: Sequence[str]) -> Sequence[str]:
        async def ask(live: Live) -> Sequence[str]:
            return list(await reader.get_many(live.readable_by(self._conditions), keys, (self._view.key_name,)))

        return (await read_live(self._generations, self._view, ask))[0]

    async def _every(self, finder: Finder) -> Sequence[str]:
        name = self._view.key_name
        query = Query(self._conditions, (Order(name),), MAX_ROWS, fields=(name,))

        async def ask(live: Live) -> Sequence[str]:
            found, beyond = list[str](), None
            while True:
                page = await finder.find(live.readable_by(self._conditions), replace(query, beyond=beyond))
                found += [row[name] for row in page.rows]
                if len(found) > MAX_OWN_ROWS:
                    raise BadParameter("key", f"is missing: more than {MAX_OWN_ROWS} rows are yours: {NEEDS_KEYS}")
                if page.last is None:
                    return found
                beyond = tuple(page.last)

        return (await read_live(self._generations, self._view, ask))[0]
