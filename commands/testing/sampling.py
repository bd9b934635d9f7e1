"""Random commands of any aggregate, made from the JSON schema of its command classes; seeded, without hypothesis."""

from __future__ import annotations

import random
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from typing import Any
from uuid import UUID

import orjson
from pydantic import ValidationError

from headwater.commands.declaring.aggregate import Command
from headwater.commands.declaring.field_kinds import Digits, field_kinds
from headwater.commands.declaring.registry import AnyAggregate

IDS = ("L1", "Łódź 🏠", "a/b", 'it\'s "odd"', "%2F..", "null")
TEXTS = (*IDS, "tab\tand\nline", "{}", "12345", "z95838", "Sacramento")


def random_command(aggregate: AnyAggregate, name: str, chance: random.Random) -> Command | None:
    """A random command; None if the body breaks a rule that the JSON schema does not express."""
    kind = chance.choice(list(aggregate.commands.values()))
    schema, digits = _schema(kind), _digits(kind)
    body = {
        field: _decimal(digits[field], chance) if field in digits else _value(what, schema, chance)
        for field, what in schema["properties"].items()
        if field in schema.get("required", ()) or chance.random() < 0.5
    }
    try:
        ids = {field: name for field in aggregate.identity.names if type(body.get(field)) is not int}
        return kind.model_validate_json(orjson.dumps({**body, **ids}))
    except ValidationError:
        return None


@cache
def _schema(kind: type[Command]) -> Mapping[str, Any]:
    return kind.model_json_schema()


@cache
def _digits(kind: type[Command]) -> Mapping[str, Digits]:
    """The digits of each field with decimals, which its JSON schema does not have."""
    return {
        name: field_kind.form for name, field_kind in field_kinds(kind).items() if isinstance(field_kind.form, Digits)
    }


def _decimal(digits: Digits, chance: random.Random) -> str:
    """A decimal of its type, not negative, because most amounts are not."""
    most = 10 ** min(digits.total, digits.places + 6) - 1
    unscaled = chance.choice((1, most, chance.randint(1, most)))
    return f"{Decimal(unscaled).scaleb(-digits.places):f}"


def _value(schema: Mapping[str, Any], root: Mapping[str, Any], chance: random.Random) -> Any:
    match schema:
        case {"$ref": reference}:
            return _value(root["$defs"][reference.rpartition("/")[2]], root, chance)
        case {"anyOf": [{"type": "number"}, {"type": "string"}, *_]}:
            return "0.5"  # a decimal inside of another value: its digits are not known here
        case {"anyOf": choices}:
            return _value(chance.choice(choices), root, chance)
        case {"enum": choices}:
            return chance.choice(choices)
        case {"const": only}:
            return only
        case {"type": "string"}:
            return _text(schema, chance)
        case {"type": "integer"}:
            return chance.choice((1, 2, 1000, 350_000, 9_999_999_999))
        case {"type": "number"}:
            low, high = schema.get("minimum", -100.0), schema.get("maximum", 100.0)
            return chance.choice((float(low), chance.uniform(low, high), 1.5))
        case {"type": "boolean"}:
            return chance.random() < 0.5
        case {"type": "array", "items": items}:
            return [_value(items, root, chance) for _ in range(chance.choice((1, 1, 2)))]
        case {"type": "object", "properties": fields}:
            return {name: _value(what, root, chance) for name, what in fields.items()}
        case _:
            return None


def _text(schema: Mapping[str, Any], chance: random.Random) -> str:
    match schema:
        case {"format": "date"}:
            return f"2026-{chance.randrange(1, 13):02d}-{chance.randrange(1, 29):02d}"
        case {"format": "date-time"}:
            return f"2026-01-{chance.randrange(1, 29):02d}T12:00:00Z"
        case {"format": "uuid"}:
            return str(UUID(int=chance.getrandbits(128)))
        case {"pattern": _}:
            return chance.choice([text for text in TEXTS if text.isalnum()])
        case _:
            return chance.choice(TEXTS)
