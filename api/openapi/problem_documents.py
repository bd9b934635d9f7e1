"""How OpenAPI describes problem documents."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from headwater.api.meanings import MEDIA_TYPE
from headwater.api.openapi.components import CHALLENGE, RETRY_AFTER, Schema

HEADERS: Final[Mapping[int, Schema]] = {
    401: CHALLENGE,
    403: CHALLENGE,
    429: RETRY_AFTER,
    503: RETRY_AFTER,
    504: RETRY_AFTER,
}
TEXT: Final[Schema] = {"type": "string"}
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
"""The members of problem documents in addition to those of RFC 9457; `api.meanings.MEANINGS` has them per type."""
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
