"""What the JSON texts in rows stand for, and rows with JSON in place of them.

A row has a value that is a text without quotes, so a text alone does not always tell: `5` may be a number or a text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import orjson
from pydantic import BaseModel

from commands.declaring.field_kinds import JsonValues
from eventlog.personal.sealed_text import is_sealed
from projections.table.json_text import loads
from projections.table.shown import SINGLE

MAX_LEVELS: Final = 254
"""Of a value that answers have as JSON: readers, such as Python's, do not take any number."""

_CHECKED: Final = msgspec.json.Decoder(msgspec.Raw)
"""It checks a JSON text without making its values, which would take longer than all else."""

FieldOf = tuple[type[BaseModel], str]
"""A field, by its model and its name in JSON."""


@dataclass(frozen=True, slots=True)
class JsonForm:
    """The values of a column of JSON; fields: those whose values it has, none if they are not known."""

    values: JsonValues
    fields: tuple[FieldOf, ...] = ()

    def is_json(self, text: str) -> bool:
        """Whether a text in a row is the JSON text of a value; otherwise it is the value."""
        if self.values is JsonValues.TEXTS or (self.values is JsonValues.EITHER and text[:1] not in ("{", "[")):
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
    row: Mapping[str, Any], forms: JsonForms, made: Made = orjson.Fragment, *, stored: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The row with JSON in place of its JSON texts: as they are written, for orjson, which loses no digits.

    made: makes something else of these texts, such as `json_value`.
    stored: the row before its sealed values were opened: what a sealed text holds is a value, and no JSON text.
    """
    changed = dict(row)
    for name, form in forms.items():
        value = row.get(name)
        if isinstance(form, JsonForm):
            is_opened = stored is not None and stored is not row and is_sealed(stored.get(name))
            if isinstance(value, str) and not is_opened and form.is_json(value):
                changed[name] = made(value)
        elif isinstance(value, list):
            changed[name] = [_entry(each, form, made) for each in value]
    return changed


def json_value(text: str) -> Any:
    """The value of a JSON text in Python; integers are exact."""
    return loads(text.encode())


def _entry(entry: Any, forms: Mapping[str, JsonForm], made: Made) -> Any:
    if isinstance(entry, str):
        return made(entry) if SINGLE in forms and forms[SINGLE].is_json(entry) else entry
    return with_json(entry, forms, made) if isinstance(entry, dict) else entry
