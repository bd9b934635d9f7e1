"""What JSON may have in the fields of a message: their kind, and whether they may be null, as pydantic resolves them.

Read from pydantic's core schema, in which type aliases, `NewType`, root models and forward references are resolved.
"""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from functools import lru_cache, partial
from typing import Any, Final
from uuid import UUID

from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticUserError

from headwater.commands.declaring.personal_marks import is_personal
from headwater.commands.declaring.times import is_time
from headwater.eventlog.integers import fits_64_bits

Kind = type
"""The kind of a field: str, int, float, bool, datetime, or object for everything else."""
NULL: Final[Kind] = type(None)
_SCALARS: Final[Mapping[str, Kind]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "datetime": datetime,
    "none": NULL,
}
_FORMS: Final[Mapping[str, type]] = {"date": date, "uuid": UUID}
_WRAPPERS: Final = frozenset(
    {"model-field", "default", "function-after", "function-before", "function-wrap", "definitions"}
)
"""Schemas of the values that an inner schema has."""


_TEXTS: Final = frozenset(
    {"str", "date", "time", "datetime", "timedelta", "decimal", "uuid", "bytes", "url", "multi-host-url", "complex"}
)
_OTHERS: Final = frozenset(
    {"int", "float", "bool", "list", "set", "frozenset", "tuple", "dict", "typed-dict", "model", "dataclass"}
)
"""Schemas of values that are texts in JSON, and of values that never are."""


class JsonValues(Enum):
    """What the values of a field are in JSON: all are texts, none is a text, or either; null is none of them."""

    TEXTS = "texts"
    OTHERS = "others"
    EITHER = "either"


@dataclass(frozen=True, slots=True)
class Digits:
    """The digits that a decimal may have: altogether, and of these behind the point."""

    total: int
    places: int


Form = Digits | type
"""What a text or number in JSON stands for: a decimal with these digits, or any (`Decimal`); a `date`; a `UUID`."""


@dataclass(frozen=True, slots=True)
class FieldKind:
    """What a field may have.

    kind: of values that are not null; `object` if they are no scalars, or scalars of several kinds. Of a personal field
    it is `str`, because records have ciphertexts.
    nullable: whether it may be null.
    form: of values of the kind `object`, if all have the same.
    """

    kind: Kind
    nullable: bool
    form: Form | None = None


def field_kinds(model: type[BaseModel]) -> Mapping[str, FieldKind]:
    """What each field of a model may have, by its name in JSON."""
    if model.__pydantic_complete__:
        return _resolved_kinds(model)
    # it names a class that is declared below it: only that field is not known yet, and it is no scalar
    return {
        info.alias or name: FieldKind(
            str if is_personal(info) else annotated_kind(info.annotation),
            NULL in typing.get_args(info.annotation),
            None if is_personal(info) else _annotated_form(info.annotation, info.metadata),
        )
        for name, info in model.model_fields.items()
    }


def is_required(model: type[BaseModel], name: str) -> bool:
    """Whether the field with this name in JSON may be neither null nor missing."""
    info = next(info for own, info in model.model_fields.items() if name == (info.alias or own))
    return info.is_required() and not field_kinds(model)[name].nullable


def _annotated_form(annotation: Any, metadata: list[Any]) -> Form | None:
    """The form of a field of a model that is not complete yet."""
    if annotated_kind(annotation) is not object:
        return None
    try:
        schema = TypeAdapter[Any](typing.Annotated[annotation, *metadata] if metadata else annotation).core_schema
        return _form(schema, {})
    except (PydanticUserError, NameError, KeyError, TypeError):  # it is the field that names the class
        return None


@lru_cache(maxsize=10_000)
def _resolved_kinds(model: type[BaseModel]) -> Mapping[str, FieldKind]:
    schemas, definitions = _schemas(model)
    by_path: dict[str, FieldKind] = {}
    for name, info in model.model_fields.items():
        kinds = frozenset(_kinds(schemas[name], definitions))
        values = kinds - {NULL}
        kind = next(iter(values)) if len(values) == 1 else object
        if is_personal(info):
            kind = str  # the sealed text
        form = _form(schemas[name], definitions) if kind is object else None
        by_path[info.alias or name] = FieldKind(kind, NULL in kinds, form)
    return by_path


