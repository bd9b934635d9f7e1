"""The OpenAPI document's fixed schemas: of parameters, headers, columns, events, problems and bodies of answers."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
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
from headwater.api.problems import MEDIA_TYPE
from headwater.api.requests.parameters import DECIMAL_PATTERN
from headwater.projections.table.types import ByType, ColumnType

Schema = dict[str, Any]
POINT: Final[Schema] = {
    "type": "object",
    "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
    "required": ["lat", "lon"],
}
_COLUMNS: Final[dict[ColumnType, Schema]] = {
    ColumnType.TEXT: {"type": "string"},
    ColumnType.INTEGER: {"type": "integer", "format": "int64"},
    ColumnType.FLOAT: {"type": "number", "format": "double"},
    ColumnType.BOOLEAN: {"type": "boolean"},
    ColumnType.TIME: {"type": "string", "format": "date-time"},
    ColumnType.POINT: POINT,
    ColumnType.JSON: {"description": "any JSON"},
    ColumnType.LIST: {"type": "array", "items": {}},
    ColumnType.DATE: {"type": "string", "format": "date"},
    ColumnType.UUID: {"type": "string", "format": "uuid"},
}
PERSONAL_COLUMN: Final[Schema] = {
    "description": "a personal value: as it was recorded, or what is left of it after an erasure; "
    '`{"hidden": "personal"}` without the scope `personal`; cannot be sorted by, and filtered by only with this scope, '
    "if the store has it in clear"
}
TEXT: Final[Schema] = {"type": "string"}
POSITIONS: Final[Schema] = {"type": "string", "pattern": r"^\d{1,5}:\d{1,18}(,\d{1,5}:\d{1,18})*$"}
_IN_LOG: Final = r"((observations|cdc\.[A-Za-z0-9_.]{1,200})/)?\d{1,5}:\d{1,18}"
_IN_DATABASE: Final = r"[a-z][a-z0-9_]{0,23}@[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}"
AFTER: Final[Schema] = {
    "type": "string",
    "pattern": f"^({_IN_LOG}|{_IN_DATABASE})(,({_IN_LOG}|{_IN_DATABASE}))*$",
    "examples": ["3:1042", "0:977,observations/3:1042", "cdc.shop.public.customers/0:1042", "shop@0/1A2B3C8"],
}
CHANGE: Final[Schema] = {
    "type": "object",
    "description": "one server-sent event",
    "properties": {
        "event": {"enum": ["open", "change", "reset", "end"]},
        "data": {"type": "string", "description": "a JSON text"},
        "id": {"type": "string", "description": "where to continue: send it as Last-Event-ID or `from`"},
    },
    "required": ["event", "data"],
}
ENVELOPE: Final[Schema] = {
    "type": "object",
    "description": "a CloudEvents 1.0 document",
    "properties": {
        "specversion": {"const": "1.0"},
        "id": {"type": "string", "description": "stream/version"},
        "source": TEXT,
        "type": TEXT,
        "subject": {"type": "string", "description": "the stream"},
        "time": {"type": "string", "format": "date-time"},
        "datacontenttype": {"const": "application/json"},
        "dataversion": {"type": "integer", "minimum": 1, "description": "version of the event's type"},
        "sequence": {"type": "integer", "minimum": 1, "description": "the stream's version after this event"},
        "correlationid": TEXT,
        "causationid": TEXT,
        "traceparent": TEXT,
        "recordedtime": {"type": "string", "format": "date-time", "description": "when the event was decided"},
        "actor": {
            "type": "string",
            "description": "who caused it: the name of an API key, the subject of a token, `process:NAME` or "
            "`outbox:SOURCE`; missing if that is not known",
        },
        "data": {"type": "object"},
    },
    "required": ["specversion", "id", "source", "type", "subject", "time"],
}
EARLIER_DATA: Final[Schema] = {"type": "object", "description": "data of an earlier `dataversion`, as it was recorded"}
STREAM_PAGE: Final[Schema] = {
    "type": "object",
    "description": "One page of events.",
    "properties": {
        "stream": TEXT,
        "version": {"type": "integer", "minimum": 1},
        "events": {"type": "array", "items": {"$ref": "#/components/schemas/Event"}},
        "links": {"type": "object", "additionalProperties": TEXT},
    },
    "required": ["stream", "version", "events", "links"],
}
STREAM_STATE: Final[Schema] = {
    "type": "object",
    "description": "The state at the requested version or time.",
    "properties": {
        "stream": TEXT,
        "version": {"type": "integer", "minimum": 1},
        "time": {"type": "string", "format": "date-time"},
        "state": {"type": "object"},
    },
    "required": ["stream", "version", "time", "state"],
}
ACCEPTED_HEADERS: Final[Schema] = {
    "ETag": {"description": "the stream's version, in quotes", "schema": TEXT},
    "Location": {"description": "the stream", "schema": TEXT},
}
RETRY_AFTER: Final[Schema] = {
    "Retry-After": {"description": "seconds to wait before a retry", "schema": {"type": "string"}}
}
CHALLENGE: Final[Schema] = {
    "WWW-Authenticate": {"description": "how to authenticate (RFC 6750)", "schema": {"type": "string"}}
}
GENERATION: Final[Schema] = {
    "Headwater-Generation": {"description": "the generation that answered", "schema": {"type": "string"}}
}
VISIBLE: Final[Schema] = {"type": "string", "pattern": "^[\\x21-\\x7e]{1,255}$"}
Visible = Annotated[str, Field(pattern=VISIBLE["pattern"])]
HEADERS: Final[Mapping[int, Schema]] = {
    401: CHALLENGE,
    403: CHALLENGE,
    429: RETRY_AFTER,
    503: RETRY_AFTER,
    504: RETRY_AFTER,
}
COUNT: Final[Schema] = {"type": "integer"}
FAULT: Final[Schema] = {
    "type": "object",
    "properties": {
        "detail": {"type": "string", "description": "what is wrong, for people"},
        "pointer": {"type": "string", "description": "the place in the body: a JSON pointer as a URI fragment"},
        "parameter": {"type": "string", "description": "the invalid parameter of the path or the query"},
        "header": {"type": "string", "description": "the invalid header"},
    },
    "required": ["detail"],
    "additionalProperties": False,
}
MEMBERS: Final[Mapping[str, Schema]] = {
    "errors": {"type": "array", "minItems": 1, "items": FAULT, "description": "the first 100 invalid places"},
    "error_count": {"type": "integer", "minimum": 1, "description": "how many places are invalid"},
    "error_id": {"type": "string", "description": "of an internal error: search the server log for this id"},
    "host": TEXT,
    "scope": {"type": "string", "description": "a scope that would allow it"},
    "claim": {"type": "string", "description": "the claim of the caller that is missing"},
    "field": {"type": "string", "description": "the field that the API would fill with it"},
    "part": {"enum": ["path", "query"]},
    "parameter": TEXT,
    "header": TEXT,
    "known": {"type": "array", "items": TEXT, "description": "the allowed values or names"},
    "line": {"type": "integer", "minimum": 1},
    "column": {"type": "integer", "minimum": 1},
    "actual": {"type": ["string", "integer"], "description": "the actual version or media type"},
    "expected": {"type": ["string", "integer"], "description": "the expected version or media type"},
    "aggregate": TEXT,
    "stream": TEXT,
    "version": COUNT,
    "view": TEXT,
    "source": {"type": "string", "description": "the view that it was made from, or the captured database"},
    "declared": {"type": "integer", "description": "the version of the source that is declared now"},
    "key": TEXT,
    "store": TEXT,
    "generation": {"type": ["integer", "null"]},
    "command_id": TEXT,
    "command_type": TEXT,
    "observation_type": TEXT,
    "code": {"type": "string", "description": "the code of the rule; stable, for programs"},
    "limit": COUNT,
    "size_bytes": COUNT,
    "limit_bytes": COUNT,
    "timeout_s": {"type": "number"},
    "after": TEXT,
    "since": {"type": "string", "format": "date-time", "description": "since when the view is paused"},
    "waited_ms": COUNT,
    "reached": {"type": ["string", "null"], "description": "up to where the database is captured; null if unknown"},
    "lag_events": {"type": ["integer", "null"]},
}
"""The members of problem documents in addition to those of RFC 9457; `api.problems.MEANINGS` has them per type."""
PROBLEM_SCHEMA: Final[Schema] = {
    "title": "Problem",
    "description": "An RFC 9457 problem document. Its `type` decides which of the optional members it has.",
    "type": "object",
    "properties": {
        "type": {"type": "string", "description": "the kind of problem; stable, for programs"},
        "title": TEXT,
        "status": COUNT,
        "detail": {"type": "string", "description": "what is wrong with this request, for people"},
        "instance": {"type": "string", "description": "the path of the request"},
        **MEMBERS,
    },
    "required": ["type", "title", "status", "detail", "instance"],
    "additionalProperties": False,
}
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


class _Columns(ByType[Schema]):
    def of_decimal(self, kind: ColumnType) -> Schema:
        point = f"\\.[0-9]{{{kind.places}}}" if kind.places else ""
        pattern = f"^-?[0-9]{{1,{max(kind.digits - kind.places, 1)}}}{point}$"
        return {"type": "string", "format": "decimal", "pattern": pattern}


COLUMNS: Final = _Columns(_COLUMNS)


def filtered(kind: ColumnType) -> Schema:
    """The schema of a value that a column is compared with: a decimal may have any number of places."""
    return {"type": "string", "pattern": DECIMAL_PATTERN} if kind.is_decimal else COLUMNS[kind]


def header(name: str, schema: Schema, description: str) -> Schema:
    """A header parameter."""
    return {"name": name, "in": "header", "required": False, "schema": schema, "description": description}


TRACING: Final[tuple[Schema, ...]] = (
    header("X-Correlation-ID", VISIBLE, "stored in the events; the command id if omitted"),
    header("X-Causation-ID", VISIBLE, "the id of the event or command that caused this command; stored in the command"),
    header("traceparent", TEXT, "W3C trace context, stored in the events"),
)


class CommandLine(BaseModel):
    """One command per line."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    type: str
    body: dict[str, Any]
    id: Visible | None = Field(
        None, description="the command id, unique per stream, like Idempotency-Key; generated if missing"
    )
    expected_version: Annotated[int, Field(ge=0, lt=10**18)] | None = Field(
        None, description="the stream's expected version; 0: it must not exist"
    )
    correlation_id: Visible | None = None
    causation_id: Visible | None = None
    traceparent: str | None = None


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that may answer with these problems."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": content,
            "headers": HEADERS.get(status, {}),
        }
        for status in statuses
    }


class _Untitled(GenerateJsonSchema):
    """Without a title per field: it only repeats the field's name."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def body_components() -> Schema:
    """The components of all bodies, and of the types in them, by name."""
    adapters = [(kind.__name__, "serialization", TypeAdapter(kind)) for kind in BODIES]
    schemas_by_model, inner = TypeAdapter.json_schemas(
        adapters,  # type: ignore[arg-type]
        ref_template="#/components/schemas/{model}",
        schema_generator=_Untitled,
    )
    alone = {name: schema for (name, _), schema in schemas_by_model.items() if "$ref" not in schema}
    components: Schema = _linked(inner.get("$defs", {}) | alone)
    return components


def _linked(schema: Any) -> Any:
    """The schema with references to the components that are made elsewhere."""
    if isinstance(schema, dict):
        if COMPONENT in schema:
            return {"$ref": f"#/components/schemas/{schema[COMPONENT]}"}
        return {name: _linked(item) for name, item in schema.items()}
    return [_linked(item) for item in schema] if isinstance(schema, list) else schema
