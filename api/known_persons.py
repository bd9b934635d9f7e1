"""What is known about a person: events, rows of views, and observations, for their own request."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from headwater.api.guard.caller import Caller
from headwater.api.guard.scopes import STREAMS
from headwater.api.known_stream_rows import KnownObservations, KnownStreamRows, has_persons_as_ids
from headwater.api.limits import MAX_PAGE_BYTES
from headwater.api.lookups import key_id_of, sealed_columns
from headwater.api.reading import Finder, Page, Row, ViewReader
from headwater.api.requests.filters import SEALED_WITH, AnyOf, Filter
from headwater.api.requests.query import Order, Query, continued, write_cursor
from headwater.api.served_views import ServedView, ServedViews
from headwater.api.service import Service
from headwater.api.waiting.awaited import After
from headwater.eventlog.envelope import Envelope, Position, decode, stream_name
from headwater.eventlog.erasing.person import Counted
from headwater.eventlog.personal.installed import installed
from headwater.projections.errors import GenerationMissing, StoreUnavailable
from headwater.projections.stores.declared import Postgres
from headwater.projections.table.json_text import with_json
from headwater.projections.view import View

KEYS_AT_ONCE: Final = 1_000
COLUMNS: Final = ("event_id", "stream", "time", "record")
Reason = Literal["forbidden", "no_rows", "no_index", "unknown_key", "made_earlier"]
"""Why a view is left out: the caller may not read it, it has no rows yet, its rows are not found by persons, nobody
knows whether its key is a person, or it was made with `--as` from an earlier version."""


class Known(NamedTuple):
    """A page of what is known. events, observations: opened. rows: by view. next: the cursor of the next page, if any.

    left_out: by kind, the names of what the caller may not read; also views whose rows are not found. reasons: of the
    views among them, by name. key_names: of the views with rows. searched: how many observations of all that the topic
    has were searched, and how many it has; None on other pages.
    """

    events: Sequence[bytes]
    rows: Mapping[str, Sequence[Row]]
    left_out: Mapping[str, Sequence[str]]
    reasons: Mapping[str, Reason]
    next: str | None
    key_names: Mapping[str, str] = MappingProxyType({})
    observations: Sequence[bytes] = ()
    searched: tuple[int, int] | None = None


class _Person(NamedTuple):
    """key_ids: of all keys that the person ever had."""

    name: str
    key_ids: frozenset[str]


class _Views(NamedTuple):
    """The views that may have rows about a person. earlier: the names of those whose columns are no longer known."""

    by_name: Mapping[str, ServedView]
    earlier: Sequence[str]


class KnownPersons:
    """Finds what is known about persons, in the views that a caller may read."""

    def __init__(self, service: Service, views: ServedViews) -> None:
        self._service, self._served = service, views
        self._observed, self._in_streams = KnownObservations(service), KnownStreamRows(service)
        self._streams = service.views[STREAMS]
        self._finder: Finder = service.readers[Postgres.name]  # type: ignore[assignment]
        self._aggregates = [aggregate for aggregate in service.commands.aggregates.values() if aggregate.is_personal]
        self._of_ids = frozenset(aggregate.name for aggregate in self._aggregates if has_persons_as_ids(aggregate))

    async def page(self, caller: Caller, person: str, limit: int, cursor: str | None, after: After | None) -> Known:
        """A page of at most `limit` events, the oldest first; then of rows of stream views, by view and key; then of
        observations, in the order of their arrival.

        Raises BadParameter, and what reading raises.
        """
        subject, views = await self._person(person), await self._views()
        if (start := self._in_streams.place_in(caller, person, cursor)) is not None:
            return await self._stream_rows(caller, views, subject, limit, start, after)
        if (place := self._observed.place_in(caller, person, cursor)) is not None:
            return await self._observations(caller, views, subject, limit, place)
        await self._service.waiter.wait(self._streams, self._finder, after)
        query = self._about(subject)
        query = query if cursor is None else continued(self._streams, query, cursor)
        records, following = await self._records(caller, query, limit)
        envelopes = [decode(record) for record in records]
        rows, unbuilt = await self._rows(caller, views, subject, envelopes, after)
        values = self._service.personal
        opened = await asyncio.to_thread(values.records_of_person, records, subject.key_ids)
        if following is None:
            following = self._in_streams.begin(caller, person, subject.key_ids)
        if following is None:
            following = self._observed.begin(caller, person, subject.key_ids)
        key_names = {name: views.by_name[name].view.key_name for name in rows}
        return Known(opened, rows, *self._left_out(caller, views, unbuilt), following, key_names)

    async def _views(self) -> _Views:
        """All but the view of all events, and those made of it, which have nothing but the events."""
        by_name = {
            served.view.name: served
            for served in await self._served.all()
            if (served.view.name if served.made is None else served.made.source) != STREAMS and served.by_key.stores
        }
        return _Views(by_name, [pinned.name for pinned in await self._served.outdated() if pinned.source != STREAMS])

    async def count(self, person: str) -> Counted:
        """How many events, observations and rows of stream views there are, whoever may read them."""
        subject = await self._person(person)
        events: int | None = None
        with suppress(GenerationMissing, StoreUnavailable):
            events = (await self._find(replace(self._about(subject), limit=1, count=True))).total
        observations = await self._observed.count(subject.key_ids)
        return Counted(events, observations, await self._in_streams.count(subject.key_ids))

    async def _stream_rows(
        self,
        caller: Caller,
        views: _Views,
        person: _Person,
        limit: int,
        place: tuple[str, str | None],
        after: After | None,
    ) -> Known:
        stream_rows = await self._in_streams.page(caller, person.name, person.key_ids, limit, place, after)
        rows, key_names = {}, {}
        if (view := stream_rows.view) is not None:
            keyed = self._in_streams.keyed(view, person.name)
            # the index also finds what only looks like a ciphertext
            about = [row for row in stream_rows.rows if keyed(row) or _shows(view, row, person)]
            if about:
                rows[view.name], key_names[view.name] = await self._shown(view, about, person), view.key_name
        following = stream_rows.next
        if following is None:
            following = self._observed.begin(caller, person.name, person.key_ids)
        return Known((), rows, *self._left_out(caller, views, stream_rows.unbuilt), following, key_names)

    async def _observations(self, caller: Caller, views: _Views, person: _Person, limit: int, place: Position) -> Known:
        observations = await self._observed.page(person.key_ids, limit, place)
        values = self._service.personal
        opened = await asyncio.to_thread(values.records_of_person, observations.records, person.key_ids)
        following = None if observations.place is None else self._observed.cursor(person.name, observations.place)
        searched = observations.searched, observations.size
        return Known((), {}, *self._left_out(caller, views, ()), following, {}, opened, searched)

    async def _person(self, name: str) -> _Person:
        facts = await asyncio.to_thread(lambda: installed().store.keys_of(name))
        return _Person(name, frozenset(fact.key_id for fact in facts))

    def _about(self, person: _Person) -> Query:
        """Events with values of a person, and all those of the streams whose id is the person."""
        sealed = Filter("record", SEALED_WITH, tuple(sorted(person.key_ids)))
        own = Filter("stream", "in", tuple(sorted(stream_name(id_, person.name) for id_ in self._of_ids)))
        return Query((AnyOf((sealed, own)),), (Order("time"), Order("event_id")), fields=COLUMNS)

    async def _find(self, query: Query) -> Page:
        page, _ = await self._service.read(self._finder, self._streams, lambda live: self._finder.find(live, query))
        return page

    async def _records(self, caller: Caller, query: Query, limit: int) -> tuple[list[bytes], str | None]:
        """The events that exist for the caller, and the cursor after them, if another one that exists follows."""
        records, size_bytes, last = list[bytes](), 0, list[Any]()
        while True:
            page = await self._find(replace(query, limit=limit - len(records) + 1))
            for row in page.rows:
                if not self._may_read(caller, row["stream"]):
                    continue
                if len(records) == limit or size_bytes >= MAX_PAGE_BYTES:
                    return records, write_cursor(self._streams, query, last)
                records.append(row["record"].encode())
                size_bytes += len(records[-1])
                last = [row[step.column] for step in query.order]
            if page.last is None:
                return records, None
            query = replace(query, beyond=tuple(page.last))

    def _may_read(self, caller: Caller, stream: str) -> bool:
        aggregate = stream.partition("/")[0]
        return caller.scopes.allow("streams", aggregate) and self._service.own_streams.exists_for(caller, stream)

    async def _rows(
        self, caller: Caller, views: _Views, person: _Person, events: Sequence[Envelope], after: After | None
    ) -> tuple[dict[str, Sequence[Row]], list[str]]:
        """By view, the rows about a person that these events have changed; and the views that have no rows yet."""
        rows: dict[str, Sequence[Row]] = {}
        unbuilt = []
        for name, served in views.by_name.items():
            view = served.view
            if not caller.scopes.allow("views", name):
                continue
            changed = dict.fromkeys(key for event in events for key in view.rows_of(event) or ())
            own = {key for event in events for key in self._keys_of(view, person, event)}
            if not changed or not (own or view.personal):
                continue
            try:
                read_rows = await self._read(served, list(changed), caller, after if served.made is None else None)
            except GenerationMissing:
                unbuilt.append(name)
                continue
            about = [row for key, row in read_rows.items() if key in own or _shows(view, row, person)]
            if about:
                rows[name] = await self._shown(view, about, person)
        return rows, unbuilt

    async def _shown(self, view: View, rows: Sequence[Row], person: _Person) -> Sequence[Row]:
        """Rows of this person as the answer has them."""
        opened = self._service.personal.rows_of_person
        shown = await asyncio.to_thread(opened, rows, sealed_columns(view), person.key_ids)
        return with_json(shown, view.json_forms, stored=rows)

    def _keys_of(self, view: View, person: _Person, event: Envelope) -> Iterator[str]:
        """The keys of rows that the event changes and that are the person, and not another thing of the same name.

        They are fields with the person, or the stream whose id is the person, or an event of this stream.
        """
        aggregate = self._service.commands.aggregates.get(event.type.partition(".")[0])
        kind = None if aggregate is None else aggregate.recorded.get(event.type)
        if aggregate is None or kind is None or not (keys := view.rows_of(event)):
            return
        fields, names, places = kind.sealed_fields, set[Collection[str]](), set[str]()
        named, subject = set[frozenset[str]](), event.stream.partition("/")[2]
        if fields is not None:
            named = {frozenset((field.of,)) for field in fields.fields if field.of}
            tenant = {aggregate.identity.names[place] for place in fields.tenants}
            names = {key_id | tenant for key_id in named} if tenant else set()
        if aggregate.name in self._of_ids:
            names.add(frozenset(aggregate.identity.names))
            if event.stream == stream_name(aggregate.name, person.name):
                places = {event.stream, event.id}
        for key, of in zip(keys, view.key_fields(kind), strict=False):
            is_named = of in named and fields is not None and fields.person(key, subject) == person.name
            if is_named or (of in names and key == person.name) or (not of and key in places):
                yield key

    async def _read(
        self, served: ServedView, keys: Sequence[str], caller: Caller, after: After | None
    ) -> Mapping[str, Row]:
        """Rows as they are stored, so that it can be seen whose values they have."""
        row_by_key: dict[str, Row] = {}
        for start in range(0, len(keys), KEYS_AT_ONCE):
            chunk = keys[start : start + KEYS_AT_ONCE]

            async def ask(reader: ViewReader, chunk: Sequence[str] = chunk) -> Mapping[str, Row]:
                await self._service.waiter.wait(served.view, reader, after)
                rows, _ = await self._service.read(
                    reader, served.view, lambda live: reader.get_many(live, chunk), caller
                )
                return rows

            row_by_key |= await served.by_key.ask(ask)
        return row_by_key

    def _left_out(
        self, caller: Caller, views: _Views, unbuilt: Sequence[str]
    ) -> tuple[dict[str, Sequence[str]], Mapping[str, Reason]]:
        """What is left out, and the reasons of views."""
        streams = [
            aggregate.name for aggregate in self._aggregates if not caller.scopes.allow("streams", aggregate.name)
        ]
        reasons: dict[str, Reason] = dict.fromkeys(unbuilt, "no_rows")
        reasons |= dict.fromkeys(views.earlier, "made_earlier")
        reasons |= self._in_streams.unsearched
        names = (*views.by_name, *views.earlier)
        reasons |= {name: "forbidden" for name in names if not caller.scopes.allow("views", name)}
        observations = self._observed.left_out(caller)
        return {"streams": sorted(streams), "views": sorted(reasons), "observations": observations}, reasons


def _shows(view: View, row: Row, person: _Person) -> bool:
    """Whether a row, as it is stored, has a value that is sealed with a key of the person."""
    texts = (text for name in view.personal for text in view.sealed_in(name, row.get(name)))
    return not person.key_ids.isdisjoint(map(key_id_of, texts))