def _form(schema: Schema, definitions: Mapping[str, Schema]) -> Form | None:
    """The form that all values but null have; None if they differ, or have none."""
    forms = {_form_of(resolved) for resolved in _resolved(schema, definitions) if resolved["type"] != "none"}
    return forms.pop() if len(forms) == 1 else None


def _form_of(schema: Schema) -> Form | None:
    if schema["type"] != "decimal":
        return _FORMS.get(schema["type"])
    total, places = schema.get("max_digits"), schema.get("decimal_places")
    return Decimal if total is None or places is None else Digits(total, places)


def json_values(model: type[BaseModel], name: str) -> JsonValues:
    """What the field with this name in JSON may have there. The model must be complete."""
    schemas, definitions = _schemas(model)
    own = next(own for own, info in model.model_fields.items() if name == (info.alias or own))
    if _has_serializer(schemas[own]):
        return JsonValues.EITHER
    values = {_values_of(resolved) for resolved in _resolved(schemas[own], definitions) if resolved["type"] != "none"}
    return values.pop() if len(values) == 1 else JsonValues.EITHER


def _values_of(schema: Schema) -> JsonValues:
    match schema:
        case {"serialization": _}:
            return JsonValues.EITHER
        case {"type": "literal", "expected": values} | {"type": "enum", "members": values}:
            kinds = {_kind_of_value(value) for value in values} - {NULL}
            texts = {JsonValues.TEXTS if kind is str else JsonValues.OTHERS for kind in kinds}
            return texts.pop() if len(texts) == 1 and object not in kinds else JsonValues.EITHER
        case {"type": name} if name in _TEXTS:
            return JsonValues.TEXTS
        case {"type": name} if name in _OTHERS:
            return JsonValues.OTHERS
    return JsonValues.EITHER


def _has_serializer(schema: Schema) -> bool:
    """Whether the model says itself what a value becomes in JSON."""
    inner = schema.get("schema")
    return "serialization" in schema or (isinstance(inner, Mapping) and _has_serializer(inner))


