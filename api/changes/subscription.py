"""One follower of a view's changes: of all rows, or of those that exist for it; its unsent changes are limited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, cast

import orjson

from headwater.api.changes.patch_tail import Brought, Touch, Touched
from headwater.api.errors import BadParameter
from headwater.api.reading import Finder, Generations, Live, ViewReader, read_live
from headwater.api.requests.filters import Filter
from headwater.api.requests.query import MAX_ROWS, Order, Query
from headwater.eventlog.envelope import Position
from headwater.projections.view import View

MAX_CHANGES: Final = 2_000
"""Changed rows since a client last read; a client with more is disconnected."""
MAX_UNREAD_BYTES: Final = 16 * 1024 * 1024
"""Likewise, of their events."""
MAX_DIGITS: Final = 19
"""Of the number of a generation, and of erasures."""
Reason = Literal["too_slow", "closing", "failed", "time_is_up", "expired", "read_again"]
ResetReason = Literal["position_gone", "too_far_behind", "generation_changed", "person_erased"]
MAX_OWN_ROWS: Final = 10_000
"""Of a follower of all its rows."""
STORED: Final = -1
"""The offset of what a store has."""
NEEDS_KEYS: Final = "follow the rows that you name with key="


class FollowerPosition(NamedTuple):
    """Where a follower is. offsets: of `patches`, by partition. erasures: how many there were, if its view has personal
    values that it reads; else None."""

    generation: int
    offsets: Mapping[int, int]
    erasures: int | None = None

    def __str__(self) -> str:
        """`<generation>;<partition>:<offset>,…`, and `;<erasures>` behind it."""
        places = ",".join(str(Position(partition, offset)) for partition, offset in sorted(self.offsets.items()))
        return f"{self.generation};{places}" + ("" if self.erasures is None else f";{self.erasures}")

    @classmethod
    def read(cls, text: str, partitions: int) -> FollowerPosition | None:
        """A follower's position; None if it is not valid in this deployment."""
        generation, _, rest = text.partition(";")
        places, has_erasures, erasures = rest.partition(";")
        try:
            offsets = {position.partition: position.offset for position in map(Position.parse, places.split(","))}
        except ValueError:
            return None
        numbers = (generation, erasures) if has_erasures else (generation,)
        is_valid = all(number.isascii() and number.isdigit() and len(number) <= MAX_DIGITS for number in numbers)
        if not is_valid or offsets.keys() != set(range(partitions)):
            return None
        return cls(int(generation), offsets, int(erasures) if has_erasures else None)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Change:
    """A row after a change: its key and the server-sent event, which followers share; touch: the change.

    compared: the columns of a row that say who may read it; None if it was removed, or if everybody may.
    """

    key: str
    event: bytes
    touch: Touch | None = field(default=None, compare=False)
    compared: Mapping[str, Any] | None = field(default=None, compare=False)

    @classmethod
    def of(cls, key: str, row: Mapping[str, Any] | None, touch: Touch | None, compared: Iterable[str] = ()) -> Change:
        """The change to this row; None: it was removed. compared: columns that say who may read it."""
        position = None if touch is None or touch.position is None else str(touch.position)
        document = {"key": key, "row": row, "position": position}
        event = b"event: change\ndata: " + orjson.dumps(document) + b"\n"
        values = {name: row[name] for name in compared} if row is not None else None
        return cls(key, event, touch, values)

    def removed(self) -> Change:
        """The same change for a follower for whom the row does not exist any more."""
        return Change.of(self.key, None, self.touch)


@dataclass(slots=True)
class Delivery:
    """What a follower takes at once.

    changes: rows as they are now.
    position: of the follower after them.
    reset: read all rows again, then apply the changes.
    ended: nothing follows.
    """

    changes: list[Change]
    position: str
    reset: ResetReason | None = None
    ended: Reason | None = None


