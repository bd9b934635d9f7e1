"""Which columns of a table view have JSON texts, and of which fields of its events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pydantic import BaseModel

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.field_kinds import JsonValues, json_values
from headwater.projections.table.expressions import Expression, Field, FromEnvelope, Null, When
from headwater.projections.table.folds.arranging import Arrangement
from headwater.projections.table.folds.fold import event_of
from headwater.projections.table.items import Entries, Item
from headwater.projections.table.json_forms import ANYTHING, NO_TEXT, JsonForm, JsonForms
from headwater.projections.table.rows import is_row
from headwater.projections.table.shown import SINGLE, Itself, Values
from headwater.projections.table.types import ColumnType, item_model


def json_forms(arrangement: Arrangement) -> JsonForms:
    """The columns with JSON texts of rows that are arranged in this way."""
    layout = arrangement.layout
    found: dict[str, JsonForm | Mapping[str, JsonForm]] = {}
    for name, shown in layout.shown.items():
        match shown:
            case Itself(field=field) if layout.types[name] is ColumnType.JSON:
                found[name] = _form(_reads(arrangement, field))
            case Values(field=field, names=names):
                entry = next(each.entry for each in layout.fields if each.name == field)
                kinds = {each.name: each.type for each in entry}
                json = [each for each in names or (SINGLE,) if kinds[each] is ColumnType.JSON]
                if json:
                    found[name] = {each: _form(_reads_of_entries(arrangement, field, each)) for each in json}
    return found


Reads = Iterator[tuple[type[Event] | None, Expression]]


def _reads(arrangement: Arrangement, field: str) -> Reads:
    """What is read into a state field, with the events."""
    for stored in arrangement.stored:
        for case, lifted in stored.lifted.items():
            if field in lifted:
                yield event_of(case), lifted[field]


def _reads_of_entries(arrangement: Arrangement, field: str, name: str) -> Reads:
    """What is read into a field of the entries of a list."""
    for event, read in _reads(arrangement, field):
        if isinstance(read, Entries):
            yield from ((event, part[name]) for part in read.parts if name in part)


def _form(reads: Reads) -> JsonForm:
    forms = dict.fromkeys(each for event, read in reads for each in _forms(event, read))
    values = {each.values for each in forms}
    fields = tuple(field for each in forms for field in each.fields) if all(each.fields for each in forms) else ()
    return JsonForm(values.pop() if len(values) == 1 else JsonValues.EITHER, fields)


def _forms(event: type[Event] | None, read: Expression) -> Iterable[JsonForm]:
    """The forms of what an expression reads of an event."""
    match read:
        case Null():
            return ()
        case When(then=then, otherwise=otherwise):
            return (*_forms(event, then), *_forms(event, otherwise))
        case FromEnvelope(name="record"):
            return (NO_TEXT,)
        case Field(name=name) if event is not None and not is_row(event):
            return (_form_of(event, event, name),)
        case Item(list=name, name=field) if event is not None and not is_row(event):
            return (_form_of(event, item_model(event, name), field),)
    return (ANYTHING,)  # of captured rows, a document may be anything


def _form_of(event: type[Event], model: type[BaseModel], name: str) -> JsonForm:
    """Of an earlier version of the event, a value may be another one than the field has now."""
    return JsonForm(json_values(model, name), ((model, name),) if event.version == 1 else ())