def item_model_of(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    """The model of the items, if the field with this name in JSON is a list of objects, and not sealed."""
    if any(is_personal(info) for own, info in model.model_fields.items() if name == (info.alias or own)):
        return None
    schemas, definitions = _schemas(model)
    own = next((own for own, info in model.model_fields.items() if name == (info.alias or own)), "")
    for schema in _resolved(schemas[own], definitions):
        items = _items_of(schema)
        for inner in _resolved(items, definitions) if items is not None else ():
            if (item_model := _model_of(inner)) is not None:
                return item_model
    return None


@dataclass(frozen=True, slots=True)
class Inside:
    """What is inside a field: the nested model, or the values of the items of a list.

    kind: of the field's own values. At most one of model and items is there.
    """

    kind: FieldKind
    model: type[BaseModel] | None = None
    items: Callable[[], Inside] | None = None


def insides(model: type[BaseModel]) -> Mapping[str, Inside]:
    """What is inside the fields of a model, by their names in JSON; none if it names a type that is not defined yet."""
    if not (model.__pydantic_complete__ or model.model_rebuild(raise_errors=False)):
        return {}
    schemas, definitions = _schemas(model)
    kinds = field_kinds(model)
    return {
        info.alias or name: Inside(kinds[info.alias or name])
        if is_personal(info)
        else _inside(schemas[name], definitions)
        for name, info in model.model_fields.items()
    }


def _inside(schema: Schema, definitions: Mapping[str, Schema]) -> Inside:
    values = [resolved for resolved in _resolved(schema, definitions) if resolved["type"] != "none"]
    kinds = frozenset(_kinds(schema, definitions))
    known = kinds - {NULL}
    kind = FieldKind(next(iter(known)) if len(known) == 1 else object, NULL in kinds)
    if len(values) != 1:
        return Inside(kind)
    items = _items_of(values[0])
    return Inside(kind, _model_of(values[0]), None if items is None else partial(_inside, items, definitions))


def _model_of(schema: Schema) -> type[BaseModel] | None:
    return schema["cls"] if schema["type"] == "model" and not schema.get("root_model") else None


def _items_of(schema: Schema) -> Schema | None:
    """The schema of the items, if values are lists with items of one kind."""
    items = schema.get("items_schema")
    items = items[0] if isinstance(items, list) and len(items) == 1 else items
    return items if isinstance(items, dict) else None


Schema = Mapping[str, Any]


def _schemas(model: type[BaseModel]) -> tuple[Mapping[str, Schema], Mapping[str, Schema]]:
    """The schemas of a model's fields, and those that they refer to."""
    schema: Schema = model.__pydantic_core_schema__
    definitions = {definition["ref"]: definition for definition in schema.get("definitions", ())}
    while "fields" not in schema:
        schema = definitions[schema["schema_ref"]] if schema["type"] == "definition-ref" else schema["schema"]
    return schema["fields"], definitions


def _kinds(schema: Schema, definitions: Mapping[str, Schema]) -> Iterator[Kind]:
    for resolved in _resolved(schema, definitions):
        match resolved:
            case {"type": "any"}:
                yield from (object, NULL)
            case {"type": "literal", "expected": values} | {"type": "enum", "members": values}:
                yield from map(_kind_of_value, values)
            case {"type": name}:
                yield _SCALARS.get(name, object)


def _kind_of_value(value: Any) -> Kind:
    value = value.value if isinstance(value, Enum) else value
    return next((kind for kind in (bool, str, int, float, NULL) if isinstance(value, kind)), object)


def _resolved(schema: Schema, definitions: Mapping[str, Schema]) -> Iterator[Schema]:
    """The schemas of the values in JSON that this schema accepts: none of them stands for others."""
    match schema:
        case {"type": "definition-ref", "schema_ref": name}:
            yield from _resolved(definitions[name], definitions)
        case {"type": "nullable", "schema": inner}:
            yield {"type": "none"}
            yield from _resolved(inner, definitions)
        case {"type": "model", "root_model": True, "schema": inner}:
            yield from _resolved(inner, definitions)
        case {"type": "union", "choices": choices}:
            for choice in choices:  # some have a label
                yield from _resolved(choice[0] if isinstance(choice, tuple) else choice, definitions)
        case {"type": "tagged-union", "choices": choices}:
            for choice in choices.values():
                yield from _resolved(choice, definitions)
        case {"type": "json-or-python", "json_schema": inner} | {"type": "lax-or-strict", "strict_schema": inner}:
            yield from _resolved(inner, definitions)
        case {"type": name, "schema": inner} if name in _WRAPPERS:
            yield from _resolved(inner, definitions)
        case _:
            yield schema


def annotated_kind(annotation: Any) -> Kind:
    """The kind as far as an annotation alone says it, for models that pydantic has not completed yet."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return annotated_kind(typing.get_args(annotation)[0])
    if origin is typing.Literal:
        return annotated_kind(type(typing.get_args(annotation)[0]))
    if origin in (typing.Union, types.UnionType):
        members = [member for member in typing.get_args(annotation) if member is not NULL]
        return annotated_kind(members[0]) if len(members) == 1 else object
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return annotated_kind(type(next(iter(annotation)).value))
    return annotation if annotation in (str, int, float, bool, datetime) else object


def fits(value: Any, kind: Kind) -> bool:
    """Whether a JSON value is of this kind: integers of up to 64 bits, finite floats, times (see `is_time`)."""
    if kind is int:
        return type(value) is int and fits_64_bits(value)
    if kind is float:
        return type(value) in (int, float) and abs(value) <= sys.float_info.max
    if kind is datetime:
        return is_time(value)
    return value is not None and isinstance(value, kind)
