"""Random commands of any aggregate, for hypothesis, made from the JSON schema of its command classes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache, reduce
from typing import Any

from hypothesis import reject
from hypothesis import strategies as st

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.field_paths import ITEMS, Path, path_of, scoped
from headwater.commands.declaring.observation import Observation, sealed_fields
from headwater.commands.declaring.registry import AnyAggregate
from headwater.commands.declaring.steps import (
    Conversion,
    Convert,
    Default,
    Drop,
    Move,
    Parsed,
    Recoded,
    Rename,
    Rounded,
    Scaled,
    Split,
    Step,
)

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)


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
    persons = frozenset(each.of for each in fields.all) if fields is not None else ()
    return drawn.map(lambda body: _named(body, persons)) if persons else drawn


def _named(value: Any, persons: Collection[str]) -> Any:
    """A body in which each of these fields names a person: an empty one is refused by the API."""
    match value:
        case dict():
            return {
                name: "P" if name in persons and each == "" else _named(each, persons) for name, each in value.items()
            }
        case list():
            return [_named(each, persons) for each in value]
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
        case {"type": "object", "properties": fields}:
            return st.fixed_dictionaries({name: values(field, root) for name, field in fields.items()})
        case {"type": "object"}:
            return st.just({})
        case _:
            raise NotImplementedError(f"random values of the schema {schema} are not supported")


def texts(schema: dict[str, Any]) -> st.SearchStrategy[str]:
    """Short texts of a schema."""
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
    return st.integers(least + open_ends["exclude_min"], most - open_ends["exclude_max"])


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


def recordings(event: type[Event], version: int) -> st.SearchStrategy[dict[str, Any]]:
    """Data of an older version: valid values of today, as they were before each step."""
    schema = event.model_json_schema()
    fields = {name: values(field, schema) for name, field in schema["properties"].items()}
    steps = [step for number in range(event.version - 1, version - 1, -1) for step in event.history.steps(number)[::-1]]
    return st.fixed_dictionaries(fields).map(lambda data: reduce(before_step, steps, data))


def before_step(data: dict[str, Any], step: Step) -> dict[str, Any]:
    """What is data after a step was before it, or near it; fields that were dropped are null."""
    scope, own = scoped(step)
    found: dict[str, Any] = _within(data, scope, lambda fields: _before_step(fields, own))
    return found


def _within(value: Any, path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """The value with a change of what is at a path in it."""
    match value:
        case list() if path[:1] == (ITEMS,):
            return [_within(each, path[1:], change) for each in value]
        case dict() if not path:
            return change(value)
        case dict() if path[0] in value:
            return {**value, path[0]: _within(value[path[0]], path[1:], change)}
    return value


def _before_step(data: dict[str, Any], step: Step) -> dict[str, Any]:
    found = dict(data)
    match step:
        case Rename():
            found[step.old] = found.pop(step.new, None)
        case Move():
            old, new = path_of(step.old), path_of(step.new)
            value = _taken(found, new)
            _put(found, old, value)
        case Default():
            found.pop(step.field, None)
        case Drop():
            found[step.field] = None
        case Convert():
            value = found.get(step.field)
            found[step.field] = None if value is None else before(step.how, value)
        case Split():
            parts = [found.pop(name, None) for name in step.into]
            found[step.field] = None if None in parts else step.at.join(parts)
    return found


def _taken(data: dict[str, Any], path: Path) -> Any:
    """What is at a path, taken out with the nested model around it that has nothing else."""
    name, rest = path[0], path[1:]
    if not rest:
        return data.pop(name, None)
    inner = dict(data.get(name) or {})
    value = _taken(inner, rest)
    if inner:
        data[name] = inner
    else:
        data.pop(name, None)
    return value


def _put(data: dict[str, Any], path: Path, value: Any) -> None:
    name, rest = path[0], path[1:]
    if rest and name in data and data[name] is None:
        if value is not None:
            reject()  # it was in a model that is null today, so no event was recorded that is read as this one
        return
    if rest:
        inner = dict(data.get(name) or {})
        _put(inner, rest, value)
        value = inner
    data[name] = value


def before(how: Conversion, value: Any) -> Any:
    """A value that is converted to `value`, or to one near it."""
    match how:
        case Scaled():
            return value // how.by if isinstance(value, int) and isinstance(how.by, int) and how.by else value
        case Rounded():
            return value / how.times
        case Parsed():
            return str(value)
        case Recoded():
            return {new: old for old, new in how.words}.get(value, value)
        case _:
            return int(value)
