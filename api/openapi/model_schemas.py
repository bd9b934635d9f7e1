"""OpenAPI schemas of commands, events, states and observations, from their models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema

from headwater.api.openapi.components import (
    COLUMNS,
    EARLIER_DATA,
    ENVELOPE,
    STREAM_PAGE,
    STREAM_STATE,
    TEXT,
    CommandLine,
    Schema,
)
from headwater.commands.declaring.aggregate import Command, Event
from headwater.commands.declaring.field_kinds import JsonValues
from headwater.commands.declaring.filled_fields import filled_fields
from headwater.commands.declaring.observation import Observation, ObservationRegistry, Report
from headwater.commands.declaring.registry import AnyAggregate, CommandRegistry
from headwater.projections.table.json_text import FieldOf, JsonForm
from headwater.projections.table.types import ColumnType

OTHER_EVENT: Final = "OtherEvent"


def reference(component: str) -> Schema:
    """A reference to a component."""
    return {"$ref": f"#/components/schemas/{component}"}


def message_components(commands: CommandRegistry, observations: ObservationRegistry) -> Schema:
    """The components of everything that is declared on the write side, by name.

    `<command>` and `<command>.line`; `<event>.event` and `<event>.data`; `<aggregate>.state` and `<aggregate>.stream`;
    `<observation>.report`; and the unions `CommandLine` and `Event`, with `type` as the discriminator.
    """
    schemas: Schema = {}
    for name, kind in commands.public.items():
        schemas |= model_components(name, kind.command)
        schemas[f"{name}.line"] = _line(name)
    for name, event in commands.events.items():
        schemas |= model_components(f"{name}.data", event)
        schemas[f"{name}.event"] = _event(name, event)
    for name, aggregate in commands.aggregates.items():
        schemas |= model_components(f"{name}.state", type(aggregate.initial), "serialization")
        schemas[f"{name}.stream"] = _stream(aggregate)
    schemas["Stream"] = {"anyOf": [reference(f"{name}.stream") for name in commands.aggregates] or [{"type": "object"}]}
    for name, report in observations.reports.items():
        schemas |= model_components(f"{name}.report", report)
    schemas["CommandLine"] = _discriminated({name: f"{name}.line" for name in commands.public})
    known = {name: f"{event.type}.event" for name, event in commands.recorded.items()}
    schemas["Event"] = _discriminated(known, OTHER_EVENT)
    other = {"type": "string", **({"not": {"enum": sorted(known)}} if known else {})}
    schemas[OTHER_EVENT] = {
        **ENVELOPE,
        "description": "an event of a type that is no longer declared",
        "properties": {**ENVELOPE["properties"], "type": other},
    }
    return schemas


def model_components(
    name: str, model: type[BaseModel], mode: Literal["validation", "serialization"] = "validation"
) -> Schema:
    """The component `name` of a model, and those of the models in it; mode: for reading, or for writing."""
    schema = model.model_json_schema(ref_template=f"#/components/schemas/{name}.{{model}}", mode=mode)
    if issubclass(model, Command | Observation | Report) and mode == "validation":
        _leave_out_filled(model, schema)
    inner = {f"{name}.{definition_name}": definition for definition_name, definition in schema.pop("$defs", {}).items()}
    return inner | {name: schema}


def json_column(name: str, form: JsonForm) -> tuple[Schema, Schema]:
    """The schema of a column of JSON, and the components that it refers to, whose names begin with `name`."""
    distinct: dict[bytes, FieldOf] = {}
    for field in form.fields:
        distinct.setdefault(orjson.dumps(_field_schema(name, field)), field)
    schemas, merged = list[Schema](), Schema()
    for number, field in enumerate(distinct.values()):
        prefix = f"{name}.{number}" if number else name
        schema = _field_schema(prefix, field)
        merged |= {
            f"{prefix}.{definition_name}": definition for definition_name, definition in schema.pop("$defs", {}).items()
        }
        schemas.append(schema)
    if not schemas:
        return COLUMNS[ColumnType.JSON], {}
    if form.values is JsonValues.EITHER:  # a number is answered as its text, if the field may have a text
        schemas.append(TEXT)
    return (schemas[0] if len(schemas) == 1 else {"anyOf": schemas}), merged


def _field_schema(name: str, field: FieldOf) -> Schema:
    """The schema of a field's values; of any if it has none."""
    model, own = field
    info = next(info for field_name, info in model.model_fields.items() if own == (info.alias or field_name))
    try:
        annotated: Any = Annotated[info.annotation, info]
        schema = TypeAdapter(annotated).json_schema(
            ref_template=f"#/components/schemas/{name}.{{model}}", mode="serialization"
        )
    except PydanticInvalidForJsonSchema:
        return {}
    return {keyword: value for keyword, value in schema.items() if keyword != "default"}


def _leave_out_filled(model: type[BaseModel], schema: Schema) -> None:
    """Remove the fields that the API fills, and a client must not send."""
    if issubclass(model, Report):
        data: Any = model.model_fields["data"].annotation
        model, schema = data, schema["$defs"][schema["properties"]["data"]["$ref"].rpartition(".")[2]]
    filled = filled_fields(model)
    for field in (*filled.claims, *filled.times):
        schema["properties"].pop(field, None)
        if field in schema.get("required", ()):
            schema["required"].remove(field)


def _line(command_type: str) -> Schema:
    """A line of NDJSON with a command of this type."""
    schema = CommandLine.model_json_schema()
    properties = schema["properties"] | {"type": {"const": command_type}, "body": reference(command_type)}
    return {**schema, "title": f"{command_type}.line", "properties": properties}


def _event(event_type: str, event: type[Event]) -> Schema:
    """The CloudEvents document of an event; data of an earlier version is as it was recorded."""
    data, types = reference(f"{event_type}.data"), event.history.types
    properties = {
        **ENVELOPE["properties"],
        "type": {"const": types[0]} if len(types) == 1 else {"enum": sorted(types)},
        "data": data if event.version == 1 else {"anyOf": [data, EARLIER_DATA]},
    }
    return {**ENVELOPE, "description": (event.__doc__ or event_type).strip(), "properties": properties}


def _stream(aggregate: AnyAggregate) -> Schema:
    """A page of the events of one aggregate, or its state at a version or time."""
    events = _discriminated({name: f"{event.type}.event" for name, event in aggregate.recorded.items()})
    page: dict[str, Any] = STREAM_PAGE["properties"] | {"events": {"type": "array", "items": events}}
    state: dict[str, Any] = STREAM_STATE["properties"] | {"state": reference(f"{aggregate.name}.state")}
    return {"anyOf": [STREAM_PAGE | {"properties": page}, STREAM_STATE | {"properties": state}]}


def _discriminated(components: Mapping[str, str], *others: str) -> Schema:
    """A union of components, with `type` as the discriminator."""
    mapping = {name: reference(component)["$ref"] for name, component in components.items()}
    every = [reference(component) for component in dict.fromkeys((*components.values(), *others))]
    if not every:
        return {"not": {}}  # a deployment without aggregates accepts no commands
    return {"type": "object", "oneOf": every, "discriminator": {"propertyName": "type", "mapping": mapping}}
