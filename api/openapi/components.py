"""The OpenAPI document's fixed schemas of parameters, headers, columns and events; documents.py has those of bodies."""

from __future__ import annotations

from typing import Any, Final

from headwater.api.requests.parameters import DECIMAL_PATTERN
from headwater.projections.table.types import ByType, ColumnType

Schema = dict[str, Any]

POINT: Final[Schema] = {
    "type": "object",
    "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
    "required": ["lat", "lon"],
}


class _Columns(ByType[Schema]):
    def of_decimal(self, kind: ColumnType) -> Schema:
        point = f"\\.[0-9]{{{kind.places}}}" if kind.places else ""
        pattern = f"^-?[0-9]{{1,{max(kind.digits - kind.places, 1)}}}{point}$"
        return {"type": "string", "format": "decimal", "pattern": pattern}


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
COLUMNS: Final = _Columns(_COLUMNS)


def filtered(kind: ColumnType) -> Schema:
    """The schema of a value that a column is compared with: a decimal may have any number of places."""
    return {"type": "string", "pattern": DECIMAL_PATTERN} if kind.is_decimal else COLUMNS[kind]


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


def header(name: str, schema: Schema, description: str) -> Schema:
    """A header parameter."""
    return {"name": name, "in": "header", "required": False, "schema": schema, "description": description}


VISIBLE: Final[Schema] = {"type": "string", "pattern": "^[\\x21-\\x7e]{1,255}$"}
TRACING: Final[tuple[Schema, ...]] = (
    header("X-Correlation-ID", VISIBLE, "stored in the events; the command id if omitted"),
    header("X-Causation-ID", VISIBLE, "the id of the event or command that caused this command; stored in the command"),
    header("traceparent", TEXT, "W3C trace context, stored in the events"),
)
