"""Opaque cursors: where a page ended, bound to its query and not to the store that answered it.

The end of a page is the last row's values in the query's order, as rows have them in JSON. So a page that one store
began, another continues.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import orjson

from headwater.api.errors import BadParameter
from headwater.api.requests.filters import Condition, Filter
from headwater.api.requests.parameters import read_time
from headwater.api.requests.query import Query
from headwater.eventlog.integers import fits_64_bits
from headwater.projections.table.types import ColumnType, exact_value
from headwater.projections.view import View

STALE = "is not a cursor of this query: use `next` of its last page, or omit it to start again"


def write_cursor(view: View, query: Query, last: Sequence[Any]) -> str:
    """The cursor after a row with the values `last` in the query's order."""
    document = orjson.dumps([_digest(view, query), *last])
    return base64.urlsafe_b64encode(document).rstrip(b"=").decode()


def continued(view: View, query: Query, cursor: str) -> Query:
    """`query` from `cursor` on; raises BadParameter if the cursor is invalid, or of another query."""
    try:
        document = orjson.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
    except (ValueError, binascii.Error) as error:
        raise BadParameter("cursor", STALE) from error
    if not isinstance(document, list) or len(document) != len(query.order) + 1 or document[0] != _digest(view, query):
        raise BadParameter("cursor", STALE)
    if not all(each is None or isinstance(each, str | int | float) for each in document[1:]):
        raise BadParameter("cursor", STALE)
    return replace(query, beyond=tuple(document[1:]))


def typed_beyond(view: View, query: Query) -> tuple[Any, ...]:
    """The end of the previous page, as values of the columns' types; checked, because clients could make up cursors."""
    values = tuple(
        _value(ColumnType.FLOAT if query.computes(step) else view.types[step.column], each)
        for step, each in zip(query.order, query.beyond or (), strict=True)
    )
    if any(step.column == view.key_name and each is None for step, each in zip(query.order, values, strict=True)):
        raise BadParameter("cursor", STALE)  # the key is never null
    return values


def _value(kind: ColumnType, value: Any) -> Any:
    match kind:
        case _ if value is None:
            return None
        case ColumnType.TIME if isinstance(value, str):
            return read_time("cursor", value)
        case ColumnType.TEXT if isinstance(value, str) and "\0" not in value:
            return value
        case ColumnType.DATE if (found := exact_value(value, kind)) is not None:
            return date.fromisoformat(str(found))
        case ColumnType.UUID if (found := exact_value(value, kind)) is not None:
            return UUID(str(found))
        case _ if kind.is_decimal and isinstance(value, str) and (found := exact_value(value, kind)) is not None:
            return found
        case ColumnType.BOOLEAN if isinstance(value, bool):
            return value
        case ColumnType.INTEGER if type(value) is int and fits_64_bits(value):
            return value
        case ColumnType.FLOAT if type(value) in (int, float):
            return float(value) + 0.0  # -0.0 becomes 0.0: they are equal, but Elasticsearch sorts by the sign
        case _:
            raise BadParameter("cursor", STALE)


def _digest(view: View, query: Query) -> str:
    filters = sorted(map(_described, query.filters), key=orjson.dumps)
    parts: list[Any] = [view.tag, filters, [(step.column, step.descending) for step in query.order]]
    parts += [query.text, query.near, query.within_km]
    return hashlib.blake2b(orjson.dumps(parts), digest_size=8).hexdigest()


def _written(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | date | UUID) else value


def _described(condition: Condition) -> list[Any]:
    if isinstance(condition, Filter):
        values = [_written(each) for each in condition.values]
        return [condition.column, condition.operator, values]
    return sorted(map(_described, condition.filters), key=orjson.dumps)
