"""The components of the OpenAPI document that describe the bodies of answers."""

from __future__ import annotations

from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from headwater.api.openapi.documents import (
    COMPONENT,
    Accepted,
    AllStreams,
    CapturedPosition,
    CommandAnswer,
    Health,
    PersonErased,
    PersonKnown,
    Receipt,
    Reported,
    ReportedLines,
    Views,
)

Schema = dict[str, Any]

BODIES: Final = (
    Accepted,
    AllStreams,
    CapturedPosition,
    CommandAnswer,
    Health,
    PersonErased,
    PersonKnown,
    Receipt,
    Reported,
    ReportedLines,
    Views,
)


class _Untitled(GenerateJsonSchema):
    """Without a title per field: it only repeats the field's name."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def body_components() -> Schema:
    """The components of all bodies, and of the types in them, by name."""
    adapters = [(kind.__name__, "serialization", TypeAdapter(kind)) for kind in BODIES]
    made, inner = TypeAdapter.json_schemas(
        adapters,  # type: ignore[arg-type]
        ref_template="#/components/schemas/{model}",
        schema_generator=_Untitled,
    )
    alone = {name: schema for (name, _), schema in made.items() if "$ref" not in schema}
    components: Schema = _linked(inner.get("$defs", {}) | alone)
    return components


def _linked(schema: Any) -> Any:
    """The schema with references to the components that are made elsewhere."""
    if isinstance(schema, dict):
        if COMPONENT in schema:
            return {"$ref": f"#/components/schemas/{schema[COMPONENT]}"}
        return {name: _linked(each) for name, each in schema.items()}
    return [_linked(each) for each in schema] if isinstance(schema, list) else schema
