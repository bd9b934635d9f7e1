"""Rows as PostgreSQL reads them from JSON: a list of objects in the form of `ddl.upsert`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import isfinite
from typing import Any

import orjson

from headwater.projections.stores.clear_columns import KEYS, ClearColumns
from headwater.projections.stores.names import NUL, REPLACEMENT
from headwater.projections.stores.postgres.ddl import clear_name
from headwater.projections.stores.store import Target
from headwater.projections.table.decimals import decimal_text, exact_decimal
from headwater.projections.table.monoids import State, StateField
from headwater.projections.table.types import ColumnType


class HasNul(Exception):
    """A key or text contains NUL, which PostgreSQL's text cannot: it is stored as U+FFFD, in bulk and live."""


def rows_json(target: Target, states: Mapping[str, State], clear: ClearColumns) -> str:
    """Whole rows, by key. Raises KeysAway, and HasNul if a state has NUL, with which it must not be combined."""
    view = target.view
    forms = {field.name: form for field in view.layout.fields if (form := _form(field)) is not None}
    listed = []
    for key, state in states.items():
        changed = {name: form(state[name]) for name, form in forms.items() if state.get(name) is not None}
        derived = {name: shown.value(state) for name, shown in view.layout.derived.items()}
        listed.append({view.key_name: key, **state, **changed, **derived})
    if clear:
        for row, (values, key_ids) in zip(listed, clear.of_states(list(states.values())), strict=True):
            row.update({clear_name(name): value for name, value in values.items()})
            row[KEYS] = key_ids
    text = orjson.dumps(listed).decode()
    if "\\u0000" in text:  # rare, and slow to look for in every value
        if any(without_nul(state) != state for state in states.values()):
            raise HasNul
        text = orjson.dumps(without_nul(listed)).decode()  # of a value that was opened
    return text


def _form(field: StateField) -> Callable[[Any], Any] | None:
    """How a value of this field is written, if not as in JSON."""
    if field.entry:
        return partial(json_text, kind=field.type)
    match field.type:
        case ColumnType.TEXT | ColumnType.JSON | ColumnType.DATE | ColumnType.UUID:
            return _text
        case _ if field.type.is_decimal:
            return partial(_decimal, kind=field.type)  # PostgreSQL would round one with too many places
        case ColumnType.POINT:
            return lambda place: f"({place['lon']},{place['lat']})"
        case ColumnType.FLOAT:
            return lambda number: number if isfinite(number) else str(number)  # a sum may exceed the numbers of JSON
        case _:
            return None


def _decimal(value: Any, kind: ColumnType) -> str:
    found = exact_decimal(value, kind.digits, kind.places) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{value!r} is not a {kind.value}")
    return decimal_text(found, kind.places)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def json_text(held: Any, kind: ColumnType) -> str | None:
    """A state field with entries in the form of its column: a sketch is already text, others are JSON."""
    if held is None or kind is ColumnType.SKETCH:
        return held  # type: ignore[no-any-return]
    text = orjson.dumps(held).decode()
    return orjson.dumps(without_nul(held)).decode() if "\\u0000" in text else text


def without_nul(value: Any) -> Any:
    """`value` with every NUL in its texts replaced."""
    match value:
        case str():
            return value.replace(NUL, REPLACEMENT)
        case list():
            return [without_nul(each) for each in value]
        case dict():
            return {without_nul(name): without_nul(each) for name, each in value.items()}
        case _:
            return value
