"""The text of a JSON value in a row, in one form whichever engine read the event, and rows with JSON in place of texts.

Spark writes 12345678.9 as `1.23456789E7`, and Python does not. So what Spark wrote is written again in Python, when a
patch is decoded. All integers are exact; a number with a point or an exponent is a double.

A row has a value that is a text without quotes, so a text alone does not always tell: `5` may be a number or a text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import msgspec
import orjson
from pydantic import BaseModel

from headwater.commands.declaring.field_kinds import JsonValues
from headwater.eventlog.personal.sealed_text import is_sealed

JsonTexts = Mapping[str, tuple[str, ...]]
"""The state fields whose values are such texts; for a list of entries, the names of those fields of an entry."""

SINGLE: Final = "_value"
"""Field of an entry that has one value without a name."""
LONG_INTEGER: Final = re.compile(rb"[0-9]{19}")
"""What may be an integer of more than 64 bits, which orjson reads as a double."""
SPARK_NUMBER: Final = re.compile(r"-?[0-9]\.[0-9]+E-?[0-9]{1,3}")
"""A double in a form that Spark writes, and Python never."""

MAX_LEVELS: Final = 254
"""Of a value that answers have as JSON: readers, such as Python's, do not take any number."""
_CHECKED: Final = msgspec.json.Decoder(msgspec.Raw)
"""It checks a JSON text without making its values, which would take longer than all else."""


def loads(text: bytes) -> Any:
    """The value of a JSON text. Raises ValueError if it is none, or has too many levels."""
    if not LONG_INTEGER.search(text):
        return orjson.loads(text)
    try:
        return msgspec.json.decode(text)
    except RecursionError as error:
        raise ValueError("too many levels") from error


def first_document(text: str) -> Any:
    """The first JSON document in a text, as Spark reads it; None if there is none.

    Unlike this, orjson refuses what follows it, and halves of surrogate pairs.
    """
    try:
        return loads(text.encode())
    except ValueError:
        pass

    def refuse(constant: str) -> Any:
        raise ValueError(constant)

    try:
        document, _ = json.JSONDecoder(parse_constant=refuse).raw_decode(text.lstrip())
        return loads(json.dumps(document, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError):
        return None


def dumps(value: Any) -> str:
    """The text of a value in JSON types. Raises ValueError if it has too many levels, which are hundreds."""
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:  # rare: integers of more than 64 bits, or more than 254 levels
        pass
    try:
        try:
            return orjson.dumps(
                _replaced(value, lambda value: orjson.Fragment(str(value)) if type(value) is int else value)
            ).decode()
        except orjson.JSONEncodeError:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError as error:
        raise ValueError("too many levels") from error


def canonical_text(text: str) -> str:
    """The text of a JSON value as rows have it. A value that is a text is as it is, and so is what is no JSON.

    A text that looks like a list, an object, or a number as Spark writes it is taken for one, since a JSON column does
    not tell the text "[1]" from the list.
    """
    if text[:1] in ("{", "["):
        try:
            return dumps(loads(text.encode()))
        except ValueError:
            return text
    return dumps(float(text)) if SPARK_NUMBER.fullmatch(text) else text


def as_text(value: Any) -> str:
    """A value that is no text, in a field that is declared as text: as the live query's parser writes it.

    Its key may be made of that, and the key decides which partition of `patches` has the row. So Python follows Spark
    here: a double has an exponent below 10^-3 and from 10^7 on. Raises ValueError if it has too many levels.
    """
    match value:
        case str():
            return value
        case float():
            return _java_text(value)
        case dict() | list():
            try:
                return dumps(
                    _replaced(
                        value, lambda value: orjson.Fragment(_java_text(value)) if isinstance(value, float) else value
                    )
                )
            except RecursionError as error:
                raise ValueError("too many levels") from error
        case _:
            return dumps(value)


def make_canonical(fields: dict[str, Any], texts: JsonTexts) -> None:
    """Write the JSON texts among the values of a patch or a row in the form of rows, in place."""
    for name, of_entries in texts.items():
        value = fields.get(name)
        if isinstance(value, str):
            fields[name] = canonical_text(value)
        elif isinstance(value, list):
            for entry in value:
                for text_field in of_entries:
                    if isinstance(entry.get(text_field), str):
                        entry[text_field] = canonical_text(entry[text_field])


def _java_text(number: float) -> str:
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    two_digits = f"{number:.1e}"  # Java writes two at least: 4.9E-324
    exact = two_digits if float(two_digits) == number else f"{Decimal(repr(number)).normalize():e}"
    digits, _, exponent = exact.partition("e")
    return f"{digits}E{int(exponent)}"


def _replaced(value: Any, replace: Callable[[Any], Any]) -> Any:
    """A JSON value with each of its scalars replaced."""
    match value:
        case dict():
            return {name: _replaced(item, replace) for name, item in value.items()}
        case list():
            return [_replaced(item, replace) for item in value]
        case _:
            return replace(value)


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
    stored: the rows before their encrypted values were opened: what a ciphertext holds is a value, and no JSON text.
    """
    changed = [dict(row) for row in rows]
    for name, form in forms.items():
        if isinstance(form, JsonForm):
            is_json = form.is_json
            for number, row in enumerate(changed):
                value = row.get(name)
                is_opened = stored is not None and is_sealed(stored[number].get(name))
                if type(value) is str and not is_opened and is_json(value):
                    row[name] = made(value)
        else:
            for row in changed:
                if not isinstance(entries := row.get(name), list):
                    continue
                if SINGLE in form:
                    own = form[SINGLE]
                    row[name] = [
                        made(entry) if isinstance(entry, str) and own.is_json(entry) else entry for entry in entries
                    ]
                else:
                    row[name] = with_json(entries, form, made)
    return changed


def json_value(text: str) -> Any:
    """The value of a JSON text in Python; integers are exact."""
    return loads(text.encode())
