"""What is compiled of views, and can be pickled to other processes: decoders of events, and programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from headwater.commands.declaring.aggregate import Event, by_recorded_type
from headwater.commands.declaring.field_kinds import is_required
from headwater.projections.table.changes import TableReader
from headwater.projections.table.event_data import EventFields
from headwater.projections.table.expressions import attribute
from headwater.projections.table.fold_plan import Lift
from headwater.projections.table.items import ItemField, Required, items_function, items_read
from headwater.projections.table.monoids import Monoid, StateField
from headwater.projections.table.patch import Retraction
from headwater.projections.table.rows import CapturedRow
from headwater.projections.table.types import ByType, ColumnType, field_types, item_model
from headwater.projections.table.view import TableView

HEADER: Final = '''\
"""The events of {tags}: compiled by Headwater. Do not edit."""

from typing import Annotated

from msgspec import Meta, Raw, Struct, ValidationError
from msgspec.json import Decoder

from headwater.projections.reading.runtime import ColumnType, is_null, unlike_items

Integer = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
'''
ITEMS: Final = """\
def {items}(raw):
    if is_null(raw):
        return ()
    try:
        return {items}_of(raw)
    except ValidationError:
        return unlike_items(raw, {items}_item, {items}_types, {always!r})"""
RAW: Final = "Raw"
GROWING: Final = frozenset({ColumnType.ENTRIES, ColumnType.COUNTS, ColumnType.SKETCH})
OF_EVERY: Final = "every"
"""In place of a number: the functions of all events that the view does not name."""


class _PythonTypes(ByType[str]):
    def of_decimal(self, kind: ColumnType) -> str:
        return "str | int | float"


PYTHON_TYPES: Final = _PythonTypes(
    {
        ColumnType.TEXT: "str",
        ColumnType.INTEGER: "Integer",
        ColumnType.FLOAT: "float",
        ColumnType.BOOLEAN: "bool",
        ColumnType.TIME: "str",
        ColumnType.JSON: RAW,
        ColumnType.DATE: "str",
        ColumnType.UUID: "str",
    }
)
INDENT: Final = "    "


@dataclass(frozen=True)
class Decoders:
    """Compiled decoders; they can be pickled to other processes.

    events: by every type under which an event may have been recorded.
    tables: what is read of captured tables and of topics of views, by topic.
    """

    source: str
    events: Mapping[str, EventFields]
    tables: Mapping[str, TableReader]

    def namespace(self) -> dict[str, Any]:
        """The names that the source defines."""
        names: dict[str, Any] = {"__name__": "decoders"}
        exec(compile(self.source, "<decoders>", "exec", dont_inherit=True), names)  # noqa: S102 - our own source
        return names


def decoders(views: Sequence[TableView]) -> Decoders:
    """The decoders for these views."""
    readers: dict[type[Event], list[Lift]] = {}
    for view in views:
        for event in view.plan.events.values():
            readers.setdefault(event, []).append(view.plan.lifts[event])
    events = {event.type: event for event in readers}
    recorded = by_recorded_type(readers)
    source = "\n\n".join(
        [
            HEADER.format(tags=", ".join(view.tag for view in views)),
            *(_struct(event, readers[event]) for event in events.values()),
        ]
    )
    fields = {event: EventFields.of(event, lifts) for event, lifts in readers.items()}
    tables = {
        event.table.topic(): TableReader.of(event.table, {name for lift in lifts for name in lift.fields})
        for event, lifts in readers.items()
        if issubclass(event, CapturedRow) and not event.deleted
    }
    return Decoders(source, {name: fields[event] for name, event in recorded.items()}, tables)


def is_raw(lift: Lift, event: type[Event], name: str) -> bool:
    """Whether a field of the event stays JSON text: it is a list that the view goes through, or not a scalar."""
    return name in _lists(lift) or PYTHON_TYPES[field_types(event)[name]] == RAW


def _lists(lift: Lift) -> dict[str, set[str]]:
    """The lists that a view goes through, with the fields of their items that it reads."""
    lists: dict[str, set[str]] = {}
    for item in items_read(lift.reads):
        lists.setdefault(item.list, set()).add(item.name)
    return lists if lift.through is None else {lift.through: set(), **lists}


def _struct(event: type[Event], readers: Sequence[Lift]) -> str:
    """The decoders of an event's data and of the lists in it."""
    kinds = field_types(event)
    lists: dict[str, set[str]] = {}
    for lift in readers:
        for name, items in _lists(lift).items():
            lists.setdefault(name, set()).update(items)
    fields = [
        (name, RAW if name in lists else PYTHON_TYPES[kinds[name]], is_required(event, name))
        for name in sorted({name for lift in readers for name in lift.fields})
    ]
    data = f"data_{attribute(event.type)}"
    parts = [_class(data, fields), f"{data}_of = Decoder({data}).decode"]
    required = {read_field for lift in readers for read_field in lift.required if isinstance(read_field, ItemField)}
    for name, read in sorted(lists.items()):
        inner = field_types(item_model(event, name))
        always = sorted({item.name for item in required if item.list == name and not item.nullable})
        own = items_function(name, event)
        types = ", ".join(f"{name!r}: ColumnType({inner[name].value!r})" for name in sorted(read))
        parts += [
            _class(f"{own}_item", [(name, PYTHON_TYPES[inner[name]], name in always) for name in sorted(read)]),
            f"{own}_of = Decoder(list[{own}_item]).decode",
            f"{own}_types = {{{types}}}",
            ITEMS.format(items=own, always=always),
        ]
    return "\n\n".join(parts)


