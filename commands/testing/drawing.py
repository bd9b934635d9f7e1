"""Random commands of any aggregate, for hypothesis, made from the JSON schema of its command classes."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime, time
from functools import cache
from typing import Any, Final

from hypothesis import strategies as st

from headwater.commands.declaring.observation import Observation, sealed_fields
from headwater.commands.declaring.registry import AnyAggregate

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
FIRST, LAST = datetime(2026, 1, 1), datetime(2026, 1, 4)
FORMATS: Final[Mapping[str, st.SearchStrategy[str]]] = {
    "date": st.dates(FIRST.date(), LAST.date()).map(date.isoformat),
    "date-time": st.datetimes(FIRST, LAST, timezones=st.just(UTC)).map(datetime.isoformat),
    "time": st.times().map(time.isoformat),
    "duration": st.integers(0, 3).map("PT{}M".format),
    "uuid": st.uuids().map(str),
}
"""Texts of a schema with one of these formats."""


@cache
def bodies(command: type[Any], id_fields: Sequence[str], number: int) -> st.SearchStrategy[dict[str, Any]]:
    """JSON bodies that fit `command`, all for one aggregate; other numbers are other aggregates.

    command: or a type of observation, which has no id fields.
    If the id has several parts, they differ in the first one only.
    """
    schema = command.model_json_schema()
    fields = schema["properties"]
    parts = {
        name: st.just(_part(fields[name], schema, number if place == 0 else 0)) for place, name in enumerate(id_fields)
    }
    required = {name: values(fields[name], schema) for name in schema.get("required", ()) if name not in parts}
    optional = {name: values(field, schema) for name, field in fields.items() if name not in {*required, *parts}}
    drawn = st.fixed_dictionaries({**parts, **required}, optional=optional)
    fields = sealed_fields(command) if issubclass(command, Observation) else command.sealed_fields
    persons = frozenset(personal_field.of for personal_field in fields.all) if fields is not None else ()
    return drawn.map(lambda body: _named(body, persons)) if persons else drawn


def _named(value: Any, persons: Collection[str]) -> Any:
    """A body in which each of these fields names a person: an empty one is refused by the API."""
    match value:
        case dict():
            return {
                name: "P" if name in persons and item == "" else _named(item, persons) for name, item in value.items()
            }
        case list():
            return [_named(item, persons) for item in value]
    return value


def _part(schema: dict[str, Any], root: dict[str, Any], number: int) -> Any:
    """The value of a field of the id."""
    match schema:
        case {"$ref": reference}:
            return _part(root["$defs"][reference.rpartition("/")[2]], root, number)
        case {"enum": choices}:
            return choices[number % len(choices)]
        case {"type": "integer"}:
            return schema.get("minimum", 0) + number
        case _:
            return f"A{number}"


def values(schema: dict[str, Any], root: dict[str, Any]) -> st.SearchStrategy[Any]:
    """JSON values of a schema; small, so that values repeat and both sides of a rule are tested."""
    match schema:
        case {"$ref": reference}:
            return values(root["$defs"][reference.rpartition("/")[2]], root)
        case {"enum": choices}:
            return st.sampled_from(choices)
        case {"const": only}:
            return st.just(only)
        case {"anyOf": [{"type": "number"} as number, {"type": "string"}, *others]}:  # a decimal
            whole = numbers({**number, "type": "integer"}).map(str)
            return st.one_of([whole, *(values(choice, root) for choice in others)])
        case {"anyOf": choices} | {"oneOf": choices}:
            return st.one_of([values(choice, root) for choice in choices])
        case {"type": "string"}:
            return texts(schema)
        case {"type": "integer" | "number"}:
            return numbers(schema)
        case {"type": "boolean"}:
            return st.booleans()
        case {"type": "null"}:
            return st.none()
        case {"type": "array"}:
            return st.lists(values(schema.get("items", {}), root), min_size=schema.get("minItems", 0), max_size=3)
        case {"type": "object"}:
            fields = schema.get("properties", {})
            return st.fixed_dictionaries({name: values(field, root) for name, field in fields.items()})
        case _:
            raise NotImplementedError(f"random values of the schema {schema} are not supported")


def texts(schema: dict[str, Any]) -> st.SearchStrategy[str]:
    """Short texts of a schema."""
    if (drawn := FORMATS.get(schema.get("format", ""))) is not None:
        return drawn
    if "pattern" in schema:
        return st.from_regex(schema["pattern"].replace("$", r"\Z"))
    least = schema.get("minLength", 0)
    return TEXT.filter(lambda text: len(text) >= least)


def numbers(schema: dict[str, Any]) -> st.SearchStrategy[int] | st.SearchStrategy[float]:
    """The smallest few numbers of a schema."""
    least = schema.get("minimum", schema.get("exclusiveMinimum", 0))
    most = min(schema.get("maximum", schema.get("exclusiveMaximum", least + 5)), least + 5)
    open_ends = {"exclude_min": "exclusiveMinimum" in schema, "exclude_max": most == schema.get("exclusiveMaximum")}
    if schema["type"] == "number":
        return st.floats(least, most, **open_ends)
    return st.integers(math.ceil(least) + open_ends["exclude_min"], math.floor(most) - open_ends["exclude_max"])


def histories(aggregate: AnyAggregate, streams: int = 2) -> st.SearchStrategy[list[tuple[str, dict[str, Any]]]]:
    """Lists of (command type, body) for a few aggregates of one kind."""
    one = st.one_of(
        [
            st.tuples(st.just(name), bodies(command, aggregate.identity.names, number))
            for name, command in sorted(aggregate.commands.items())
            for number in range(streams)
        ]
    )
    return st.lists(one, min_size=1, max_size=25)
