"""What a rebuild does, written in PySpark for one view at a time, with nothing around it: the floors of the benches."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import adbc_driver_postgresql.dbapi as adbc
import orjson
import psycopg
import pyarrow as pa
import valkey
from elasticsearch import Elasticsearch, helpers

from headwater.eventlog import topics
from headwater.eventlog.settings import LogSettings
from headwater.projections.settings import StoreSettings
from headwater.samples.listings.domain import PriceChanged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHUNK = 1_000
DATA = "data struct<listing_id: string, city: string, price: bigint, previous_price: bigint>"
MAPPING = {
    "listing_id": {"type": "keyword"},
    "city": {"type": "keyword"},
    "price": {"type": "long"},
    "changes": {"type": "long"},
    "gained": {"type": "long"},
}

Copy = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def prices_in_postgres(session: SparkSession, settings: LogSettings, stores: StoreSettings) -> float:
    """Seconds to fold and COPY."""
    columns = "listing_id text, city text, price bigint, changes bigint, gained bigint"
    return _in_postgres(_prices(session, settings), stores, columns, "listing_id")


def changes_in_postgres(session: SparkSession, settings: LogSettings, stores: StoreSettings) -> float:
    """Seconds to COPY a row an event."""
    rows = _events(session, settings).selectExpr(
        "event.id", "event.data.listing_id", "event.data.city", "event.data.price"
    )
    return _in_postgres(rows, stores, "id text, listing_id text, city text, price bigint", "id")


def prices_in_elasticsearch(session: SparkSession, settings: LogSettings, stores: StoreSettings) -> float:
    """Seconds to fold and to index through the client's own bulk helper."""
    url, index = stores.elasticsearch, f"{stores.environment}.by_hand_{uuid.uuid4().hex[:8]}"
    began = time.monotonic()
    with Elasticsearch(url) as client:
        bulk = {"number_of_replicas": 0, "refresh_interval": "-1"}
        client.indices.create(index=index, mappings={"dynamic": False, "properties": MAPPING}, settings=bulk)

        def copy(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            actions = (
                {"_index": index, "_id": row["listing_id"], "_source": row}
                for batch in batches
                for row in batch.to_pylist()
            )
            with Elasticsearch(url, request_timeout=60) as own:
                written, _ = helpers.bulk(own, actions, chunk_size=CHUNK)
            yield _count(written)

        _write(_prices(session, settings), copy)
        client.indices.put_settings(index=index, settings={"refresh_interval": "1s"})
        client.indices.refresh(index=index)
        taken = time.monotonic() - began
        client.indices.delete(index=index)
    return taken


def prices_in_valkey(session: SparkSession, settings: LogSettings, stores: StoreSettings) -> float:
    """Seconds to fold and to set a document a key, pipelined."""
    url, prefix = stores.valkey, f"{stores.environment}:by_hand_{uuid.uuid4().hex[:8]}:"

    def copy(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        written = 0
        with valkey.Valkey.from_url(url) as client:
            for batch in batches:
                rows = batch.to_pylist()
                for at in range(0, len(rows), CHUNK):
                    pipeline: Any = client.pipeline(transaction=False)
                    for row in rows[at : at + CHUNK]:
                        pipeline.hset(prefix + row["listing_id"], "doc", orjson.dumps(row))
                    pipeline.execute()
                written += len(rows)
        yield _count(written)

    began = time.monotonic()
    _write(_prices(session, settings), copy)
    taken = time.monotonic() - began
    with valkey.Valkey.from_url(url) as client:
        for key in client.scan_iter(match=f"{prefix}*", count=10_000):
            client.unlink(key)
    return taken


def _in_postgres(rows: DataFrame, stores: StoreSettings, columns: str, key: str) -> float:
    url, schema, table = stores.postgres, stores.environment, f"by_hand_{uuid.uuid4().hex[:8]}"

    def copy(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = next(batches, None)
        if first is None:
            return
        written = first.num_rows

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal written
            yield first
            for batch in batches:
                written += batch.num_rows
                yield batch

        with adbc.connect(url) as connection, connection.cursor() as cursor:
            reader = pa.RecordBatchReader.from_batches(first.schema, counted())
            cursor.adbc_ingest(table, reader, mode="append", db_schema_name=schema)
            connection.commit()
        yield _count(written)

    began = time.monotonic()
    with psycopg.connect(url) as connection:
        connection.execute(f'CREATE TABLE "{schema}".{table} ({columns})')
    _write(rows, copy)
    with psycopg.connect(url) as connection:
        connection.execute(f'ALTER TABLE "{schema}".{table} ADD PRIMARY KEY ({key})')
    taken = time.monotonic() - began
    with psycopg.connect(url) as connection:
        connection.execute(f'DROP TABLE "{schema}".{table}')
    return taken


def _events(session: SparkSession, settings: LogSettings) -> DataFrame:
    return (
        session.read.format("kafka")
        .option("kafka.bootstrap.servers", settings.bootstrap)
        .option("subscribe", settings.topic(topics.EVENTS))
        .load()
        .selectExpr(f"from_json(cast(value as string), 'id string, type string, sequence bigint, {DATA}') as event")
        .where(f"event.type = '{PriceChanged.type}'")
    )


def _prices(session: SparkSession, settings: LogSettings) -> DataFrame:
    return (
        _events(session, settings)
        .groupBy("event.data.listing_id")
        .agg(*_aggregates())
        .selectExpr("listing_id", "latest.city", "latest.price", "changes", "gained")
    )


def _aggregates() -> Sequence[Any]:
    from pyspark.sql.functions import expr

    return [
        expr("max(struct(event.sequence, event.data.city, event.data.price)) as latest"),
        expr("count(*) as changes"),
        expr("sum(event.data.price - event.data.previous_price) as gained"),
    ]


def _count(written: int) -> pa.RecordBatch:
    return pa.record_batch({"rows": pa.array([written], pa.int64())})


def _write(rows: DataFrame, copy: Copy) -> None:
    if not sum(row.rows for row in rows.mapInArrow(copy, "rows bigint").collect()):
        raise AssertionError("nothing was written by hand")
