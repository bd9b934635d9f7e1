"""Bench `streams`: how fast the query of each sample stream view reads all its records, as a rebuild does.

The floor is the same query in plain PySpark: the class's fields parsed from Kafka's records, a watermark, and the rows
as JSON into another topic, with the same state store, in the same session. Each is run twice; the second run counts.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from headwater.commands.declaring.observation import ObservationRegistry
from headwater.compose.samples.sales import facts
from headwater.eventlog.kafka.client import client_config
from headwater.eventlog.ports import Entry
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import PATCHES
from headwater.projections.generations.rebuild.engine import run_alone
from headwater.projections.generations.registry.state_files import read_report
from headwater.projections.registry import ViewRegistry
from headwater.projections.spark.live import connection
from headwater.projections.spark.session import SparkSettings, end, start_session
from headwater.projections.spark.stream_queries.frames import watermark_delay
from headwater.projections.spark.stream_queries.query import output_mode, stream_session
from headwater.projections.spark.stream_queries.running_query import running
from headwater.projections.stores.store import Target
from headwater.projections.stream.sources import StreamSource
from headwater.projections.stream.view import StreamView
from headwater.projections.table.expressions import literal
from headwater.projections.table.types import SPARK_TYPES
from tests.bench._deployment import own_environment
from tests.samples.buses import BUS_DOMAIN
from tests.samples.checkouts import CHECKOUT_DOMAIN
from tests.samples.observed import Domain
from tests.samples.payments import PAYMENT_DOMAIN
from tests.samples.sensors import SENSOR_DOMAIN
from tests.samples.shop_floor import SHOP_FLOOR_DOMAIN
from tests.samples.ski_lifts import SKI_LIFT_DOMAIN
from tests.samples.web import WEB_DOMAIN
from tests.support.ordered_producer import ORDERED
from tests.support.sample_entries import entry_of_fact, entry_of_report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAMES = ("streams",)
OBSERVED = {
    "buses": BUS_DOMAIN,
    "checkouts": CHECKOUT_DOMAIN,
    "payments": PAYMENT_DOMAIN,
    "sensors": SENSOR_DOMAIN,
    "shop_floor": SHOP_FLOOR_DOMAIN,
    "ski_lifts": SKI_LIFT_DOMAIN,
    "web": WEB_DOMAIN,
}
RECORDS_READ = 200_000
START = datetime(2026, 3, 1, tzinfo=UTC)
SALES_LENGTH = timedelta(minutes=20)
RATES_CHANGED = 50
"""Tax rates change rarely."""
ROUNDS = 2


def run(name: str) -> Iterator[dict[str, Any]]:
    """A line per view."""
    session = start_session(SparkSettings.from_environment(os.environ), name="bench", threads=os.cpu_count() or 2)
    try:
        for domain, traffic in traffics().items():
            with own_environment() as (own, _), TemporaryDirectory(prefix="headwater-bench-") as folder:
                settings = replace(own, state=Path(folder))
                sent = _send(settings, traffic)
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
            run_alone(computed)
            ours_s = time.perf_counter() - began
        plain_s = _plain(session, settings, view)
    report = read_report(settings, target.tag)
    value, floor = round(sent / ours_s), round(sent / plain_s)
    return {
        "value": value,
        "unit": "records/s",
        "floor": floor,
        "ratio": round(value / floor, 2),
        "view": view.name,
        "state_rows": report.state_rows if report else None,
        "state_mb": round(report.state_bytes / 1e6, 1) if report else None,
        "conditions": f"{view.name}: {sent:,} observations or events of its domain, in a session that has run it once; "
        "by hand: the same query in plain PySpark",
    }


def traffics() -> dict[str, Callable[[int], list[Entry]]]:
    """By sample, what makes the records of a round; each round is after the one before."""
    return {**{name: partial(_observed, name, domain) for name, domain in OBSERVED.items()}, "sales": _sales}


def _observed(name: str, domain: Domain, number: int) -> list[Entry]:
    registry = ObservationRegistry.load((name,))
    reports = domain.traffic.reports(
        random.Random(number), START + number * domain.traffic.length, domain.traffic.length
    )
    return [entry_of_report(registry, report) for report in reports]


def _sales(number: int) -> list[Entry]:
    """With other customers in each round."""
    found = []
    for fact in facts(random.Random(number), START + number * SALES_LENGTH, SALES_LENGTH):
        if fact.type == "tax_rate.changed" and (number or fact.sequence > RATES_CHANGED):
            continue
        data = dict(fact.data)
        stream = fact.stream
        if customer := data.get("customer"):
            data["customer"] = f"{customer} {number}"
            stream = stream.replace(customer, data["customer"])
        found.append(entry_of_fact(fact._replace(stream=stream, data=data)))
    return found


def _send(settings: LogSettings, traffic: Callable[[int], list[Entry]]) -> int:
    """Append rounds until there are enough records; returns their number."""
    producer, sent, number = Producer(client_config(settings, **ORDERED)), 0, 0
    while sent < RECORDS_READ:
        entries = traffic(number)
        for entry in entries:
            producer.produce(settings.topic(entry.topic), entry.value, entry.key, timestamp=entry.timestamp_ms)
        producer.flush()
        sent, number = sent + len(entries), number + 1
    return sent


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
    data = ", ".join(f"{name}: {SPARK_TYPES[kind]}" for name, kind in source.fields.items())
    envelope = "id string, type string, subject string, sequence bigint, recordedtime timestamp"
    fields = f"{envelope}, data struct<{data}>"
    kinds = ", ".join(literal(type_) for type_ in source.types)
    reader = session.readStream.format("kafka").options(**connection(settings), startingOffsets="earliest")
    records = reader.option("subscribe", settings.topic(source.topic)).load()
    parsed = records.selectExpr("timestamp as time", f"from_json(cast(value as string), {literal(fields)}) as document")
    named = parsed.selectExpr("time", "document.*", "document.subject as source", "document.subject as stream")
    # as Headwater: records of every type move the watermark, else the rows that wait for a rare type are never computed
    watermarked = named.withWatermark("time", watermark_delay(source.late_by)).where("spark_partition_id() >= 0")
    return watermarked.where(f"type in ({kinds})").selectExpr("*", "data.*").select(*source.columns)
