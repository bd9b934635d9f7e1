"""Rebuilds of views in each store from two million events, each beside the same job written by hand.

In a process that has rebuilt before: in local processes, and with Spark. By hand: in PySpark, and for PostgreSQL as a
loop in Python, for the other stores only the last part of the job, which writes the rows.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from headwater.eventlog import topics
from headwater.eventlog.envelope import Envelope, encode, partition_of
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.settings import LogSettings
from headwater.projections.engines import EngineChoice, SparkQueries, new_engine
from headwater.projections.generations.rebuild.rebuild import Rebuilt, Step
from headwater.projections.generations.rebuild.rebuilder import Rebuilder
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.settings import StoreSettings
from headwater.projections.spark.session import SparkSettings, start_session
from headwater.projections.stores.declared import Cache, Elasticsearch, Postgres
from headwater.projections.table.computations import envelope
from headwater.projections.table.folds import Column, last
from headwater.projections.table.view import TableView
from headwater.samples.listings.domain import PriceChanged
from tests.bench import _replay_by_hand, _rows_by_hand
from tests.bench._commands import BY_HAND, command, environment
from tests.bench._deployment import own_environment
from tests.bench._replay_views import PRICES
from tests.bench.commands import sampled
from tests.support.ordered_producer import IN_BULK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = int(os.environ.get("HEADWATER_BENCH_EVENTS", "2000000"))
STREAMS = 100_000
ROUNDS = 3
FIRST_MS = 1_767_323_045_000
WRITING = "writing the same rows by hand from the memory of two processes"

WIDE: Mapping[str, Column] = {
    "listing_id": last({PriceChanged: "listing_id"}),
    "city": last({PriceChanged: "city"}),
    "price": last({PriceChanged: "price"}),
}


Floor = Callable[[LogSettings, StoreSettings], float]


@dataclass(frozen=True)
class Job:
    """A view, how many rows it has, and the same job by hand in PySpark (seconds).

    floor: seconds of what Headwater is compared with; None: PySpark. of: what that is.
    """

    view: TableView
    rows: int
    by_hand: Callable[[SparkSession, LogSettings, StoreSettings], float]
    floor: Floor | None = None
    of: str = ""


def _loop_by_hand(settings: LogSettings, stores: StoreSettings) -> float:
    return command(BY_HAND, environment(settings, stores, ""))[0]


JOBS = {
    "replay_postgres": Job(
        TableView(name="bench_prices", key="listing_id", columns=PRICES, stores=(Postgres(),)),
        STREAMS,
        _replay_by_hand.prices_in_postgres,
        _loop_by_hand,
        "a Python loop by hand in two new processes",
    ),
    "replay_postgres_wide": Job(
        TableView(name="bench_changes", key=envelope("id"), key_name="id", columns=WIDE, stores=(Postgres(),)),
        EVENTS,
        _replay_by_hand.changes_in_postgres,
    ),
    "replay_elasticsearch": Job(
        TableView(name="bench_prices", key="listing_id", columns=PRICES, stores=(Elasticsearch(),)),
        STREAMS,
        _replay_by_hand.prices_in_elasticsearch,
        lambda _, stores: _rows_by_hand.in_elasticsearch(stores, STREAMS),
        WRITING,
    ),
    "replay_cache": Job(
        TableView(name="bench_prices", key="listing_id", columns=PRICES, stores=(Cache(),)),
        STREAMS,
        _replay_by_hand.prices_in_valkey,
        lambda _, stores: _rows_by_hand.in_valkey(stores, STREAMS),
        WRITING,
    ),
}
NAMES = tuple(JOBS)


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
    """The median of ROUNDS rebuilds of each kind, in turn with the jobs by hand, after one round that nobody counts."""
    job = JOBS[name]
    with prepared() as bench:
        taken: dict[str, list[float]] = {"local": [], "spark": [], "pyspark": [], "floor": []}
        writing, first, phases = list[float](), 0, dict[str, float]()
        for number in range(ROUNDS + 1):
            local = rebuild(bench, job, EngineChoice.LOCAL)
            seconds = {
                "local": local.rebuilt.seconds,
                "spark": rebuild(bench, job, EngineChoice.SPARK).rebuilt.seconds,
                "pyspark": job.by_hand(bench.session, bench.settings, bench.stores),
            }
            seconds["floor"] = job.floor(bench.settings, bench.stores) if job.floor else seconds["pyspark"]
            if number == 0:
                first = round(EVENTS / seconds["local"])
                continue
            for each, took in seconds.items():
                taken[each].append(took)
            writing.append(local.writing_s)
            phases = {phase: round(took, 2) for phase, took in local.rebuilt.phases.items()}
        rates = {each: round(EVENTS / statistics.median(all_of)) for each, all_of in taken.items()}
        yield {
            "value": rates["local"],
            "unit": "events/s",
            "conditions": f"{EVENTS} events of {bench.event_bytes:.0f} bytes to {job.rows} rows, from the start of the "
            "rebuild to the swap, in local processes, by a process that has rebuilt before, "
            f"{bench.settings.partitions} partitions, {os.cpu_count()} cores shared with the servers; median of "
            f"{ROUNDS}; floor: "
            f"{job.of or 'by hand in PySpark'}; spark, pyspark: in a session that has folded before",
            **({} if job.of == WRITING else {"floor": rates["floor"], "ratio": _ratio(taken["floor"], taken["local"])}),
            "spark": rates["spark"],
            "spark_ratio": _ratio(taken["floor"], taken["spark"]),
            "pyspark": rates["pyspark"],
            # from the last event to the last row and the indexes, beside rows that are written alone
            **({"writing_s": _median(writing), "alone_s": _median(taken["floor"])} if job.of == WRITING else {}),
            **({"ratio": _ratio(taken["floor"], writing)} if job.of == WRITING else {}),
            "first": first,
            "startup_s": round(bench.startup_s, 2),
            "phases_s": phases,
            "live_heap_mb": round(live_heap_mb(bench.session)),
            "all": [round(EVENTS / each) for each in taken["local"]],
        }


def _median(seconds: Sequence[float]) -> float:
    return round(statistics.median(seconds), 2)


def _ratio(floors: Sequence[float], ours: Sequence[float]) -> float:
    """How fast we are compared with the floor of the same round, in the median."""
    return _median([floor / our for floor, our in zip(floors, ours, strict=True)])


@contextmanager
def prepared() -> Iterator[Bench]:
    """An environment with a full log, and a session."""
    with own_environment() as (settings, stores), closing(KafkaLog(settings)) as log:
        size = fill(settings, log)
        began = time.monotonic()
        session = start_session(SparkSettings.from_environment(os.environ), name="bench", threads=os.cpu_count() or 2)
        yield Bench(settings, stores, log, session, time.monotonic() - began, size)
        session.stop()


def fill(
    settings: LogSettings,
    log: KafkaLog,
    events: int = EVENTS,
    *,
    first: int = 0,
    traced_every: int = 0,
    older_every: int = 0,
    **producing: str,
) -> float:
    """Append so many events: each listing is repriced in turn. Returns the mean size of a record's value in bytes.

    first: the number of events that are there. traced_every: of so many events, one has a sampled trace context; 0:
    none. older_every: the same of events of version 1, whose `price` was `amount`; all others are of version 2; 0: all
    are of version 1, with `price`. producing: further settings of the producer.
    """
    producer = bulk_producer(log, **producing)
    topic, total = settings.topic(topics.EVENTS), 0
    marks = "listing/L@@@@@@", "@version@", "@price@"
    sample = Envelope(
        "listing/L@@@@@@/@version@",
        PriceChanged.type,
        "listing/L@@@@@@",
        datetime.fromtimestamp(FIRST_MS / 1000, UTC),
        {"listing_id": "L@@@@@@", "city": "Sacramento", "price": "@price@", "previous_price": 250000},
        data_version=2 if older_every else 1,
        sequence=987654321,
    )
    text = encode(sample).decode().replace('"@price@"', "@price@").replace(":987654321", ":@version@")
    for number in range(first, first + events):
        listing, version = f"L{number % STREAMS:06d}", number // STREAMS + 1
        value = (
            text.replace("L@@@@@@", listing).replace(marks[1], str(version)).replace(marks[2], str(250000 + version))
        )
        if traced_every and number % traced_every == 0:
            value = f'{{"traceparent":"{sampled(number)}",{value[1:]}'
        if older_every and number % older_every == 0:
            value = value.replace('"dataversion":2', '"dataversion":1').replace('"price":', '"amount":')
        stream = f"listing/{listing}"
        partition = partition_of(stream, settings.partitions)
        producer.produce(topic, value, f"{stream}/{version}", partition, timestamp=FIRST_MS + number)
        total += len(value)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise TimeoutError("the events could not be produced")
    return total / events


def bulk_producer(log: KafkaLog, **settings: str) -> Producer:
    """A producer for millions of records."""
    return Producer(
        log.client(
            **IN_BULK,
            **{"queue.buffering.max.kbytes": 1 << 20},
            **{name.replace("_", "."): value for name, value in settings.items()},
        )
    )


def live_heap_mb(session: SparkSession) -> float:
    """What the driver's JVM holds once its garbage is collected."""
    jvm: Any = session._jvm
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 1e6


@dataclass
class Timed:
    """A rebuild. writing_s: from when all records were read until the rows are there."""

    rebuilt: Rebuilt
    writing_s: float


def rebuild(bench: Bench, job: Job, choice: EngineChoice) -> Timed:
    """One rebuild; its seconds end with the swap."""
    generations = Generations(bench.stores.postgres, bench.settings.environment)
    generations.prepare()
    engine = new_engine(bench.settings, bench.log, lambda: bench.session, choice)
    queries = SparkQueries(bench.settings, lambda: bench.session)
    at: dict[str, float] = {}

    def noted(step: Step) -> None:
        if step.phase != "bulk" or (step.total and step.done >= step.total):
            at.setdefault("read" if step.phase == "bulk" else step.phase, time.monotonic())

    rebuilder = Rebuilder(
        bench.settings, bench.stores, bench.log, generations, engine, queries, taken_over=lambda _: False
    )
    rebuilt = rebuilder.rebuild(job.view, noted)
    if (rebuilt.rows, rebuilt.events) != (job.rows, EVENTS):
        raise AssertionError(f"{rebuilt.events} events made {rebuilt.rows} rows")
    return Timed(rebuilt, at["catch-up"] - at["read"])
