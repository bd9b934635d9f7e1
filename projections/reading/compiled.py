"""A view as Python source: what it reads of an event, as a change of rows or as patches.

There are two functions per event: `fold_<n>(head, data, message, partition, rows)` changes rows, without a dict, and
`lift_<n>(head, data, message, partition, patches)` adds the patches that the live query makes of the event, as
`(message, key, number, fields)`. Both read everything first, so an event that they cannot read changes nothing. `head`
is the envelope, `data` the event's fields (see `decoders`), `message` the record, and `item` and `index` are those of
`each`. A row is a list with a slot per state field.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import count
from typing import Final, NamedTuple

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.field_kinds import is_required
from headwater.projections.reading.lists import INDENT, ListCode, list_code
from headwater.projections.reading.program import OF_EVERY, Program, is_raw
from headwater.projections.reading.runtime import scaled_from
from headwater.projections.table.computations import Arithmetic
from headwater.projections.table.expressions import Expression, Field, Value, attribute
from headwater.projections.table.fold_plan import Lift, RowLift
from headwater.projections.table.folds.fold import EVERY, Case, event_of
from headwater.projections.table.items import Item, items_python
from headwater.projections.table.monoids import Entries, Extreme, Monoid, Pick, StateField, Sum, in_bulk
from headwater.projections.table.types import ColumnType
from headwater.projections.table.view import TableView

HEADER: Final = '''\
"""{tag}: compiled by Headwater from the view's declaration. Do not edit."""

