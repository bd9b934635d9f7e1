"""Opens the sealed values of rows, events and states for callers who may read them, and hides them from others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from api.guard.caller import Caller
from api.ports import Row
from commands.declaring.personal import HIDDEN_VALUE, PersonalFields
from commands.declaring.registry import AnyAggregate, CommandRegistry
from eventlog.envelope import decode
from eventlog.errors import NotAnEnvelope, UnknownKey
from eventlog.personal.installed import installed
from eventlog.personal.sealed_text import SealedText, is_sealed

UNREADABLE: Final = {"hidden": "unreadable"}
"""In place of a sealed text that was damaged, or whose key the store never had."""

logger = logging.getLogger(__name__)

Change = Callable[[str], Any]


class PersonalValues:
    """What callers get in place of sealed texts."""

    def __init__(self, commands: CommandRegistry) -> None:
        self._erased_as = dict(_erased_as(commands))
        self._personal = commands.personal
        self.any = bool(commands.personal)
        """Whether anything is personal."""

    async def of_rows(self, rows: Sequence[Row], columns: Sequence[str], caller: Caller | None) -> list[Row]:
        """Rows whose `columns` have sealed texts. Raises KeysUnavailable."""
        if caller is None or not caller.reads_personal:
            return _changed(rows, columns, _hidden)
        return await asyncio.to_thread(self._opened, rows, columns)

    async def of_records(self, records: Sequence[bytes], caller: Caller) -> Sequence[bytes]:
        """The records of events; those without personal fields as they are. Raises KeysUnavailable."""
        if not self._personal or not any(b'"sealed:' in record for record in records):
            return records
        if not caller.reads_personal:
            return [self._record(record, _hidden) for record in records]
        return await asyncio.to_thread(lambda: [self._record(record, self._open) for record in records])

    def of_state(self, aggregate: AnyAggregate, state: bytes, caller: Caller) -> bytes:
        """A state in clear as JSON, for this caller."""
        if aggregate.sealed_fields is None or caller.reads_personal:
            return state
        return orjson.dumps(aggregate.sealed_fields.hidden(orjson.loads(state)))

    def _opened(self, rows: Sequence[Row], columns: Sequence[str]) -> list[Row]:
        installed().fetch(text for row in rows for name in columns for text in _sealed_in(row.get(name)))
        return _changed(rows, columns, self._open)

    def _open(self, text: str) -> Any:
        from eventlog.personal.vault import ERASED  # noqa: PLC0415 - it imports cryptography

        try:
            found = installed().open(text)
            if found is ERASED:
                parsed = SealedText.parse(text)
                return self._erased_as.get((parsed.record_type, parsed.field))
        except (UnknownKey, ValueError) as error:
            logger.warning("a personal value cannot be opened: %s", error)
            return UNREADABLE
        return found

    def _record(self, record: bytes, change: Change) -> bytes:
        """The record of an event with changed sealed texts in its data, in the same order of members."""
        try:
            event = decode(record)
        except NotAnEnvelope:
            return record
        if event.type.partition(".")[0] not in self._personal:
            return record
        document = orjson.loads(record)
        document["data"] = _replaced(document.get("data"), change)
        return orjson.dumps(document)


def _erased_as(commands: CommandRegistry) -> Iterator[tuple[tuple[str, str], Any]]:
    """What is left of each personal field, by its record's type and its path."""
    for aggregate in commands.aggregates.values():
        kinds: Mapping[str, Any] = {**aggregate.commands, **aggregate.events, aggregate.name: aggregate}
        for kind in kinds.values():
            fields: PersonalFields | None = kind.sealed_fields
            for each in fields.all if fields is not None else ():
                yield (fields.record_type, each.path) if fields else ("", ""), each.erased_as


def _hidden(_: str) -> Any:
    return HIDDEN_VALUE


def _changed(rows: Sequence[Row], columns: Sequence[str], change: Change) -> list[Row]:
    return [{**row, **{name: _replaced(row[name], change) for name in columns if name in row}} for row in rows]


def _replaced(value: Any, change: Change) -> Any:
    """A value with changed sealed texts, at any depth; also in a text of JSON, as columns of JSON have it."""
    match value:
        case str() if is_sealed(value):
            return change(value)
        case str() if '"sealed:' in value:
            try:
                return orjson.dumps(_replaced(orjson.loads(value), change)).decode()
            except orjson.JSONDecodeError:
                return value
        case list():
            return [_replaced(each, change) for each in value]
        case dict():
            return {name: _replaced(each, change) for name, each in value.items()}
    return value


def _sealed_in(value: Any) -> list[str]:
    found: list[str] = []
    _replaced(value, found.append)
    return found
