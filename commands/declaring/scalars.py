"""Messages of plain scalars, which are unchanged by JSON, so that they need not be read back to be checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from pydantic import BaseModel

_SCALARS: Final[Mapping[str, type]] = {"str": str, "int": int, "bool": bool, "float": float}
_PLAIN_CONFIG: Final = frozenset({"extra_fields_behavior", "strict", "title"})

Fields = Mapping[str, frozenset[type]]


def is_as_in_json(message: BaseModel) -> bool:
    """Whether reading the JSON of `message` certainly makes an equal message; False if only reading it would show.

    `model_construct` and `model_copy` do not validate, so this checks the values, not only the class.
    """
    fields = scalar_fields(type(message))
    if fields is None:
        return False
    values = message.__dict__
    if len(values) != len(fields):
        return False
    for name, kinds in fields.items():
        value = values.get(name)
        kind = type(value)
        if kind not in kinds or (kind is float and not math.isfinite(value)):  # type: ignore[arg-type]
            return False
    return True


@lru_cache(maxsize=10_000)
def scalar_fields(kind: type[BaseModel]) -> Fields | None:
    """The types of each field's values, if all are plain scalars without a constraint, alias, validator or serializer.

    None otherwise. Read from pydantic's core schema, in which everything else has another type or key.
    """
    schema: Mapping[str, Any] = kind.__pydantic_core_schema__
    fields = schema.get("schema", {})
    plain = (
        schema.get("type") == "model"
        and fields.get("type") == "model-fields"
        and fields.keys() <= {"type", "fields", "model_name", "computed_fields"}
        and not fields.get("computed_fields")
        and schema.keys() <= {"type", "cls", "schema", "custom_init", "root_model", "config", "ref", "metadata"}
        and not (schema.get("custom_init") or schema.get("root_model") or kind.__private_attributes__)
        and schema.get("config", {}).keys() <= _PLAIN_CONFIG
        and schema.get("config", {}).get("extra_fields_behavior") != "allow"
    )
    if not plain:
        return None
    types = {name: _types(field) for name, field in fields["fields"].items()}
    return types if all(types.values()) else None


def _types(schema: Mapping[str, Any]) -> frozenset[type]:
    """The types of the values that fit; empty if they are not plain scalars."""
    match schema:
        case {"type": "model-field", "schema": inner} if schema.keys() <= {"type", "schema", "metadata"}:
            return frozenset() if schema.get("metadata") else _types(inner)
        case {"type": "default", "schema": inner, "default": None} if len(schema) == 3:
            return _types(inner)
        case {"type": "nullable", "schema": inner} if len(schema) == 2:
            found = _types(inner)
            return found and found | {type(None)}
        case {"type": str(name)} if len(schema) == 1 and name in _SCALARS:
            return frozenset({_SCALARS[name]})
        case _:
            return frozenset()
