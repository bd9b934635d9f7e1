"""What the JSON texts in rows stand for, and rows with JSON in place of them.

A row has a value that is a text without quotes, so a text alone does not always tell: `5` may be a number or a text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import orjson
from pydantic import BaseModel

from headwater.commands.declaring.field_kinds import JsonValues
from headwater.eventlog.personal.sealed_text import is_sealed
from headwater.projections.table.json_text import loads
from headwater.projections.table.shown import SINGLE

MAX_LEVELS: Final = 254
"""Of a value that answers have as JSON: readers, such as Python's, do not take any number."""

_CHECKED: Final = msgspec.json.Decoder(msgspec.Raw)
"""It checks a JSON text without making its values, which would take longer than all else."""

_TEXTS, _EITHER = JsonValues.TEXTS, JsonValues.EITHER
"""Read here once: a member of an enumeration takes as long to read as a short text to check."""

FieldOf = tuple[type[BaseModel], str]
"""A field, by its model and its name in JSON."""


@dataclass(frozen=True, slots=True)
class JsonForm:
    """The values of a column of JSON; fields: those whose values it has, none if they are not known."""

    values: JsonValues
    fields: tuple[FieldOf, ...] = ()

    def is_json(self, text: str) -> bool:
        """Whether a text in a row is the JSON text of a value; otherwise it is the value."""
        values = self.values
        if values is _TEXTS or (values is _EITHER and text[:1] not in ("{", "[")):
            return False
        try:
            if len(text) > 2 * MAX_LEVELS and text.count("[") + text.count("{") > MAX_LEVELS:
                orjson.dumps(orjson.loads(text))  # which refuses more levels
            else:
                _CHECKED.decode(text)
        except (ValueError, orjson.JSONEncodeError):  # such as a text in an older version of an event
            return False
        return True


JsonForms = Mapping[str, JsonForm | Mapping[str, JsonForm]]
"""The columns of a row with JSON texts; of a list, by the name in its entries, which is SINGLE if they have none."""

ANYTHING: Final = JsonForm(JsonValues.EITHER)
NO_TEXT: Final = JsonForm(JsonValues.OTHERS)
Made = Callable[[str], Any]
"""Makes what an answer has of a JSON text."""


def with_json(
    rows: Iterable[Mapping[str, Any]],
    forms: JsonForms,
    made: Made = orjson.Fragment,
    *,
    stored: Sequence[Mapping[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """Rows with JSON in place of their JSON texts: as they are written, for orjson, which loses no digits.

    made: makes something else of these texts, such as `json_value`.
    stored: the rows before their sealed values were opened: what a sealed text holds is a value, and no JSON text.
    """
    changed = [dict(row) for row in rows]
    for name, form in forms.items():
        if isinstance(form, JsonForm):
            is_json = form.is_json
            for number, row in enumerate(changed):
                value = row.get(name)
                if type(value) is str and is_json(value) and not _is_opened(stored, number, name):
                    row[name] = made(value)
        else:
            for row in changed:
                if isinstance(value := row.get(name), list):
                    row[name] = _entries(value, form, made)
    return changed


def _is_opened(stored: Sequence[Mapping[str, Any]] | None, number: int, name: str) -> bool:
    return stored is not None and is_sealed(stored[number].get(name))


def json_value(text: str) -> Any:
    """The value of a JSON text in Python; integers are exact."""
    return loads(text.encode())


def _entries(entries: list[Any], forms: Mapping[str, JsonForm], made: Made) -> list[Any]:
    if SINGLE in forms:
        return [made(each) if isinstance(each, str) and forms[SINGLE].is_json(each) else each for each in entries]
    return with_json(entries, forms, made)
