"""Bench `saved_searches`: how many homes per second are matched with 100,000 saved searches, live.

The searches are read first. Then homes are sent at a rate, and the query runs as in production, up to its rows in
`patches`; loaders and stores are not measured. It keeps up if it ends soon after the last home.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
from confluent_kafka import Consumer, Producer, TopicPartition

from headwater.commands.declaring.observation import ObservationRegistry, to_entry
from headwater.eventlog.envelope import Envelope, encode_event, format_time, partition_of, timestamp_ms
from headwater.eventlog.kafka.client import client_config
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import EVENTS, OBSERVATIONS, PATCHES
from headwater.projections.spark.session import SparkSettings, end, start_session
from headwater.projections.spark.stream_queries.checkpoint import Checkpoint
from headwater.projections.spark.stream_queries.progress_sender import progress_sender
from headwater.projections.spark.stream_queries.query import TRIGGER_S, StreamQuery, stream_session
from headwater.samples.saved_searches.domain import SearchSaved
from headwater.samples.saved_searches.views import search_alerts
from tests.bench._deployment import own_environment
from tests.support.ordered_producer import ORDERED

NAMES = ("saved_searches",)
SEARCHES, CITIES = 100_000, 40
RATES = (1_000,)
SECONDS = 210
"""Longer than a row of a source is kept, which is late_after and two minutes."""
WORDS = [f"word{number}" for number in range(1_000)]


def run(name: str) -> Iterator[dict[str, Any]]:
    """A line for the searches, and one per rate of homes."""
    session = start_session(SparkSettings.from_environment(os.environ), name="bench", threads=os.cpu_count() or 2)
    try:
        with (
            own_environment() as (own, _),
            TemporaryDirectory(prefix="headwater-bench-") as folder,
            progress_sender(own) as progress,
        ):
            settings = replace(own, state=Path(folder))
            chance = random.Random(1)
            _save(settings, chance)
            tag = search_alerts.patch_tag(1)
            checkpoint = Checkpoint.of(settings, tag)
            checkpoint.create()
            began = time.perf_counter()
            streams = stream_session(session)
            query = StreamQuery(streams, progress, search_alerts, tag, settings, checkpoint).start(TRIGGER_S)
            try:
                query.processAllAvailable()
                took_s = time.perf_counter() - began
                yield _line(round(SEARCHES / took_s), "searches/s", f"{SEARCHES:,} searches are read, as in a rebuild")
                for rate in RATES:
                    began, before = time.perf_counter(), _ends(settings)
                    _offer(settings, chance, rate)
                    sent_s = time.perf_counter() - began
                    query.processAllAvailable()
                    took_s = time.perf_counter() - began
                    homes = rate * SECONDS
                    batches = [each["durationMs"]["triggerExecution"] / 1000 for each in query.recentProgress[-10:]]
                    alerts = _ends(settings) - before
                    yield _line(
                        round(homes / took_s),
                        "homes/s",
                        f"{homes:,} homes at {rate} per second against {SEARCHES:,} searches in {CITIES} cities; "
                        f"{alerts / homes:.1f} records of patches per home; done {took_s - sent_s:.1f} s after the "
                        f"last; batches of {min(batches):.1f} to {max(batches):.1f} s",
                    )
            finally:
                query.stop()
    finally:
        end(session)


def _line(value: float, unit: str, conditions: str) -> dict[str, Any]:
    return {"value": value, "unit": unit, "conditions": conditions}


def _save(settings: LogSettings, chance: random.Random) -> None:
    """What handlers append for the searches, 100 in a second, until now."""
    producer, topic = Producer(client_config(settings, **ORDERED)), settings.topic(EVENTS)
    start = datetime.now(UTC) - timedelta(seconds=SEARCHES / 100)
    for number in range(SEARCHES):
        at, stream = start + timedelta(seconds=number / 100), f"saved_search/s{number}"
        event = SearchSaved(search_id=f"s{number}", **_wanted(chance))
        command = Envelope(f"c{number}", "saved_search.save", stream, at, {})
        times = format_time(at), format_time(at)
        data = orjson.dumps(event.model_dump())
        value = encode_event(command, *times, "/headwater/saved_search", event.type, 1, 1, data)
        partition = partition_of(stream, settings.partitions)
        producer.produce(topic, value, f"{stream}/1", partition, timestamp=timestamp_ms(at))
        if number % 10_000 == 0:
            producer.flush()
    producer.flush()


def _offer(settings: LogSettings, chance: random.Random, rate: int) -> None:
    """Homes at this rate, as the API appends them."""
    producer, topic = Producer(client_config(settings, **ORDERED)), settings.topic(OBSERVATIONS)
    registry, began = ObservationRegistry.load(["saved_searches"]), time.perf_counter()
    for number in range(rate * SECONDS):
        time.sleep(max(0.0, began + number / rate - time.perf_counter()))
        now = datetime.now(UTC)
        body = {"id": f"{rate}-{number}", "source": "agent", "time": now.isoformat(), "data": _home(chance)}
        entry = to_entry(registry.read("home_offered", orjson.dumps(body)), now, None, None)
        producer.produce(topic, entry.value, entry.key, timestamp=entry.timestamp_ms)
        producer.poll(0)
    producer.flush()


def _wanted(chance: random.Random) -> dict[str, Any]:
    """A search for a price and beds, and often for two words or within a few kilometres."""
    city, lowest = chance.randrange(CITIES), chance.randrange(100_000, 900_000, 10_000)
    prices = {"min_price": lowest, "max_price": lowest + chance.randrange(10_000, 60_000, 10_000)}
    found = {"city": f"city {city}", **prices, "beds": chance.randrange(1, 5), "words": ""}
    found |= dict.fromkeys(("latitude", "longitude", "within_km"))
    match chance.choice(("words", "words", "place", "place", "")):
        case "words":
            return found | {"words": " ".join(chance.sample(WORDS, 2))}
        case "place":
            latitude, longitude = _place(chance, city)
            return found | {"latitude": latitude, "longitude": longitude, "within_km": chance.choice((0.5, 1.0, 2.0))}
        case _:
            return found


def _home(chance: random.Random) -> dict[str, Any]:
    city = chance.randrange(CITIES)
    latitude, longitude = _place(chance, city)
    return {
        "home": f"home-{chance.randrange(10**9)}",
        "city": f"city {city}",
        "price": chance.randrange(100_000, 1_000_000, 5_000),
        "beds": chance.randrange(1, 6),
        "description": " ".join(chance.sample(WORDS, 12)),
        "latitude": latitude,
        "longitude": longitude,
    }


def _place(chance: random.Random, city: int) -> Sequence[float]:
    return 40 + city / 4 + chance.uniform(-0.1, 0.1), 14 + chance.uniform(-0.1, 0.1)


def _ends(settings: LogSettings) -> int:
    """How many records `patches` has."""
    consumer = Consumer(client_config(settings) | {"group.id": "bench"})
    try:
        topic = settings.topic(PATCHES)
        return sum(
            consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)[1]
            for partition in range(settings.patch_partitions)
        )
    finally:
        consumer.close()
