"""Which columns of a stream view's key name persons: those with the name of a field that names one in its records."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.observation import sealed_fields
from headwater.commands.declaring.registry import AnyAggregate, CommandRegistry
from headwater.eventlog.envelope import stream_name
from headwater.projections.table.types import ColumnType
from headwater.projections.view import View

STREAM: Final = "stream"
OF_RECORDS: Final = frozenset({"id", "source", STREAM, "sequence", "time", "recordedtime", "type"})
"""Columns of records beside the fields of their classes, which keep their meaning under their names."""


def has_persons_as_ids(aggregate: AnyAggregate) -> bool:
    """Whether the ids of an aggregate are persons."""
    kinds: list[Any] = [aggregate, *aggregate.commands.values(), *aggregate.events.values()]
    fields = (kind.sealed_fields for kind in kinds)
    return any(not each.of for found in fields if found is not None for each in found.all)


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
            found = kind.sealed_fields if issubclass(kind, Event) else sealed_fields(kind)
            names |= {each.of for each in found.all if each.of} if found is not None else set()
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
        return dict(self._values(person))

    def _values(self, person: str) -> Iterator[tuple[str, Collection[str]]]:
        for name in self.ids:
            yield name, {person}
        if self.of_streams:
            yield STREAM, {stream_name(each, person) for each in self.of_streams}
