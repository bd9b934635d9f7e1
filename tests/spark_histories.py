"""Random histories of aggregates: what `decide` makes of random commands, as events in the order of the log."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson
from pydantic import ValidationError

from commands.declaring.aggregate import Command
from commands.declaring.registry import AnyAggregate
from commands.errors import Rejected
from eventlog.envelope import Envelope, Position, encode, partition_of
from projections.table.expressions import Source

START_MS = 1_767_323_045_000
IDS = ("L1", "Łódź 🏠", "a/b", 'it\'s "odd"', "%2F..", "null")
TEXTS = (*IDS, "tab\tand\nline", "{}", "12345", "z95838", "Sacramento")


def history(aggregates: Sequence[AnyAggregate], seed: int, events: int, partitions: int) -> list[Source]:
    """At least so many events; offsets have gaps, and some times are equal."""
    chance = random.Random(seed)
    states: dict[str, Any] = {}
    versions: dict[str, int] = {}
    ends, now_ms = [0] * partitions, START_MS
    found: list[Source] = []
    for _ in range(100 * events):
        if len(found) >= events:
            return found
        aggregate = chance.choice(aggregates)
        # an aggregate may come to its end, as a sold listing does: others follow
        command = random_command(aggregate, f"{chance.choice(IDS)} {len(found) // 20}", chance)
        if command is None:
            continue
        stream = f"{aggregate.name}/{getattr(command, aggregate.id_field)}"
        try:
            decided = aggregate.decide(command, states.get(stream, aggregate.initial))
        except Rejected:
            continue
        for event in decided:
            states[stream] = aggregate.evolve(states.get(stream, aggregate.initial), event)
            versions[stream] = versions.get(stream, 0) + 1
            partition = partition_of(stream, partitions)
            ends[partition] += chance.choice((1, 1, 2, 5))
            now_ms += chance.choice((0, 0, 1, 1700))
            time = datetime.fromtimestamp(now_ms / 1000, UTC)
            name = f"{stream}/{versions[stream]}"
            data = event.model_dump(mode="json", by_alias=True)
            made = Envelope(name, event.type, stream, time, data, sequence=versions[stream])
            found.append(Source(made, Position(partition, ends[partition]), now_ms, encode(made).decode()))
    raise AssertionError(f"only {len(found)} events after {100 * events} commands: draw commands that are accepted")


def random_command(aggregate: AnyAggregate, name: str, chance: random.Random) -> Command | None:
    """A random command; None where its body breaks what the schema's types do not tell."""
    kind = chance.choice(list(aggregate.commands.values()))
    schema = kind.model_json_schema()
    body = {
        field: _value(what, schema, chance)
        for field, what in schema["properties"].items()
        if field in schema.get("required", ()) or chance.random() < 0.5
    }
    try:
        return kind.model_validate_json(orjson.dumps({**body, aggregate.id_field: name}))
    except ValidationError:
        return None


def _value(schema: Mapping[str, Any], root: Mapping[str, Any], chance: random.Random) -> Any:
    match schema:
        case {"$ref": reference}:
            return _value(root["$defs"][reference.rpartition("/")[2]], root, chance)
        case {"anyOf": choices}:
            return _value(chance.choice(choices), root, chance)
        case {"enum": choices}:
            return chance.choice(choices)
        case {"const": only}:
            return only
        case {"type": "string", "pattern": _}:
            return chance.choice([text for text in TEXTS if text.isalnum()])
        case {"type": "string"}:
            return chance.choice(TEXTS)
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
