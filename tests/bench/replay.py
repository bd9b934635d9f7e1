"""A rebuild of a PostgreSQL view from two million events, and the same job written by hand in PySpark."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import adbc_driver_postgresql.dbapi as adbc
import psycopg
import pyarrow as pa
from confluent_kafka import Producer

from commands.aggregates.listing import PriceChanged
from eventlog import admin, topics
from eventlog.envelope import Envelope, encode, partition_of
from eventlog.kafka import KafkaLog
from eventlog.settings import LogSettings
from projections.building import Rebuilt
from projections.expressions import minus
from projections.folds import add, count, last
from projections.generations import Generations
from projections.rebuild import Rebuilder
from projections.settings import StoreSettings
from projections.spark.session import SparkSettings, start_session
from projections.view import Postgres, TableView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ("replay_postgres",)
EVENTS = int(os.environ.get("HEADWATER_BENCH_EVENTS", "2000000"))
STREAMS = 100_000
ROUNDS = 3
FIRST_MS = 1_767_323_045_000

prices = TableView(
    name="bench_prices",
    key="listing_id",
    columns={
        "city": last({PriceChanged: "city"}),
        "price": last({PriceChanged: "price"}),
        "changes": count(PriceChanged),
        "gained": add({PriceChanged: minus("price", "previous_price")}),
    },
    stores=(Postgres(),),
)


@dataclass(frozen=True)
class Bench:
    """A deployment of its own with EVENTS in its log, and a running Spark session."""

    settings: LogSettings
    stores: StoreSettings
    log: KafkaLog
    session: SparkSession
    startup_s: float
    event_bytes: float


def run(name: str) -> Iterator[dict[str, Any]]:
    """The median of ROUNDS rebuilds, each beside the floor, in turn."""
    with prepared() as bench:
        ours, floors, phases = [], [], {}
        for _ in range(ROUNDS):
            rebuilt = rebuild(bench)
            ours.append(EVENTS / rebuilt.seconds)
            phases = {phase: round(seconds, 2) for phase, seconds in rebuilt.phases.items()}
            floors.append(EVENTS / by_hand(bench))
        value, floor = sorted(ours)[ROUNDS // 2], sorted(floors)[ROUNDS // 2]
        yield {
            "value": round(value),
            "unit": "events/s",
            "conditions": f"{EVENTS} events of {bench.event_bytes:.0f} bytes to {STREAMS} rows, from the start of the "
            f"rebuild to the swap, Spark session running, {bench.settings.partitions} partitions, "
            f"{os.cpu_count()} cores shared with the servers; median of {ROUNDS}",
            "floor": round(floor),
            "ratio": round(value / floor, 2),
            "startup_s": round(bench.startup_s, 2),
            "phases_s": phases,
            "all": [round(each) for each in ours],
        }


@contextmanager
def prepared() -> Iterator[Bench]:
    """Topics and a schema of their own, filled, and removed afterwards."""
    settings = replace(LogSettings.from_environment(os.environ), environment=f"bench_{uuid.uuid4().hex[:8]}")
    stores = replace(StoreSettings.from_environment(os.environ), environment=settings.environment)
    admin.prepare(settings)
    log = KafkaLog(settings)
    try:
        size = fill(settings, log)
        began = time.monotonic()
        session = start_session(SparkSettings.from_environment(os.environ), name="bench", threads=os.cpu_count() or 2)
        yield Bench(settings, stores, log, session, time.monotonic() - began, size)
        session.stop()
    finally:
        log.close()
        admin.remove(settings)
        with psycopg.connect(stores.postgres) as connection:
            connection.execute(f'DROP SCHEMA IF EXISTS "{settings.environment}" CASCADE')


def fill(settings: LogSettings, log: KafkaLog, events: int = EVENTS) -> float:
    """Append so many events: each listing is repriced in turn. Returns the mean size of a record's value in bytes."""
    producer = Producer(
        log.client(
            **{"linger.ms": 20, "queue.buffering.max.messages": 2_000_000, "queue.buffering.max.kbytes": 1 << 20}
        )
    )
    topic, total = settings.topic(topics.EVENTS), 0
    marks = "listing/L@@@@@@", "@version@", "@price@"
    sample = Envelope(
        "listing/L@@@@@@/@version@",
        PriceChanged.type,
        "listing/L@@@@@@",
        datetime.fromtimestamp(FIRST_MS / 1000, UTC),
        {"listing_id": "L@@@@@@", "city": "Sacramento", "price": "@price@", "previous_price": 250000},
        sequence=987654321,
    )
    text = encode(sample).decode().replace('"@price@"', "@price@").replace(":987654321", ":@version@")
    for number in range(events):
        listing, version = f"L{number % STREAMS:06d}", number // STREAMS + 1
        value = (
            text.replace("L@@@@@@", listing).replace(marks[1], str(version)).replace(marks[2], str(250000 + version))
        )
        stream = f"listing/{listing}"
        partition = partition_of(stream, settings.partitions)
        producer.produce(topic, value, f"{stream}/{version}", partition, timestamp=FIRST_MS + number)
        total += len(value)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise TimeoutError("the events could not be produced")
    return total / events