def _class(name: str, fields: Sequence[tuple[str, str, bool]]) -> str:
    """A struct with these fields: name in JSON, type, whether it must be there."""
    renamed = {attribute(json): json for json, _, _ in fields}
    lines = [f"class {name}(Struct, gc=False, kw_only=True, rename={renamed!r}):"]
    for json, kind, required in fields:
        if kind == RAW:  # whether it may be null is checked later
            lines.append(f"{attribute(json)}: Raw = None")
        else:
            lines.append(f"{attribute(json)}: {kind}" if required else f"{attribute(json)}: {kind} | None = None")
    return f"\n{INDENT}".join(lines if fields else [*lines, "pass"])


@dataclass(frozen=True)
class Program:
    """A compiled view; it can be pickled to other processes.

    folding, lifting: the source that makes rows, and the one that makes patches.
    events: the number of the functions of each event type. handles_every: whether there are functions for all others.
    required: what every event of a type must have. tables: the topics of the captured tables that it reads.
    retraction: see Layout.
    """

    tag: str
    key_name: str
    folding: str
    lifting: str
    monoids: tuple[Monoid, ...]
    events: Mapping[str, int]
    handles_every: bool
    required: Mapping[str, tuple[Required, ...]]
    tables: frozenset[str]
    retraction: Retraction | None

    @cached_property
    def fields(self) -> tuple[StateField, ...]:
        """The slots of a row."""
        return tuple(field for monoid in self.monoids for field in monoid.fields)

    @cached_property
    def lists(self) -> tuple[int, ...]:
        """The slots whose values grow with the events."""
        return tuple(at for at, field in enumerate(self.fields) if field.type in GROWING)

    def namespace(self, source: str, decoders: Mapping[str, Any]) -> dict[str, Any]:
        """The names that one of both sources defines; decoders: the names that it may use of them."""
        names: dict[str, Any] = {**decoders} | {f"monoid_{at}": monoid for at, monoid in enumerate(self.monoids)}
        names["__name__"] = f"view {self.tag}"
        exec(compile(source, f"<view {self.tag}>", "exec", dont_inherit=True), names)  # noqa: S102 - our own source
        return names

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("fields", "lists")}
