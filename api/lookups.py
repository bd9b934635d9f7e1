"""What answers show of stored rows: columns looked up in other views, and personal values, or what hides them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import Any, Final

import orjson

from headwater.api.guard.caller import Caller, OwnStreams
from headwater.api.guard.scopes import STREAMS
from headwater.api.limits import MAX_PAGE_BYTES, Admission, stored_bytes
from headwater.api.reading import Generations, KeyReaders, Row, ViewReader, fitting, in_key_portions, read_live
from headwater.api.waiting.awaited import After
from headwater.api.waiting.waiter import Waiter
from headwater.commands.declaring.observation import ObservationRegistry, sealed_fields
from headwater.commands.declaring.personal import HIDDEN_VALUE, PersonalFields
from headwater.commands.declaring.registry import AnyAggregate, CommandRegistry
from headwater.eventlog.envelope import decode
from headwater.eventlog.errors import NotAnEnvelope, UnknownKey
from headwater.eventlog.personal.installed import installed
from headwater.eventlog.personal.sealed_text import SealedText, changed_texts, is_sealed_for
from headwater.projections.table.json_text import with_json
from headwater.projections.table.lookups import Lookup, looked_up_forms
from headwater.projections.view import View

UNREADABLE: Final = {"hidden": "unreadable"}
"""In place of a ciphertext that was damaged, or whose key the store never had."""
Change = Callable[[str], Any]
SealedIn = Callable[[Any], Iterable[str]]
"""The ciphertexts in a value of a column that are its personal values: others are what somebody has copied there."""

logger = logging.getLogger(__name__)


class PersonalValues:
    """What callers get in place of ciphertexts."""

    def __init__(self, commands: CommandRegistry, observations: ObservationRegistry) -> None:
        current = {
            (fields.record_type, personal_field.path): personal_field.erased_as
            for fields in _fields_of(commands, observations)
            for personal_field in fields.all
        }
        earlier = {  # by the types under which events were recorded; null is left of a field that was elsewhere
            (name, personal_field.path): personal_field.erased_as
            for event in commands.events.values()
            if event.sealed_fields is not None
            for personal_field in event.sealed_fields.all
            for name in event.history.types
        }
        self._erased_as = earlier | current
        self._personal, self._observed, self._recorded = commands.personal, observations.personal, commands.recorded
        self._observed_fields = {name: sealed_fields(kind) for name, kind in observations.types.items()}
        self.any = bool(commands.personal or observations.personal)
        """Whether anything is personal."""

    async def of_rows(self, rows: Sequence[Row], columns: Mapping[str, SealedIn], caller: Caller | None) -> list[Row]:
        """Rows whose `columns` have ciphertexts. Raises KeysUnavailable."""
        texts = _texts_in(rows, columns)
        if not texts:
            return list(rows)
        if caller is None or not caller.reads_personal:
            return _changed(rows, columns, _hidden)

        def opened() -> list[Row]:
            installed().fetch(texts)
            return _changed(rows, columns, self._open)

        return await asyncio.to_thread(opened)

    async def of_records(self, records: Sequence[bytes], caller: Caller) -> Sequence[bytes]:
        """The records of events; those without personal fields as they are. Raises KeysUnavailable."""
        if not self._personal or not any(b'"sealed:' in record for record in records):
            return records
        if not caller.reads_personal:
            return [self._record(record, _hidden) for record in records]
        return await asyncio.to_thread(lambda: [self._record(record, self._open) for record in records])

    def records_of_person(self, records: Sequence[bytes], key_ids: Set[str]) -> Sequence[bytes]:
        """The records of events or observations with the values of these keys, and those of others hidden; it may
        wait."""
        installed().fetch(text for record in records for text in _own(_sealed_in(record.decode()), key_ids))
        return [self._record(record, partial(self._open_own, key_ids)) for record in records]

    def rows_of_person(self, rows: Sequence[Row], columns: Mapping[str, SealedIn], key_ids: Set[str]) -> Sequence[Row]:
        """Likewise of rows."""
        installed().fetch(_own(_texts_in(rows, columns), key_ids))
        return _changed(rows, columns, partial(self._open_own, key_ids))

    def _open_own(self, key_ids: Set[str], text: str) -> Any:
        return self._open(text) if key_id_of(text) in key_ids else HIDDEN_VALUE

    def of_state(self, aggregate: AnyAggregate, state: bytes, caller: Caller) -> bytes:
        """A state in clear as JSON, for this caller."""
        if aggregate.sealed_fields is None or caller.reads_personal:
            return state
        return orjson.dumps(aggregate.sealed_fields.hidden(orjson.loads(state)))

    def _open(self, text: str) -> Any:
        from headwater.eventlog.personal.vault import ERASED  # noqa: PLC0415 - it imports cryptography

        try:
            plaintext = installed().open(text)
            if plaintext is ERASED:
                parsed = SealedText.parse(text)
                return self._erased_as.get((parsed.record_type, parsed.field))
        except (UnknownKey, ValueError) as error:
            logger.warning("a personal value cannot be opened: %s", error)
            return UNREADABLE
        return plaintext

    def _record(self, record: bytes, change: Change) -> bytes:
        """The record of an event or observation with changed ciphertexts in its personal fields, in the same order of
        members. A text that somebody has copied into another field stays as it is."""
        try:
            event = decode(record)
        except NotAnEnvelope:
            return record
        if event.type.partition(".")[0] not in self._personal and event.type not in self._observed:
            return record
        document = orjson.loads(record)
        kind = self._recorded.get(event.type)
        types = (event.type,) if kind is None else kind.history.types
        fields = self._observed_fields.get(event.type) if kind is None else kind.sealed_fields

        def at(path: str, value: Any) -> Any:
            return change(value) if is_sealed_for(value, types, path) else value

        data = document.get("data")
        if fields is not None and isinstance(data, dict) and (kind is None or event.data_version == kind.version):
            fields.changed(data, lambda field, value, _: at(field.path, value))
        else:  # of an earlier version, or one of later code: each text says for which field it was sealed
            document["data"] = _at_places(data, "", at)
        return orjson.dumps(document)


def _fields_of(commands: CommandRegistry, observations: ObservationRegistry) -> Iterator[PersonalFields]:
    """The personal fields of all that is declared."""
    kinds: list[Any] = [
        kind
        for aggregate in commands.aggregates.values()
        for kind in (aggregate, *aggregate.commands.values(), *aggregate.events.values())
    ]
    sealed = [*(kind.sealed_fields for kind in kinds), *map(sealed_fields, observations.types.values())]
    return (fields for fields in sealed if fields is not None)


def _at_places(value: Any, path: str, change: Callable[[str, Any], Any]) -> Any:
    """A value with changed texts, each at its place, such as `lines.email`."""
    match value:
        case dict():
            prefix = f"{path}." if path else ""
            return {name: _at_places(item, f"{prefix}{name}", change) for name, item in value.items()}
        case list():
            return [_at_places(item, path, change) for item in value]
    return change(path, value)


def _hidden(_: str) -> Any:
    return HIDDEN_VALUE


def _changed(rows: Sequence[Row], columns: Mapping[str, SealedIn], change: Change) -> list[Row]:
    def changed(value: Any, sealed_in: SealedIn) -> Any:
        texts = set(sealed_in(value))
        return changed_texts(value, lambda text: change(text) if text in texts else text) if texts else value

    return [
        {**row, **{name: changed(row[name], sealed_in) for name, sealed_in in columns.items() if name in row}}
        for row in rows
    ]


def _texts_in(rows: Sequence[Row], columns: Mapping[str, SealedIn]) -> list[str]:
    return [text for row in rows for name, sealed_in in columns.items() for text in sealed_in(row.get(name))]


def sealed_columns(view: View) -> dict[str, SealedIn]:
    """The stored columns of a view that have personal values."""
    return {name: partial(view.sealed_in, name) for name in sorted(view.personal)}


def _own(texts: Iterable[str], key_ids: Set[str]) -> list[str]:
    return [text for text in texts if key_id_of(text) in key_ids]


def key_id_of(text: str) -> str | None:
    """The id of the key of a ciphertext; None if it is damaged."""
    try:
        return SealedText.parse(text).key_id
    except ValueError:
        return None


def _sealed_in(value: Any) -> list[str]:
    names: list[str] = []
    changed_texts(value, names.append)
    return names


class Lookups:
    """Reads the looked-up columns, from stores with look-ups by key; readers: by store."""

    def __init__(
        self,
        views: Mapping[str, View],
        readers: Mapping[str, ViewReader],
        generations: Generations,
        waiter: Waiter,
        own_streams: OwnStreams,
        personal: PersonalValues,
        reads: Mapping[str, Admission],
    ) -> None:
        """own_streams: says whose events the view of all events shows to whom. personal: opens encrypted values.

        reads: admits queries of views, by store.
        """
        self._reads = reads
        self._views, self._generations, self._waiter = views, generations, waiter
        self._own_streams, self._personal = own_streams, personal
        names = {lookup.view for view in views.values() for lookup in view.lookups}
        self._readers = {name: KeyReaders(readers, views[name]) for name in names}

    def readable(self, view: View, caller: Caller) -> tuple[Hashable, ...]:
        """What decides which rows that `view` looks up exist for a caller: callers with the same see the same."""
        names = dict.fromkeys(lookup.view for lookup in view.lookups)
        conditions = (key for name in names for key in caller.readable(self._views[name]))
        opened = (self.opens(view, caller),) if self._sealed_columns(view) else ()
        return (*conditions, *(self._own_streams.seen_by(caller) if STREAMS in names else ()), *opened)

    def opens(self, view: View, caller: Caller) -> bool:
        """Whether `show` opens personal values of this view for a caller."""
        return caller.reads_personal and bool(self._sealed_columns(view))

    async def show(
        self,
        view: View,
        rows: Sequence[Row],
        fields: Sequence[str],
        caller: Caller | None,
        after: After | None = None,
    ) -> list[Row]:
        """Stored `rows` of `view` with the columns `fields`, as answers have them: with JSON in place of JSON texts.

        A looked-up column is null if there is no such row.

        caller: for whom; without one, no row exists of views whose rows are for some readers.
        after: positions that the looked-up views must have applied too.

        If looked-up columns make them larger than MAX_PAGE_BYTES, they are the first rows, up to the one that reaches
        it. Raises the errors of reading these views.
        """
        for name, columns in _by_view(view, fields).items():
            rows = await self._join(rows, self._views[name], columns, caller, after)
            rows = rows[: fitting(stored_bytes(row.values()) for row in rows)]
        shown = [{name: row[name] for name in fields if name in row} for row in rows]
        opened = shown
        if sealed := self._sealed_columns(view):
            shown_columns = {name: sealed_in for name, sealed_in in sealed.items() if name in fields}
            opened = await self._personal.of_rows(shown, shown_columns, caller)
        every_form = {**view.json_forms, **looked_up_forms(view, self._views)}
        forms = {name: form for name, form in every_form.items() if name in fields}
        return with_json(opened, forms, stored=None if opened is shown else shown) if forms else opened

    def _sealed_columns(self, view: View) -> Mapping[str, SealedIn]:
        """The columns of a view that have personal values, also looked-up ones."""
        if not self._personal.any:
            return {}
        looked_up = {
            name: partial(other.sealed_in, lookup.columns[name])
            for name, lookup in view.looked_up.items()
            if (other := self._views.get(lookup.view)) is not None and lookup.columns[name] in other.personal
        }
        return sealed_columns(view) | looked_up

    async def _join(
        self,
        rows: Sequence[Row],
        view: View,
        columns: Mapping[str, Lookup],
        caller: Caller | None,
        after: After | None,
    ) -> Sequence[Row]:
        """`rows` with the looked-up columns of `view` in `columns`: the first ones, if these are too large."""
        keys = _distinct(row[column.on] for row in rows for column in columns.values() if row[column.on] is not None)
        there = _distinct(lookup.columns[name] for name, lookup in columns.items())
        row_by_key, done = await self._read(view, keys, there, caller, after)
        unread = set(keys[done:])
        on = {column.on for column in columns.values()}
        number = next((at for at, row in enumerate(rows) if any(row[name] in unread for name in on)), len(rows))

        def looked_up(row: Row) -> Row:
            return {
                name: row_by_key.get(row[column.on], {}).get(column.columns[name]) for name, column in columns.items()
            }

        return [row | looked_up(row) for row in rows[: max(number, 1)]]

    async def _read(
        self, view: View, keys: Sequence[str], columns: Sequence[str], caller: Caller | None, after: After | None
    ) -> tuple[Mapping[str, Row], int]:
        """The rows of the first of these keys, and how many keys these are."""

        async def ask(reader: ViewReader) -> tuple[Mapping[str, Row], int]:
            await self._waiter.wait(view, reader, after)

            async def read(some: Sequence[str]) -> Mapping[str, Row]:
                if view.name == STREAMS:  # whoever chooses the value of a column may name any event in it
                    some = [key for key in some if self._own_streams.has_event(caller, key)]
                if not some:
                    return {}
                async with self._reads[reader.name].place():
                    rows, _ = await read_live(
                        self._generations, view, lambda live: reader.get_many(live, some, columns), caller
                    )
                return rows

            return await in_key_portions(keys, read, MAX_PAGE_BYTES)

        return await self._readers[view.name].ask(ask)


def _by_view(view: View, fields: Sequence[str]) -> dict[str, dict[str, Lookup]]:
    """The looked-up columns of `fields`, by the view that they are looked up in."""
    by_view: dict[str, dict[str, Lookup]] = {}
    for name in fields:
        if name in view.looked_up:
            by_view.setdefault(view.looked_up[name].view, {})[name] = view.looked_up[name]
    return by_view


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