def rebuild(bench: Bench) -> Rebuilt:
    """One rebuild; its seconds end with the swap."""
    generations = Generations(bench.stores.postgres, bench.settings.environment)
    generations.prepare()
    rebuilder = Rebuilder(bench.settings, bench.stores, bench.log, generations, lambda: bench.session)
    rebuilt = rebuilder.rebuild(prices)
    if (rebuilt.rows, rebuilt.events) != (STREAMS, EVENTS):
        raise AssertionError(f"{rebuilt.events} events made {rebuilt.rows} rows")
    return rebuilt


def by_hand(bench: Bench) -> float:
    """Seconds for the same fold and COPY, written in PySpark for this one view and with nothing around it."""
    url, schema, table = bench.stores.postgres, bench.settings.environment, f"by_hand_{uuid.uuid4().hex[:8]}"
    began = time.monotonic()
    with psycopg.connect(url) as connection:
        connection.execute(
            f'CREATE TABLE "{schema}".{table} (listing_id text, city text, price bigint, changes bigint, gained bigint)'
        )

    def copy(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = pa.Table.from_batches(list(batches))
        if rows.num_rows:
            with adbc.connect(url) as connection, connection.cursor() as cursor:
                cursor.adbc_ingest(table, rows, mode="append", db_schema_name=schema)
                connection.commit()
        yield pa.record_batch({"rows": pa.array([rows.num_rows], pa.int64())})

    data = "data struct<listing_id: string, city: string, price: bigint, previous_price: bigint>"
    events = (
        bench.session.read.format("kafka")
        .option("kafka.bootstrap.servers", bench.settings.bootstrap)
        .option("subscribe", bench.settings.topic(topics.EVENTS))
        .load()
        .selectExpr(f"from_json(cast(value as string), 'type string, sequence bigint, {data}') as event")
        .where(f"event.type = '{PriceChanged.type}'")
        .groupBy("event.data.listing_id")
        .agg(*_aggregates())
    )
    written = events.selectExpr("listing_id", "latest.city", "latest.price", "changes", "gained").mapInArrow(
        copy, "rows bigint"
    )
    rows = sum(row.rows for row in written.collect())
    with psycopg.connect(url) as connection:
        connection.execute(f'ALTER TABLE "{schema}".{table} ADD PRIMARY KEY (listing_id)')
    if rows != STREAMS:
        raise AssertionError(f"{rows} rows by hand")
    return time.monotonic() - began


def _aggregates() -> list[Any]:
    from pyspark.sql.functions import expr

    return [
        expr("max(struct(event.sequence, event.data.city, event.data.price)) as latest"),
        expr("count(*) as changes"),
        expr("sum(event.data.price - event.data.previous_price) as gained"),
    ]
