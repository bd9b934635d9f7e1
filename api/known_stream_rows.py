"""What no event names about a person: rows of stream views, and observations; each found by a search of its own."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple

import orjson

from headwater.api.errors import BadParameter, Overloaded
from headwater.api.guard.caller import ANYONE, Caller
from headwater.api.reading import Finder, Page, Row
from headwater.api.reads.scans import FIRST_PLACE, ObservationsFound
from headwater.api.requests.filters import SEALED_COPY, AnyOf, Filter
from headwater.api.requests.query import STALE, Order, Query
from headwater.api.service import Service
from headwater.api.waiting.awaited import After
from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.observation import sealed_fields
from headwater.commands.declaring.registry import AnyAggregate, CommandRegistry
from headwater.eventlog.envelope import Position, stream_name
from headwater.eventlog.errors import LogUnavailable
from headwater.projections.errors import GenerationMissing, StoreUnavailable
from headwater.projections.table.types import ColumnType
from headwater.projections.view import View

STREAM: Final = "stream"
OF_RECORDS: Final = frozenset({"id", "source", STREAM, "sequence", "time", "recordedtime", "type"})
"""Columns of records beside the fields of their classes, which keep their meaning under their names."""
_ROWS: Final = "rows"
FINDS: Final = "postgres"
"""The store with the index by persons."""
COUNTED_AT_ONCE: Final = 10_000
COUNTED_PAGES: Final = 4
"""How much of the topic is searched to count; if it is larger, nobody counts."""
_OBSERVATIONS: Final = "observations"


def place_cursor(kind: str, person: str, *place: Any) -> str:
    """The cursor of the page from a place on; bound to the person. kind: of what this and the next pages have."""
    document = orjson.dumps([kind, _digest(person), *place])
    return base64.urlsafe_b64encode(document).rstrip(b"=").decode()


def place_of(kind: str, person: str, cursor: str | None) -> Sequence[Any] | None:
    """The place in a cursor of this kind; None if it is of another kind. Raises BadParameter if of another person."""
    text = cursor or ""
    try:
        match orjson.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)):
            case [str(found), digest, *place] if found == kind:
                if digest != _digest(person):
                    raise BadParameter("cursor", STALE)
                return place
    except (ValueError, binascii.Error):
        return None  # the cursor of events is read, and refused, where they are
    return None


def _digest(person: str) -> str:
    return hashlib.blake2b(person.encode(errors="surrogateescape"), digest_size=8).hexdigest()


def has_persons_as_ids(aggregate: AnyAggregate) -> bool:
    """Whether the ids of an aggregate are persons."""
    kinds: list[Any] = [aggregate, *aggregate.commands.values(), *aggregate.events.values()]
    fields = (kind.sealed_fields for kind in kinds)
    return any(
        not data_field.of for fields_found in fields if fields_found is not None for data_field in fields_found.all
    )


class KeysOfPersons(NamedTuple):
    """Of one view; false if its key names no person.

    ids: the columns with ids of persons. of_streams: the aggregates whose streams a column `stream` has, if their ids
    are persons. is_unknown: whether its records name persons, and a column of its key is none of their fields, so that
    it may be a person under another name.
    """

    ids: Collection[str] = ()
    of_streams: Collection[str] = ()
    is_unknown: bool = False

    def __bool__(self) -> bool:
        return bool(self.ids or self.of_streams)

    @classmethod
    def of(cls, view: View, commands: CommandRegistry) -> KeysOfPersons:
        """Those of a view whose query computes its keys."""
        names, streams, fields = set[str](), set[str](), set(OF_RECORDS)
        for kind in view.queried:
            sealed = kind.sealed_fields if issubclass(kind, Event) else sealed_fields(kind)
            names |= {data_field.of for data_field in sealed.all if data_field.of} if sealed is not None else set()
            fields |= kind.model_fields.keys()
            aggregate = commands.aggregates.get(kind.type.partition(".")[0]) if issubclass(kind, Event) else None
            if aggregate is not None and has_persons_as_ids(aggregate):
                streams.add(aggregate.name)
                names |= set(aggregate.identity.names) if len(aggregate.identity.names) == 1 else set()
        if not names and not streams:
            return cls()
        texts = [name for name in view.key_columns if view.types.get(name) is ColumnType.TEXT]
        others = [name for name in view.key_columns if name not in texts]
        return cls(
            [name for name in texts if name in names],
            streams if STREAM in texts else (),
            any(name not in fields | names for name in texts) or any(name in names for name in others),
        )

    def of_person(self, person: str) -> Mapping[str, Collection[str]]:
        """By column, the values that name a person."""
        streams = {stream_name(stream, person) for stream in self.of_streams}
        return {name: {person} for name in self.ids} | ({STREAM: streams} if streams else {})


class StreamRows(NamedTuple):
    """A page of rows, as they are stored: of one view, because others have a page of their own; None if none has any.

    unbuilt: views that have no rows yet. next: the cursor of the next page of rows, if any.
    """

    view: View | None
    rows: Sequence[Row]
    unbuilt: Sequence[str]
    next: str | None


class KnownStreamRows:
    """Finds rows of stream views that show values of a person, or whose key names the person.

    unsearched: the views that may have such rows which are not found, with the reason: they have no table, which has
    the index, or no field of their records has the name of their key.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._finder: Finder = service.readers[FINDS]  # type: ignore[assignment]
        views = {name: view for name, view in sorted(service.views.items()) if view.has_own_query}
        self._keys = {name: KeysOfPersons.of(view, service.commands) for name, view in views.items()}
        about = {name: view for name, view in views.items() if view.personal or self._keys[name]}
        found = {name for name, view in about.items() if view.store(FINDS) is not None}
        self._views = {name: view for name, view in about.items() if name in found}
        self._sealed = [name for name, view in about.items() if view.personal]
        self.unsearched: dict[str, Literal["no_index", "unknown_key"]] = {
            **{name: "unknown_key" for name in views.keys() - about.keys() if self._keys[name].is_unknown},
            **{name: "no_index" for name in about.keys() - found},
        }

    def keyed(self, view: View, person: str) -> Callable[[Row], bool]:
        """Says of a row of a view whether its key names a person."""
        wanted = self._keys[view.name].of_person(person)
        return lambda row: any(row.get(column) in values for column, values in wanted.items())

    def begin(self, caller: Caller, person: str, key_ids: Collection[str]) -> str | None:
        """The cursor of the first page; None if there is nothing to search."""
        first = next((view for view in self._readable(caller) if key_ids or self._keys[view.name]), None)
        return None if first is None else place_cursor(_ROWS, person, first.name, None)

    def place_in(self, caller: Caller, person: str, cursor: str | None) -> tuple[str, str | None] | None:
        """The view and the last key in a cursor of rows; None if it is another cursor. Raises BadParameter."""
        match place_of(_ROWS, person, cursor):
            case None:
                return None
            case [str(name), (str() | None) as key] if any(view.name == name for view in self._readable(caller)):
                return name, key
        raise BadParameter("cursor", STALE)

    async def page(
        self,
        caller: Caller,
        person: str,
        key_ids: Collection[str],
        limit: int,
        place: tuple[str, str | None],
        after: After | None,
    ) -> StreamRows:
        """At most `limit` rows from a place on, in the order of views and keys. Raises what reading raises."""
        start, key = place
        unbuilt = list[str]()
        views = [view for view in self._readable(caller) if view.name >= start]
        for number, view in enumerate(views):
            beyond = None if key is None else (key,)
            key = None
            named = self._keys[view.name].of_person(person)
            keyed = (Filter(column, "in", tuple(sorted(values))) for column, values in named.items())
            about = (*_showing(view, key_ids), *keyed)
            if not about:
                continue
            query = Query((AnyOf(about),), (Order(view.key_name),), limit=limit, beyond=beyond)
            try:
                page = await self._find(view, query, caller, after)
            except GenerationMissing:
                unbuilt.append(view.name)
                continue
            if page.rows:
                following = (view.name, page.last[0]) if page.last is not None else None
                if following is None and number + 1 < len(views):
                    following = (views[number + 1].name, None)
                cursor = None if following is None else place_cursor(_ROWS, person, *following)
                return StreamRows(view, page.rows, unbuilt, cursor)
        return StreamRows(None, (), unbuilt, None)

    async def count(self, key_ids: Collection[str]) -> Mapping[str, int | None]:
        """By view with sealed columns, how many rows show such a value, whoever may read them; None if nobody can count
        them now."""
        counts: dict[str, int | None] = dict.fromkeys(self._sealed)
        for name, view in ((name, self._views[name]) for name in self._sealed if name in self._views):
            query = Query((AnyOf(_showing(view, key_ids)),), (Order(view.key_name),), limit=1, count=True)
            with suppress(GenerationMissing, StoreUnavailable, Overloaded):
                counts[name] = (await self._find(view, query, ANYONE, None)).total if key_ids else 0
        return counts

    async def _find(self, view: View, query: Query, caller: Caller, after: After | None) -> Page:
        await self._service.waiter.wait(view, self._finder, after)
        page, _ = await self._service.read(self._finder, view, lambda live: self._finder.find(live, query), caller)
        return page

    def _readable(self, caller: Caller) -> Iterator[View]:
        return (view for name, view in self._views.items() if caller.scopes.allow("views", name))