@dataclass(slots=True, eq=False)
class Subscription:
    """The changes of some rows (`keys` None: all) for one follower; for one loop.

    A row that changes twice before it is taken is sent once, with its latest value.

    position: from where a client may continue with what it has taken.
    lacks: why all rows must be read again, once the stores are near; later changes are taken before.
    wanted: rows that the feed has yet to send to this follower alone.
    exists: whether the row of a key exists for this follower.
    """

    keys: frozenset[str] | None
    position: str
    lacks: ResetReason | None = None
    wanted: Touched = field(default_factory=dict)
    exists: Callable[[str], bool] = lambda _: True
    _latest: str = ""
    _changes: dict[str, Change] = field(default_factory=dict)
    _unread_bytes: int = 0
    _taken: asyncio.Event = field(default_factory=asyncio.Event)
    _reset: ResetReason | None = None
    _ended: Reason | None = None
    _ready: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def generation(self) -> int:
        """Of the view when it began."""
        return int(self.position.partition(";")[0])

    @property
    def settled(self) -> bool:
        """Whether everything up to `position` was taken, and everything later will be."""
        return not (self.lacks or self.wanted or self._changes or self._reset)

    def of_its_keys(self, touched: Touched) -> Touched | None:
        """Those of these rows that it follows; None if they are too many for it."""
        if self.keys is not None:
            touched = {key: touched[key] for key in self.keys if key in touched}
        return touched if len(touched) <= MAX_CHANGES else None

    def offer(self, changes: Iterable[Change]) -> None:
        """Add changed rows."""
        if self._ended is not None:
            return
        had_some = bool(self._changes)
        for change in changes:
            if (self.keys is None or change.key in self.keys) and self.exists(change.key):
                replaced = self._changes.pop(change.key, None)  # to the end: last changed, last sent
                self._changes[change.key] = change
                self._unread_bytes += len(change.event) - (0 if replaced is None else len(replaced.event))
        if len(self._changes) > MAX_CHANGES or (had_some and self._unread_bytes > MAX_UNREAD_BYTES):
            self.end("too_slow")
        else:
            self._wake()

    def has_room(self, wanted_bytes: int) -> bool:
        """Whether changes with these bytes can be offered; always, if there are no others."""
        return not self._changes or self._unread_bytes + wanted_bytes <= MAX_UNREAD_BYTES

    async def wait_for_room(self, wanted_bytes: int) -> None:
        """Return when there is room for changes with these bytes."""
        while not self.has_room(wanted_bytes):
            self._taken.clear()
            await self._taken.wait()

    def move(self, position: str) -> None:
        """Everything up to `position` was offered, unless something is lacking."""
        if self.lacks is None:
            self._latest = position
            if not self._changes and self._reset is None:
                self.position = position

    def reset(self, reason: ResetReason) -> None:
        """Everything may have changed: changes that were not taken are dropped, and what the rows lack that are read
        now follows."""
        self._clear()
        self._reset, self.lacks = reason, None
        self._wake()

    def drop(self) -> None:
        """Drop the changes that were not taken: a `reset` follows."""
        self._clear()
        if self._reset is None and self._ended is None:
            self._ready.clear()

    def end(self, reason: Reason) -> None:
        """Nothing follows; changes that were not taken are dropped."""
        self._ended = self._ended or reason
        self._clear()
        self._ready.set()

    async def take(self) -> Delivery:
        """Wait until there is something, and take all of it."""
        await self._ready.wait()
        if self._ended is None:
            self.position = self._latest or self.position
        delivery = Delivery(list(self._changes.values()), self.position, self._reset, self._ended)
        self._clear()
        self._reset = None
        if self._ended is None:
            self._ready.clear()
        return delivery

    def _clear(self) -> None:
        self._changes.clear()
        self._unread_bytes = 0
        self._taken.set()

    def _wake(self) -> None:
        if self._changes or self._reset or self._ended:
            self._ready.set()


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
        if values.keys() >= {condition.column for condition in self.conditions} and self._fulfils(values):
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
        new_changes = [mine for change in changes if (mine := self._seen(change)) is not None]
        Subscription.offer(self, new_changes)
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
        return all(values.get(condition.column) in condition.values for condition in self.conditions)


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
        tags = set[str]()
        if keys is not None:
            for reader in self._stores:
                tags.update(await self._named(reader, list(keys)))
            return tags
        for finder in self._finders:
            tags.update(await self._every(finder))
        return tags

    async def _named(self, reader: ViewReader, keys: Sequence[str]) -> Sequence[str]:
        async def ask(live: Live) -> Sequence[str]:
            return list(await reader.get_many(live.readable_by(self._conditions), keys, (self._view.key_name,)))

        return (await read_live(self._generations, self._view, ask))[0]

    async def _every(self, finder: Finder) -> Sequence[str]:
        name = self._view.key_name
        query = Query(self._conditions, (Order(name),), MAX_ROWS, fields=(name,))

        async def ask(live: Live) -> Sequence[str]:
            keys, beyond = list[str](), None
            while True:
                page = await finder.find(live.readable_by(self._conditions), replace(query, beyond=beyond))
                keys += [row[name] for row in page.rows]
                if len(keys) > MAX_OWN_ROWS:
                    raise BadParameter("key", f"is missing: more than {MAX_OWN_ROWS} rows are yours: {NEEDS_KEYS}")
                if page.last is None:
                    return keys
                beyond = tuple(page.last)

        return (await read_live(self._generations, self._view, ask))[0]
