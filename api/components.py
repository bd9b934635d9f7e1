"""The OpenAPI document's fixed schemas, which do not depend on declarations."""

from __future__ import annotations

from typing import Any, Final

from projections.table.types import ColumnType

Schema = dict[str, Any]

POINT: Final[Schema] = {
    "type": "object",
    "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
    "required": ["lat", "lon"],
}
COLUMNS: Final[dict[ColumnType, Schema]] = {
    ColumnType.TEXT: {"type": "string"},
    ColumnType.INTEGER: {"type": "integer", "format": "int64"},
    ColumnType.FLOAT: {"type": "number", "format": "double"},
    ColumnType.BOOLEAN: {"type": "boolean"},
    ColumnType.TIME: {"type": "string", "format": "date-time"},
    ColumnType.POINT: POINT,
    ColumnType.JSON: {"type": "string", "description": "a JSON text"},
    ColumnType.LIST: {"type": "array", "items": {}},
}
TEXT: Final[Schema] = {"type": "string"}
POSITION: Final[Schema] = {"type": "string", "description": "partition:offset", "examples": ["3:1042"]}
EVENT_REFERENCE: Final[Schema] = {
    "type": "object",
    "properties": {"id": TEXT, "type": TEXT, "position": POSITION},
    "required": ["id", "type", "position"],
}
ACCEPTED: Final[Schema] = {
    "type": "object",
    "properties": {
        "command_id": TEXT,
        "stream": TEXT,
        "version": {"type": "integer", "minimum": 0},
        "events": {"type": "array", "items": EVENT_REFERENCE},
        "position": {
            "type": ["string", "null"],
            "description": "send it as after= to read your own write; null if nothing changed",
        },
        "links": {"type": "object", "additionalProperties": TEXT},
    },
    "required": ["command_id", "stream", "version", "events", "position", "links"],
}
RECEIPT: Final[Schema] = {
    "type": "object",
    "properties": {
        "command_id": TEXT,
        "type": TEXT,
        "stream": TEXT,
        "outcome": {"enum": ["accepted", "rejected", "conflict", "failed"]},
        "version": {"type": "integer", "minimum": 0},
        "events": {"type": "array", "items": EVENT_REFERENCE},
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "string", "description": "stable, for programs"},
                "message": TEXT,
                "expected": {"type": ["integer", "null"]},
                "actual": {"type": ["integer", "null"]},
            },
            "required": ["code", "message"],
        },
        "fingerprint": {"type": "string", "description": "digest of the command: type, body and expected version"},
        "time": {"type": "string", "format": "date-time"},
    },
    "required": ["command_id", "type", "stream", "outcome", "version", "events", "fingerprint", "time"],
}
POSITIONS: Final[Schema] = {"type": "string", "pattern": r"^\d{1,5}:\d{1,18}(,\d{1,5}:\d{1,18})*$"}
_IN_LOG: Final = r"((observations|cdc\.[A-Za-z0-9_.]{1,200})/)?\d{1,5}:\d{1,18}"
_IN_DATABASE: Final = r"[a-z][a-z0-9_]{0,23}@[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}"
AFTER: Final[Schema] = {
    "type": "string",
    "pattern": f"^({_IN_LOG}|{_IN_DATABASE})(,({_IN_LOG}|{_IN_DATABASE}))*$",
    "examples": ["3:1042", "0:977,observations/3:1042", "cdc.shop.public.customers/0:1042", "shop@0/1A2B3C8"],
}
CAPTURED_POSITION: Final[Schema] = {
    "type": "object",
    "properties": {
        "source": TEXT,
        "position": {
            "type": ["string", "null"],
            "description": "in the write-ahead log of the database; null if nothing is captured yet",
        },
        "time": {
            "type": ["string", "null"],
            "format": "date-time",
            "description": "of the last captured commit, by the clock of the database",
        },
        "tables": {
            "type": "object",
            "description": "the last positions in the topic of each table; null if it is empty",
            "additionalProperties": {"type": ["string", "null"]},
        },
        "snapshot": {
            "description": "the snapshot that is running",
            "oneOf": [
                {
                    "type": "object",
                    "properties": {
                        "kind": {"enum": ["initial", "incremental"]},
                        "state": TEXT,
                        "table": TEXT,
                        "rows": {"type": ["integer", "null"]},
                    },
                    "required": ["kind", "state", "table", "rows"],
                },
                {"type": "null"},
            ],
        },
    },
    "required": ["source", "position", "time", "tables", "snapshot"],
    "examples": [
        {
            "source": "shop",
            "position": "shop@0/1A2B3C8",
            "time": "2026-01-31T12:00:00.123Z",
            "tables": {
                "public.customers": "cdc.shop.public.customers/0:1042,cdc.shop.public.customers/1:977",
                "public.products": None,
            },
            "snapshot": None,
        }
    ],
}
ALL_STREAMS: Final[Schema] = {
    "type": "object",
    "properties": {
        "events": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "position": POSITION,
                    "event": {"$ref": "#/components/schemas/Event"},
                },
                "required": ["position", "event"],
            },
        },
        "unreadable": {
            "type": "array",
            "items": POSITION,
            "description": "positions of records that are not valid events",
        },
        "position": {**POSITIONS, "description": "where to continue: send it as `from`"},
        "links": {"type": "object", "additionalProperties": TEXT},
    },
    "required": ["events", "unreadable", "position", "links"],
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
MADE: Final[Schema] = {
    "type": "object",
    "description": "of a view made with `replay rebuild --as`: its source, when it was made, and of which events",
    "properties": {
        "view": {"type": "string", "description": "the view that it was made from"},
        "selection": {"type": "string", "description": "which events; empty: all"},
        "position": {"type": "string", "description": "the view has the events before this position"},
        "at": {"type": ["string", "null"], "format": "date-time"},
    },
    "required": ["view", "selection", "position", "at"],
}
VIEWS: Final[Schema] = {
    "type": "object",
    "properties": {
        "views": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": TEXT,
                    "doc": TEXT,
                    "key": TEXT,
                    "columns": {"type": "object", "additionalProperties": TEXT},
                    "lookups": {
                        "type": "object",
                        "description": "columns that are looked up in another view when a row is read",
                        "additionalProperties": {
                            "type": "object",
                            "properties": dict.fromkeys(("type", "view", "column", "on"), TEXT),
                            "required": ["type", "view", "column", "on"],
                        },
                    },
                    "stores": {"type": "array", "items": TEXT},
                    "version": {"type": "integer"},
                    "generation": {"type": ["integer", "null"], "description": "null: not built yet"},
                    "made": {"oneOf": [MADE, {"type": "null"}]},
                    "links": {"type": "object", "additionalProperties": TEXT},
                },
                "required": ["name", "key", "columns", "lookups", "stores", "version", "generation", "made"],
            },
        }
    },
    "required": ["views"],
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
HEALTH: Final[Schema] = {
    "type": "object",
    "properties": {"status": TEXT, "parts": {"type": "object", "additionalProperties": TEXT}},
    "required": ["status"],
}
ACCEPTED_HEADERS: Final[Schema] = {
    "ETag": {"description": "the stream's version, in quotes", "schema": TEXT},
    "Location": {"description": "the stream", "schema": TEXT},
}
COMMAND_ANSWER: Final[Schema] = {
    "type": "object",
    "description": "The answer to one line: `accepted` or `problem`.",
    "properties": {
        "line": {"type": "integer", "minimum": 1, "description": "the line number, from 1, including blank lines"},
        "id": {"type": ["string", "null"], "description": "the command id; null if it cannot be read from the line"},
        "status": {"type": "integer", "description": "the status that POST /commands/{type} answers"},
        "accepted": {"$ref": "#/components/schemas/Accepted"},
        "problem": {"$ref": "#/components/schemas/Problem"},
    },
    "required": ["line", "id", "status"],
}

REPORTED: Final[Schema] = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "type/source/id"},
        "position": {
            "type": "string",
            "description": "the position in the log of observations, which is not a position of an event",
            "examples": ["observations/3:1042"],
        },
    },
    "required": ["id", "position"],
}
REPORTED_LINES: Final[Schema] = {
    "type": "object",
    "properties": {
        "stored": {"type": "integer", "minimum": 0},
        "refused": {"type": "integer", "minimum": 0},
        "problems": {
            "type": "array",
            "description": "the problems of the first invalid lines",
            "items": {
                "type": "object",
                "properties": {
                    "line": {"type": "integer", "minimum": 1},
                    "problem": {"$ref": "#/components/schemas/Problem"},
                },
                "required": ["line", "problem"],
            },
        },
    },
    "required": ["stored", "refused", "problems"],
}
RETRY_AFTER: Final[Schema] = {
    "Retry-After": {"description": "seconds to wait before a retry", "schema": {"type": "string"}}
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