from headwater.projections.reading.runtime import *
'''
RECORDED: Final = {
    "value": "message.value()",
    "offset": "message.offset()",
    "timestamp_ms": "message.timestamp()[1]",
}
"""The names that expressions have for parts of a record: each is a call, which most views need not pay per event."""
_OF_EVENT: Final = re.compile(r"\b(?:decimal_[0-9]+|scaled_[0-9]+_[0-9]+)_[0-9]+\(data\.\w+\)")
_DECIMAL: Final = re.compile(r"\bdecimal_([0-9]+)_([0-9]+)\(")
_SCALED: Final = re.compile(r"\bscaled_([0-9]+)_([0-9]+)_([0-9]+)\(")
_SCALED_AS_THEY_ARE: Final = {"+": "scaled_sum", "-": "scaled_difference"}
"""By operator that may be applied to scaled values, the function that does."""


def compiled(view: TableView) -> Program:
    """The program of a view."""
    plan, monoids = view.plan, view.layout.monoids
    events = list(plan.events.values())
    cases: list[tuple[str, Case]] = [(str(number), event) for number, event in enumerate(events)]
    if plan.handles_every:
        cases.append((OF_EVERY, EVERY))
    folding = [_folding(number, view, case) for number, case in cases]
    return Program(
        tag=view.tag,
        key_name=view.key_name,
        folding=_source(view.tag, [*folding, _combine(monoids), _finish(monoids)]),
        lifting=_source(view.tag, [_lifting(number, view, case) for number, case in cases]),
        monoids=tuple(map(in_bulk, monoids)),
        events={name: number for number, event in zip(count(), events) for name in event.history.types},
        handles_every=plan.handles_every,
        required={name: plan.lifts[event].required for event in events for name in event.history.types},
        tables=frozenset(view.tables),
        retraction=view.layout.retraction,
    )


def _source(tag: str, functions: Sequence[str]) -> str:
    source = "\n".join(functions)
    decimals = "\n".join(  # the lines that define what reads decimals, of each number of digits that the source names
        f"{word}_{'_'.join(numbers)} = {maker}({', '.join(numbers)})"
        for word, pattern, maker in (("decimal", _DECIMAL, "decimals_of"), ("scaled", _SCALED, "scaled_decimals_of"))
        for numbers in sorted(set(pattern.findall(source)))
    )
    return "\n\n".join([HEADER.format(tag=tag), decimals, *functions])


def _folding(number: str, view: TableView, case: Case) -> str:
    """`fold_<n>` of an event type: it reads everything, and then changes a row, or one per item."""
    event, lift = event_of(case), view.plan.lifts[case]
    read = [(row, _reading(view, row, event)) for row in lift.rows]
    if lift.through is not None:
        row, reading = read[0]
        only = "" if row.condition is None else f" if {row.condition.python(event)}"
        items = items_python(lift.through, event)
        lines = [
            f"    made = [{_made(row, reading, event)} for index, item in enumerate({items}){only}]",
            f"    for ({', '.join(['key', *reading.variables])},) in made:",
            *(2 * INDENT + line for line in reading.changes),
        ]
    elif len(read) == 1:
        row, reading = read[0]
        refused = [] if row.condition is None else [f"if not {row.condition.python(event)}:", "    return"]
        assigned = [f"{name} = {text}" for name, text in reading.variables.items()]
        body = ["index = 0", *refused, f"key = {row.key.python(event)}", *assigned, *reading.changes]
        lines = [INDENT + line for line in body]
    else:
        lines = _several_rows(read, event)
    return _function(f"fold_{number}", "rows", lift, lines)


def _lifting(number: str, view: TableView, case: Case) -> str:
    """`lift_<n>` of an event type."""
    event, lift = event_of(case), view.plan.lifts[case]
    types = {field.name: field for field in view.layout.fields}
    code_lines = []
    for at, row in enumerate(lift.rows):
        fields = ", ".join(f"{name!r}: {_in_rows(read, event, types[name])}" for name, read in row.brings.items())
        of_each = "index" if lift.through is not None else str(at)
        code_lines.append(f"(message, {row.key.python(event)}, {of_each}, {{{fields}}})")
    only = ["" if row.condition is None else f" if {row.condition.python(event)}" for row in lift.rows]
    if lift.through is not None:
        items = items_python(lift.through, event)
        lines = [f"    patches += [{code_lines[0]} for index, item in enumerate({items}){only[0]}]"]
    else:
        listed = (
            f"*([{text}]{check} else [])" if check else text for text, check in zip(code_lines, only, strict=True)
        )
        lines = ["    index = 0", f"    patches += [{', '.join(listed)}]"]
    return _function(f"lift_{number}", "patches", lift, lines)


def _function(name: str, changed: str, lift: Lift, lines: Sequence[str]) -> str:
    """A function that first refuses an event without a field that this view needs, if decoders accept it.

    A decimal of the event that the lines read several times is read once, before them.
    """
    checks, event = list[str](), lift.event
    if event is not None:
        for field in (field for field in lift.required if isinstance(field, str)):
            if is_raw(lift, event, field):
                checks.append(f"    if is_null(data.{attribute(field)}):\n        raise Unclear({field!r})")
            elif not is_required(event, field):
                checks.append(f"    if data.{attribute(field)} is None:\n        raise Unclear({field!r})")
    times = Counter(_OF_EVENT.findall("\n".join(lines)))
    several = {text: f"decimal_{at}" for at, text in enumerate(text for text, number in times.items() if number > 1)}
    decimals = [f"{INDENT}{variable} = {text}" for text, variable in several.items()]
    lines = [_OF_EVENT.sub(lambda read: several.get(read[0], read[0]), line) for line in lines]
    body = [*checks, *decimals, *lines]
    words = set(re.findall(r"\w+", "\n".join(body)))
    recorded = [f"    {part} = {call}" for part, call in RECORDED.items() if part in words]
    return "\n".join([f"def {name}(head, data, message, partition, {changed}):", *recorded, *body])


class _Reading(NamedTuple):
    """What is read of an event, and what then changes.

    variables: by name, the source of what is read.
    changes: the lines that change the row of `key`.
    """

    variables: Mapping[str, str]
    changes: Sequence[str]


def _reading(view: TableView, lift: RowLift, event: type[Event] | None) -> _Reading:
    monoids, brought = view.layout.monoids, lift.brings
    lists = _lists(view, brought, event)
    texts = {
        field.name: _value(brought[field.name], event, field, monoid)
        for monoid in monoids
        for field in monoid.fields
        if field.name in brought and field.name not in lists
    }
    sums = {monoid.field.name for monoid in monoids if isinstance(monoid, Sum)}
    constants = {name for name in texts if name in sums and isinstance(brought[name], Value)}
    variables = {name: text if name in constants else f"v{at}" for at, (name, text) in enumerate(texts.items())}
    read = {variables[name]: text for name, text in texts.items() if name not in constants}
    for code in lists.values():
        read |= code.reads
    slots = ["0" if isinstance(monoid, Sum) else "None" for monoid in monoids for _ in monoid.fields]
    changes = [
        "row = rows.get(key)",
        "if row is None:",
        f"    row = rows[key] = [{', '.join(slots)}]",
        *_changes(monoids, variables),
        *(line for code in lists.values() for line in code.changes),
    ]
    return _Reading(read, changes)


def _several_rows(read: Sequence[tuple[RowLift, _Reading]], event: type[Event] | None) -> list[str]:
    """All is read before any row changes: they may be one row."""
    reads, changes = ["index = 0"], list[str]()
    for number, (lift, reading) in enumerate(read):
        patches_text = _made(lift, reading, event)
        only = "" if lift.condition is None else f" if {lift.condition.python(event)} else None"
        reads.append(f"made_{number} = {patches_text}{only}")
        changes += [
            f"if made_{number} is not None:",
            f"    ({', '.join(['key', *reading.variables])},) = made_{number}",
            *(INDENT + line for line in reading.changes),
        ]
    return [INDENT + line for line in (*reads, *changes)]


def _made(lift: RowLift, reading: _Reading, event: type[Event] | None) -> str:
    """The source of what one row takes: its key, and the values of the variables."""
    return f"({', '.join([lift.key.python(event), *reading.variables.values()])},)"


def _lists(view: TableView, brought: Mapping[str, Expression], event: type[Event] | None) -> dict[str, ListCode]:
    """The code for the lists that an event changes, by field."""
    lists = {}
    for number, monoid, slots in slots_of(view.layout.monoids):
        name, slot = next(iter(slots.items()))
        code = list_code(monoid, number, f"row[{slot}]", brought[name], event, _changes) if name in brought else None
        if code is not None:
            lists[name] = code
    return lists


def _value(read: Expression, event: type[Event] | None, field: StateField, monoid: Monoid) -> str:
    """The source of what an event brings for a field: a decimal that is compared is a Decimal, and of a sum scaled."""
    match monoid:
        case Sum() if field.type.is_decimal:
            return _scaled(read, event, read.python(event), field.type.places)
        case Extreme() if field.type.is_decimal:
            return read.python(event)
        case _:
            return _in_rows(read, event, field)


def _in_rows(read: Expression, event: type[Event] | None, field: StateField) -> str:
    """The source of what an event brings for a field, in the form of rows."""
    text = read.python(event)
    if field.type.is_decimal:
        return f"decimal_in_rows({text}, {field.type.places})"
    is_widened = field.type is ColumnType.FLOAT and read.kind(event) is ColumnType.INTEGER
    return f"as_float({text})" if is_widened else text


def _scaled(read: Expression, event: type[Event] | None, text: str, places: int) -> str:
    """The source of 10^places times a value, which is an integer."""
    if isinstance(read, Value) and isinstance(read.value, int | Decimal):
        return str(scaled_from(read.value, places))
    if isinstance(read, Field | Item) and (kind := read.kind(event)).is_decimal:
        return text.replace(f"decimal_{kind.digits}_{kind.places}(", f"scaled_{kind.digits}_{kind.places}_{places}(", 1)
    if isinstance(read, Arithmetic) and read.operator in _SCALED_AS_THEY_ARE and read.kind(event).is_decimal:
        sides = (_scaled(side, event, side.python(event), places) for side in (read.left, read.right))
        return f"{_SCALED_AS_THEY_ARE[read.operator]}({', '.join(sides)})"
    return f"scaled_or_none({text}, {places})"


def slots_of(monoids: Sequence[Monoid]) -> Iterator[tuple[int, Monoid, Mapping[str, int]]]:
    """Each monoid with its number, and by field the slot in a row."""
    free = count()
    for number, monoid in enumerate(monoids):
        yield number, monoid, {field.name: next(free) for field in monoid.fields}


def _changes(monoids: Sequence[Monoid], variables: Mapping[str, str], row: str = "row") -> list[str]:
    """The lines that combine the values of one event, in `variables` by field, into `row`."""
    lines: list[str] = []
    for number, monoid, slots in slots_of(monoids):
        places = {name: f"{row}[{slot}]" for name, slot in slots.items()}
        brought = {name: variables[name] for name in places if name in variables}
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
                first = next(iter(places.values()))
                patch = ", ".join(f"{name!r}: {value}" for name, value in brought.items())
                lines += [
                    f"if {first} is None:",
                    f"    {first} = {{}}",
                    f"monoid_{number}.combine({first}, {{{patch}}})",
                ]
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
            order = [name.name for name in monoid.order]
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
    for number, monoid, slots in slots_of(monoids):
        places = {name: f"row[{slot}]" for name, slot in slots.items()}
        brought = {name: f"theirs[{slot}]" for name, slot in slots.items()}
        match monoid:
            case Sum(field=field) if field.type.is_decimal:
                ours, theirs = places[field.name], brought[field.name]
                lines.append(f"{ours} = sum_of_texts({ours}, {theirs}, {field.type.places})")
            case Extreme(field=field) if field.type.is_decimal:
                ours, theirs = places[field.name], brought[field.name]
                lines.append(f"{ours} = extreme_of_texts({ours}, {theirs}, {monoid.highest})")
            case Pick() | Sum() | Extreme():
                lines += _scalar(monoid, places, brought)
            case Entries():
                ((name, ours),), (theirs,) = places.items(), brought.values()
                lines += [
                    f"if {theirs} is not None:",
                    f"    {ours} = combined(monoid_{number}, {name!r}, {ours}, {theirs})",
                ]
            case _:
                ours, others = (
                    "{" + ", ".join(f"{name!r}: {slot}" for name, slot in row.items()) + "}"
                    for row in (places, brought)
                )
                lines += [
                    f"held = {ours}",
                    f"monoid_{number}.combine(held, {others})",
                    *(f"{place} = held.get({name!r})" for name, place in places.items()),
                ]
    return f"\n{INDENT}".join([*lines, "return row"])


def _finish(monoids: Sequence[Monoid]) -> str:
    """`finish(row)`: a row with nothing that waits, each slot in the form of rows."""
    lines = ["def finish(row):"]
    for _, monoid, slots in slots_of(monoids):
        places = [f"row[{slot}]" for slot in slots.values()]
        match monoid:
            case Sum() if monoid.field.type.is_decimal:
                lines.append(f"{places[0]} = decimal_of_scaled({places[0]}, {monoid.field.type.places})")
            case Extreme() if monoid.field.type.is_decimal:
                lines.append(f"{places[0]} = decimal_in_rows({places[0]}, {monoid.field.type.places})")
            case Pick() | Sum() | Extreme():
                pass
            case Entries():
                lines += [f"if {places[0]} is not None:", f"    {places[0]} = {places[0]}.state()"]
            case _:
                targets = ", ".join(places) + ("," if len(places) == 1 else "")
                values = ", ".join(f"held.get({name!r})" for name in slots)
                lines += [f"held = {places[0]} or {{}}", f"{targets} = ({values},)"]
    return f"\n{INDENT}".join([*lines, "return row"])
