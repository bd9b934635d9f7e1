"""Events of some aggregates, as the view `streams` has them in PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import psycopg

from headwater.compose.samples.sample import Deployment


class Happened(NamedTuple):
    """An event."""

    stream: str
    sequence: int
    type: str
    data: Mapping[str, Any]


def happened(deployment: Deployment, aggregates: Sequence[str]) -> list[Happened]:
    """All events of the aggregates with these names."""
    query = psycopg.sql.SQL(
        "SELECT stream, sequence, type, record FROM {} WHERE split_part(stream, '/', 1) = ANY(%s)"
    ).format(psycopg.sql.Identifier(deployment.environment, "streams"))
    with psycopg.connect(deployment.endpoints.postgres) as connection:
        rows = connection.execute(query, [list(aggregates)]).fetchall()
    return [Happened(stream, sequence, kind, json.loads(record)["data"]) for stream, sequence, kind, record in rows]