def _showing(view: View, key_ids: Collection[str]) -> tuple[Filter, ...]:
    ids = tuple(sorted(key_ids))
    return tuple(Filter(column, SEALED_COPY, ids) for column in sorted(view.personal)) if ids else ()


class KnownObservations:
    """Searches the observations of a deployment."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def left_out(self, caller: Caller) -> Sequence[str]:
        """The types with personal fields, if the caller may not read observations, which are of no tenant."""
        return () if self._may_read(caller) else sorted(self._service.observations.personal)

    def begin(self, caller: Caller, person: str, key_ids: Collection[str]) -> str | None:
        """The cursor of the first page; None if there is nothing to search."""
        if not key_ids or not self._service.observations.personal or not self._may_read(caller):
            return None
        return self.cursor(person, FIRST_PLACE)

    def cursor(self, person: str, place: Position) -> str:
        """The cursor of the page from a place on."""
        return place_cursor(_OBSERVATIONS, person, place.partition, place.offset)

    def place_in(self, caller: Caller, person: str, cursor: str | None) -> Position | None:
        """The place in a cursor of this person; None if it is no cursor of observations. Raises BadParameter."""
        match place_of(_OBSERVATIONS, person, cursor):
            case None:
                return None
            case [int(partition), int(offset)] if min(partition, offset) >= 0 and self._may_read(caller):
                return Position(partition, offset)
        raise BadParameter("cursor", STALE)

    async def page(self, key_ids: Collection[str], limit: int, place: Position) -> ObservationsFound:
        """A page from a place on; raises LogUnavailable or Overloaded."""
        async with self._service.work.scans.place():
            return await self._service.observed.page(key_ids, limit, place)

    async def count(self, key_ids: Collection[str]) -> int | None:
        """How many there are; None if none can be personal, or the topic is too large to count, or cannot be read."""
        count, place = 0, FIRST_PLACE
        if not self._service.observations.personal:
            return None
        if not key_ids:
            return 0
        try:
            for _ in range(COUNTED_PAGES):
                rows = await self.page(key_ids, COUNTED_AT_ONCE, place)
                count += len(rows.records)
                if rows.place is None:
                    return count
                place = rows.place
        except (LogUnavailable, Overloaded):
            return None
        return None

    def _may_read(self, caller: Caller) -> bool:
        return caller.scopes.allow(*self._service.own_streams.all_events)
