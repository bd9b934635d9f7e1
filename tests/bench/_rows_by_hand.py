"""What a rebuild does last, alone: rows that are in memory are written, by two processes with the clients' own means.

The floors of the stores in which writing takes longer than folding.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from typing import Any

import orjson
import valkey
from elasticsearch import Elasticsearch, helpers

from headwater.projections.settings import StoreSettings
from tests.bench._replay_by_hand import CHUNK, MAPPING

PROCESSES = 2
Row = dict[str, Any]
Write = Callable[[StoreSettings, str, list[Row]], None]

_rows: list[Row] = []
"""What this process writes."""


def in_elasticsearch(stores: StoreSettings, rows: int) -> float:
    """Seconds to index so many documents, until they are found."""
    index = f"{stores.environment}.alone_{uuid.uuid4().hex[:8]}"
    with Elasticsearch(stores.elasticsearch, request_timeout=60) as client, _writing(rows) as write:
        began = time.monotonic()
        bulk = {"number_of_replicas": 0, "refresh_interval": "-1"}
        client.indices.create(index=index, mappings={"dynamic": False, "properties": MAPPING}, settings=bulk)
        write(_index, stores, index)
        client.indices.put_settings(index=index, settings={"refresh_interval": "1s"})
        client.indices.refresh(index=index)
        taken = time.monotonic() - began
        client.indices.delete(index=index)
    return taken


def in_valkey(stores: StoreSettings, rows: int) -> float:
    """Seconds to set so many documents, pipelined."""
    prefix = f"{stores.environment}:alone_{uuid.uuid4().hex[:8]}:"
    with valkey.Valkey.from_url(stores.valkey) as client, _writing(rows) as write:
        began = time.monotonic()
        write(_set, stores, prefix)
        taken = time.monotonic() - began
        for key in client.scan_iter(match=f"{prefix}*", count=10_000):
            client.unlink(key)
    return taken


@contextmanager
def _writing(rows: int) -> Iterator[Callable[[Write, StoreSettings, str], None]]:
    """What lets processes that have their rows write them."""
    with get_context("spawn").Pool(PROCESSES, _make, (rows,)) as pool:
        pool.map(_ready, range(PROCESSES), 1)

        def write(how: Write, stores: StoreSettings, place: str) -> None:
            pool.map(partial(_write, how, stores, place), range(PROCESSES), 1)

        yield write


def _make(rows: int) -> None:
    _rows.extend(
        {"listing_id": f"L{number:06d}", "city": "Sacramento", "price": 250_020, "changes": 20, "gained": 210}
        for number in range(rows)
    )


def _ready(_: int) -> bool:
    return bool(_rows)


def _write(how: Write, stores: StoreSettings, place: str, part: int) -> None:
    how(stores, place, _rows[part::PROCESSES])


def _index(stores: StoreSettings, index: str, rows: list[Row]) -> None:
    actions = ({"_index": index, "_id": row["listing_id"], "_source": row} for row in rows)
    with Elasticsearch(stores.elasticsearch, request_timeout=60) as client:
        helpers.bulk(client, actions, chunk_size=CHUNK)


def _set(stores: StoreSettings, prefix: str, rows: list[Row]) -> None:
    with valkey.Valkey.from_url(stores.valkey) as client:
        for at in range(0, len(rows), CHUNK):
            pipeline: Any = client.pipeline(transaction=False)
            for row in rows[at : at + CHUNK]:
                pipeline.hset(prefix + row["listing_id"], "doc", orjson.dumps(row))
            pipeline.execute()
