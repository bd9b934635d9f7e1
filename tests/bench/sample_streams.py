"""Bench `streams`: how fast the query of each sample stream view reads all observations, as a rebuild does.

The floor is the same query in plain PySpark: the class's fields parsed from Kafka's records, a watermark, and the rows
as JSON into another topic, with the same state store, in the same session. Each is run twice; the second run counts.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from commands.declaring.observation import ObservationRegistry, to_entry
from compose.observed.buses import BUS_DOMAIN
from compose.observed.checkouts import CHECKOUT_DOMAIN
from compose.observed.payments import PAYMENT_DOMAIN
from compose.observed.report import Report
from compose.observed.sample import Domain
from compose.observed.sensors import SENSOR_DOMAIN
from compose.observed.shop_floor import SHOP_FLOOR_DOMAIN
from compose.observed.ski_lifts import SKI_LIFT_DOMAIN
from compose.observed.timelines import TIMELINE_DOMAIN
from compose.observed.web import WEB_DOMAIN
from eventlog.kafka_client import client_config
from eventlog.settings import LogSettings
from eventlog.topics import OBSERVATIONS, PATCHES
from projections.generations.stream_report import read_report
from projections.generations.waits import wait_for
from projections.registry import ViewRegistry
from projections.spark.kafka_source import connection
from projections.spark.session import SparkSettings, end, start_session
from projections.spark.streams.lateness import watermark_delay
from projections.spark.streams.query import output_mode, stream_session
from projections.spark.streams.runs import running
from projections.stores.store import Target
from projections.stream.sources import Observed, StreamSource
from projections.stream.view import StreamView
from projections.table.expressions import literal
from projections.table.types import SPARK_TYPES
from tests.bench._deployment import own_environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAMES = ("streams",)
DOMAINS = {
    "buses": BUS_DOMAIN,
    "checkouts": CHECKOUT_DOMAIN,
    "payments": PAYMENT_DOMAIN,
    "sensors": SENSOR_DOMAIN,
    "shop_floor": SHOP_FLOOR_DOMAIN,
    "ski_lifts": SKI_LIFT_DOMAIN,
    "timelines": TIMELINE_DOMAIN,
    "web": WEB_DOMAIN,
}
OBSERVATIONS_READ = 200_000
START = datetime(2026, 3, 1, tzinfo=UTC)
ROUNDS = 2


def run(name: str) -> Iterator[dict[str, Any]]:
    """A line per view."""
    session = start_session(SparkSettings.from_environment(os.environ), name="bench", threads=os.cpu_count() or 2)
    try:
        for domain, declared in DOMAINS.items():
            with own_environment() as (own, _), TemporaryDirectory(prefix="headwater-bench-") as folder:
                settings = replace(own, state=Path(folder))
                sent = _send(settings, domain, _reports(declared))
                for view in ViewRegistry.load((domain,)).of_kind(StreamView):
                    if not view.name.endswith("_late"):
                        yield _compared(session, settings, view, sent)
    finally:
        end(session)


def _compared(session: SparkSession, settings: LogSettings, view: StreamView, sent: int) -> dict[str, Any]:
    target = Target(view, 1)
    ours_s, plain_s = 0.0, 0.0
    for _ in range(ROUNDS):
        began = time.perf_counter()
        with running(session, settings, target, anew=True) as computed:
            wait_for(computed)
            ours_s = time.perf_counter() - began
        plain_s = _plain(session, settings, view)
    report = read_report(settings, target.tag)
    value, floor = round(sent / ours_s), round(sent / plain_s)
    return {
        "value": value,
        "unit": "observations/s",
        "floor": floor,
        "ratio": round(value / floor, 2),
        "view": view.name,
        "state_rows": report.state_rows if report else None,
        "state_mb": round(report.state_bytes / 1e6, 1) if report else None,
        "conditions": f"{view.name}: {sent:,} observations of its domain, in a session that has run it once; "
        "by hand: the same query in plain PySpark",
    }


def _reports(domain: Domain) -> list[Report]:
    """Traffic of the domain, one after another, until there are enough."""
    found: list[Report] = []
    start, number = START, 0
    while len(found) < OBSERVATIONS_READ:
        found += domain.traffic(random.Random(number), start, domain.length)
        start, number = start + domain.length, number + 1
    return found


def _send(settings: LogSettings, domain: str, reports: Sequence[Report]) -> int:
    registry, topic = ObservationRegistry.load((domain,)), settings.topic(OBSERVATIONS)
    producer = Producer(client_config(settings))
    for number, each in enumerate(reports):
        data = registry.types[each.type].model_validate(each.data)
        report = registry.reports[each.type](id=each.id, source=each.source, time=each.time, data=data)
        entry = to_entry(report, each.recorded, None, None)
        producer.produce(topic, entry.value, entry.key, timestamp=entry.timestamp_ms)
        if number % 10_000 == 0:
            producer.flush()
    producer.flush()
    return len(reports)


def _plain(session: SparkSession, settings: LogSettings, view: StreamView) -> float:
    """Seconds that the query takes without Headwater."""
    own = stream_session(session)
    own.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "true")
    rows = view.query(**{name: _plain_source(own, settings, source) for name, source in view.sources.items()})
    key = ", ".join(f"cast({name} as string)" for name in view.key_columns)
    written = rows.selectExpr(f"concat_ws('/', {key}) as key", "to_json(struct(*)) as value")
    with TemporaryDirectory(prefix="headwater-bench-") as checkpoint:
        began = time.perf_counter()
        query = (
            written.writeStream.format("kafka")
            .options(**connection(settings), topic=settings.topic(PATCHES))
            .outputMode(output_mode(view))
            .option("checkpointLocation", f"file://{checkpoint}")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return time.perf_counter() - began


def _plain_source(session: SparkSession, settings: LogSettings, source: StreamSource) -> DataFrame:
    if not isinstance(source, Observed):
        raise TypeError(f"{source.declaration}: only views over observations are measured")
    data = ", ".join(f"{name}: {SPARK_TYPES[kind]}" for name, kind in source.fields.items())
    fields = f"id string, type string, subject string, recordedtime timestamp, data struct<{data}>"
    kinds = ", ".join(literal(each) for each in source.types)
    reader = session.readStream.format("kafka").options(**connection(settings), startingOffsets="earliest")
    records = reader.option("subscribe", settings.topic(source.topic)).load()
    parsed = records.selectExpr("timestamp as time", f"from_json(cast(value as string), {literal(fields)}) as document")
    named = parsed.selectExpr("time", "document.*", "document.subject as source").where(f"type in ({kinds})")
    flat = named.selectExpr("*", "data.*").select(*source.columns)
    return flat.withWatermark("time", watermark_delay(source.late_by))
