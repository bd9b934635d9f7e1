"""A view as Python source: what decoders read of an event is folded into rows, without a dict.

The source has a function per event, `fold_<n>(head, data, message, partition, rows)`. It reads everything before it
changes a row, so an event that it cannot read changes nothing. `head` is the envelope, `data` the event's fields (see
`decoders`), `message` the record, and `item` and `index` are those of `each`. A row is a list with a slot per state
field. `table/reference.py` defines what the source must do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from commands.declaring.aggregate import Event
from projections.folding.compiled_lists import INDENT, ListCode, list_code
from projections.folding.decoders import is_raw
from projections.table.expressions import Expression, Value, attribute
from projections.table.fold_plan import Lift
from projections.table.folds.fold import EVERY, Case, event_of
from projections.table.items import items_function
from projections.table.monoids import Entries, Extreme, Monoid, Pick, StateField, Sum
from projections.table.types import ColumnType, is_required
from projections.table.view import TableView

HEADER: Final = '''\
"""{tag}: compiled by Headwater from the view's declaration. Do not edit."""

from projections.folding.runtime import *
'''
RECORDED: Final = {
    "value": "message.value()",
    "offset": "message.offset()",
    "timestamp_ms": "message.timestamp()[1]",
}
"""The names that expressions have for parts of a record: each is a call, which most views need not pay per event."""
GROWING: Final = frozenset({ColumnType.ENTRIES, ColumnType.COUNTS, ColumnType.SKETCH})


class OnlySpark(Exception):
    """Only Spark can read the events; the message says why."""


@dataclass(frozen=True)
class Program:
    """A compiled view; it can be pickled to other processes.

    functions: the name of the function of each event type. every: that of all other types, if the view handles any
    event. tables: the topics of the captured tables that it reads.
    """

    tag: str
    key_name: str
    source: str
    monoids: tuple[Monoid, ...]
    functions: Mapping[str, str]
    every: str | None
    tables: frozenset[str] = frozenset()

    @cached_property
    def fields(self) -> tuple[StateField, ...]:
        """The slots of a row."""
        return tuple(field for monoid in self.monoids for field in monoid.fields)

    @cached_property
    def lists(self) -> tuple[int, ...]:
        """The slots whose values grow with the events."""
        return tuple(at for at, field in enumerate(self.fields) if field.type in GROWING)

    def namespace(self, decoders: Mapping[str, Any]) -> dict[str, Any]:
        """The names that the source defines; decoders: the names that it may use of them."""
        found: dict[str, Any] = {**decoders} | {f"monoid_{at}": monoid for at, monoid in enumerate(self.monoids)}
        found["__name__"] = f"view {self.tag}"
        exec(compile(self.source, f"<view {self.tag}>", "exec", dont_inherit=True), found)  # noqa: S102 - our own source
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("fields", "lists")}


def compiled(view: TableView) -> Program:
    """The program of a view; raises OnlySpark."""
    try:
        return _compiled(view)
    except AttributeError as error:
        raise OnlySpark(f"one of its expressions has no Python source ({error})") from error


def combining(view: TableView) -> Program:
    """A program that reads no events, and combines rows only."""
    monoids = view.layout.monoids
    source = "\n\n".join([HEADER.format(tag=view.tag), _combine(monoids), _finish(monoids)])
    return Program(view.tag, view.key_name, source, monoids, {}, None)


def _compiled(view: TableView) -> Program:
    events = list(view.plan.events.values())
    names = {event.type: f"fold_{at}" for at, event in enumerate(events)}
    every = "fold_every" if view.plan.handles_every else None
    monoids = view.layout.monoids
    parts = [HEADER.format(tag=view.tag)]
    parts += [_function(names[event.type], view, event) for event in events]
    if every:
        parts.append(_function(every, view, EVERY))
    parts += [_combine(monoids), _finish(monoids)]
    return Program(view.tag, view.key_name, "\n\n".join(parts), monoids, names, every, frozenset(view.tables))


def _function(name: str, view: TableView, case: Case) -> str:
    event = event_of(case)
    lift = view.plan.lifts[case]
    lifted, condition, through = lift.brings, lift.condition, lift.through
    lists = _lists(view, lifted, event)
    values = {
        field.name: _value(lifted[field.name], event, field)
        for field in view.layout.fields
        if field.name in lifted and field.name not in lists
    }
    sums = {monoid.field.name for monoid in view.layout.monoids if isinstance(monoid, Sum)}
    constants = {name: text for name, text in values.items() if name in sums and isinstance(lifted[name], Value)}
    slots = {name: constants.get(name, f"v{at}") for at, name in enumerate(values)}
    key = lift.key.python(event)
    lines: list[str] = []
    if event is not None:
        lines += _checks(lift, event)
    read = {slots[name]: text for name, text in values.items() if name not in constants}
    for code in lists.values():
        read |= code.reads
    made = ", ".join([key, *read.values()])
    given = ", ".join(["key", *read])
    only = f" if {condition.python(event)}" if condition is not None else ""
    if through is None:
        lines.append("    index = 0")
        if condition is not None:
            lines.append(f"    if not {condition.python(event)}:\n        return")
        lines += [f"    key = {key}", *(f"    {slot} = {text}" for slot, text in read.items())]
        indent = INDENT
    else:
        items = f"{items_function(through, event)}(data.{attribute(through)})"
        lines.append(f"    made = [({made},) for index, item in enumerate({items}){only}]")
        lines.append(f"    for ({given},) in made:")
        indent = 2 * INDENT
    body = [
        "row = rows.get(key)",
        "if row is None:",
        f"    row = rows[key] = {_empty(view.layout.monoids)}",
        *_changes(view.layout.monoids, slots),
        *(line for code in lists.values() for line in code.changes),
    ]
    lines += [indent + line for line in body]
    return "\n".join([f"def {name}(head, data, message, partition, rows):", *_recorded(lines), *lines])


def _recorded(lines: Sequence[str]) -> list[str]:
    """The lines that read those parts of the record that `lines` name."""
    named = set(re.findall(r"\w+", "\n".join(lines)))
    return [f"    {name} = {call}" for name, call in RECORDED.items() if name in named]


def _lists(view: TableView, lifted: Mapping[str, Expression], event: type[Event] | None) -> dict[str, ListCode]:
    """The code for the lists that an event changes, by field."""
    found, at = {}, 0
    for number, monoid in enumerate(view.layout.monoids):
        name = monoid.fields[0].name
        code = list_code(monoid, number, f"row[{at}]", lifted[name], event, _changes) if name in lifted else None
        if code is not None:
            found[name] = code
        at += len(monoid.fields)
    return found


def _checks(lift: Lift, event: type[Event]) -> list[str]:
    """The lines that refuse an event without a field that this view needs, if decoders accept it."""
    lines = []
    for name in lift.required:
        if not isinstance(name, str):
            continue
        field = f"data.{attribute(name)}"
        if is_raw(lift, event, name):
            lines.append(f"    if is_null({field}):\n        raise Unclear({name!r})")
        elif not is_required(event, name):
            lines.append(f"    if {field} is None:\n        raise Unclear({name!r})")
    return lines


def _value(read: Expression, event: type[Event] | None, field: StateField) -> str:
    text = read.python(event)
    return f"as_float({text})" if field.type is ColumnType.FLOAT and read.kind(event) is ColumnType.INTEGER else text


def _empty(monoids: Sequence[Monoid]) -> str:
    """A row that no event changed."""
    slots = ["0" if isinstance(monoid, Sum) else "None" for monoid in monoids for _ in monoid.fields]
    return f"[{', '.join(slots)}]"


def _changes(monoids: Sequence[Monoid], slots: Mapping[str, str], row: str = "row") -> list[str]:
    """The lines that combine the values of one event, in the variables `slots`, into `row`."""
    lines: list[str] = []
    at = 0
    for number, monoid in enumerate(monoids):
        places = {field.name: f"{row}[{at + more}]" for more, field in enumerate(monoid.fields)}
        brought = {name: slots[name] for name in places if name in slots}
        match monoid:
            case Pick() | Sum() | Extreme():
                lines += _scalar(monoid, places, brought) if brought else []
            case Entries() if brought:
                ((name, value),) = brought.items()
                lines += [
                    f"if {value}:",
                    f"    if {places[name]} is None:",
                    f"        {places[name]} = Gathered(monoid_{number})",
                    f"    {places[name]}.add({value})",
                ]
            case Entries():
                pass
            case _:
                first = f"row[{at}]"
                patch = ", ".join(f"{name!r}: {value}" for name, value in brought.items())
                lines += [
                    f"if {first} is None:",
                    f"    {first} = {{}}",
                    f"monoid_{number}.combine({first}, {{{patch}}})",
                ]
        at += len(monoid.fields)
    return lines


def _scalar(monoid: Pick | Sum | Extreme, places: Mapping[str, str], brought: Mapping[str, str]) -> list[str]:
    match monoid:
        case Sum():
            ((name, value),) = brought.items()
            return [f"{places[name]} += {value}" if value.isdecimal() else f"{places[name]} += {value} or 0"]
        case Extreme():
            ((name, value),) = brought.items()
            sign = ">" if monoid.highest else "<"
            return [
                f"if {value} is not None and ({places[name]} is None or {value} {sign} {places[name]}):",
                f"    {places[name]} = {value}",
            ]
        case Pick():
            order = [each.name for each in monoid.order]
            if order[0] not in brought:
                return []
            theirs = [brought.get(name, "None") for name in order]
            ours = [places[name] for name in order]
            sign = ">" if monoid.highest else "<"
            wins = f"{theirs[0]} {sign}= {ours[0]}"
            if len(order) > 1:
                later = f"({', '.join(theirs[1:])},) {sign}= ({', '.join(ours[1:])},)"
                wins = f"{theirs[0]} {sign} {ours[0]} or ({theirs[0]} == {ours[0]} and {later})"
            return [
                f"if {theirs[0]} is not None and ({ours[0]} is None or {wins}):",
                *(f"    {places[field.name]} = {brought.get(field.name, 'None')}" for field in monoid.fields),
            ]


def _combine(monoids: Sequence[Monoid]) -> str:
    """`combine(row, theirs)`: combines a finished row into another."""
    lines = ["def combine(row, theirs):"]
    at = 0
    for number, monoid in enumerate(monoids):
        places = {field.name: f"row[{at + more}]" for more, field in enumerate(monoid.fields)}
        brought = {field.name: f"theirs[{at + more}]" for more, field in enumerate(monoid.fields)}
        match monoid:
            case Pick() | Sum() | Extreme():
                lines += _scalar(monoid, places, brought)
            case Entries():
                name = monoid.field.name
                lines += [
                    f"if theirs[{at}] is not None:",
                    f"    row[{at}] = combined(monoid_{number}, {name!r}, row[{at}], theirs[{at}])",
                ]
            case _:
                ours, others = (_as_dict(source) for source in (places, brought))
                lines += [
                    f"held = {ours}",
                    f"monoid_{number}.combine(held, {others})",
                    *(f"{place} = held.get({name!r})" for name, place in places.items()),
                ]
        at += len(monoid.fields)
    return f"\n{INDENT}".join([*lines, "return row"])


def _finish(monoids: Sequence[Monoid]) -> str:
    """`finish(row)`: a row with nothing that waits, each slot in the form of rows."""
    lines = ["def finish(row):"]
    at = 0
    for monoid in monoids:
        match monoid:
            case Pick() | Sum() | Extreme():
                pass
            case Entries():
                lines += [f"if row[{at}] is not None:", f"    row[{at}] = row[{at}].state()"]
            case _:
                slots = ", ".join(f"row[{at + more}]" for more in range(len(monoid.fields)))
                values = ", ".join(f"held.get({field.name!r})" for field in monoid.fields)
                lines += [f"held = row[{at}] or {{}}", f"{slots}{',' if len(monoid.fields) == 1 else ''} = ({values},)"]
        at += len(monoid.fields)
    return f"\n{INDENT}".join([*lines, "return row"])


def _as_dict(places: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{name!r}: {place}" for name, place in places.items()) + "}"
