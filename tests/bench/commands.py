"""Commands through HEADWATER_HANDLERS handler processes, and the same records written by hand."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import orjson
from confluent_kafka import Consumer, Producer, TopicPartition

from headwater.eventlog import topics
from headwater.eventlog.envelope import HEARTBEAT, Envelope, decode, encode, partition_of, timestamp_ms
from headwater.eventlog.heartbeats import is_heartbeat_key
from headwater.eventlog.kafka import admin
from headwater.eventlog.kafka.client import client_config
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.settings import LogSettings
from tests.support.ordered_producer import IN_BULK

NAMES = ("commands",)
COMMANDS = 240_000
STREAMS = 48_000
BATCH = 2_000
LIMIT_S = 180.0


def run(name: str) -> Iterator[dict[str, Any]]:
    """Decide COMMANDS pre-produced commands; the floor writes the records that came of it, without deciding."""
    settings = LogSettings.from_environment(os.environ)
    with deployment(settings) as ours, deployment(settings) as floor:
        submit_commands(ours)
        submit_commands(floor)
        seconds, cpu_seconds = handle(ours)
        # it takes two seconds, so that one stall of the broker would triple it
        floor_seconds, floor_cpu_seconds = sorted(by_hand(ours, floor) for _ in range(3))[1]
        yield {
            "value": round(COMMANDS / seconds),
            "unit": "commands/s",
            "conditions": f"{COMMANDS} commands of {STREAMS} listings in {ours.partitions} partitions, "
            f"{os.environ.get('HEADWATER_HANDLERS', '1')} handler processes, batches of at most {BATCH}, JSON; "
            "from the first transaction to the last receipt read back",
            "floor": round(COMMANDS / floor_seconds),
            "ratio": round(floor_seconds / seconds, 2),
            "cpu_us_per_command": round(cpu_seconds / COMMANDS * 1e6, 1),
            "floor_cpu_us_per_command": round(floor_cpu_seconds / COMMANDS * 1e6, 1),
        }


@contextmanager
def deployment(settings: LogSettings) -> Iterator[LogSettings]:
    """Topics of their own, deleted afterwards."""
    own = replace(settings, environment=f"bench_{uuid.uuid4().hex[:8]}")
    admin.prepare(own)
    try:
        yield own
    finally:
        admin.remove(own)


def submit_commands(settings: LogSettings, streams: int = STREAMS, traced_every: int = 0) -> int:
    """Each listing is listed, repriced three times and put under offer, all listings in turn; returns their number.

    traced_every: of so many commands, one has a sampled trace context; 0: none.
    """
    now = datetime.now(UTC)
    listed = {"city": "Sacramento", "zip": "z95838", "property_type": "Residential", "beds": 2, "baths": 1.0}
    listed |= {"square_feet": 836, "price": 59_222, "latitude": 38.631913, "longitude": -121.434879}
    steps: list[tuple[str, Mapping[str, object]]] = [("listing.list_property", listed)]
    steps += [("listing.change_price", {"price": price}) for price in (58_000, 57_000, 56_000)]
    steps.append(("listing.put_under_offer", {"offer": 55_500}))
    producer = Producer(client_config(settings, **IN_BULK))
    for step, (command_type, body) in enumerate(steps):
        for number in range(streams):
            stream = f"listing/L{number}"
            data = {"listing_id": f"L{number}", **body}
            trace = sampled(number) if traced_every and number % traced_every == 0 else None
            command_id = f"{number}-{step}-{uuid.uuid4().hex[:16]}"
            envelope = Envelope(command_id, command_type, stream, now, data, traceparent=trace)
            producer.produce(
                settings.topic(topics.COMMANDS),
                encode(envelope),
                stream,
                partition_of(stream, settings.partitions),
                timestamp=timestamp_ms(now),
            )
    if producer.flush(60):
        raise TimeoutError("the commands could not be produced")
    return len(steps) * streams


def sampled(number: int) -> str:
    """A trace context of its own for each number."""
    return f"00-{number + 1:032x}-{number + 1:016x}-01"


def now() -> datetime:
    return datetime.now(UTC)


def handle(
    settings: LogSettings,
    commands: int = COMMANDS,
    more: Mapping[str, str] = MappingProxyType({}),
    *,
    without_start: bool = False,
) -> tuple[float, float]:
    """Seconds from the handler's first transaction until all receipts are read back, and its CPU seconds.

    commands: how many there are. more: variables of the handler. without_start: leave out what it spent until the first
    receipts came.
    """
    log = KafkaLog(settings)
    state = tempfile.TemporaryDirectory()
    own = {"HEADWATER_ENVIRONMENT": settings.environment, "HEADWATER_STATE": state.name}
    environment = {**os.environ, **own, **more}
    handler = subprocess.Popen([sys.executable, "-m", "headwater.commands"], env=environment, stderr=subprocess.DEVNULL)
    tail = log.tail(topics.RECEIPTS, dict.fromkeys(range(settings.partitions), 0))
    try:
        received, deadline = 0, time.monotonic() + LIMIT_S
        before, start_cpu_seconds = 0, 0.0
        while received < commands:
            received += len(tail.poll(10_000, 0.1))
            if without_start and received and not before:
                before, start_cpu_seconds = received, process_cpu_seconds(handler.pid)
            if time.monotonic() > deadline or handler.poll() is not None:
                raise TimeoutError(f"{received} of {commands} receipts, handler's exit code {handler.poll()}")
        ended = datetime.now(UTC)
        spent = process_cpu_seconds(handler.pid) - start_cpu_seconds
        cpu_seconds = spent * commands / (commands - before)
    finally:
        handler.terminate()
        handler.wait()
        tail.close()
        state.cleanup()
    started = min(first_heartbeat(log, partition) for partition in range(settings.partitions))
    log.close()
    return (ended - started).total_seconds(), cpu_seconds


def first_heartbeat(log: KafkaLog, partition: int) -> datetime:
    """When the partition's first transaction began: it carries a heartbeat."""
    events = (decode(record.value) for record in log.read(topics.EVENTS, partition, 0))
    return next(event.time for event in events if event.type == HEARTBEAT)


def process_cpu_seconds(pid: int) -> float:
    """User and system time of a process and its children."""
    import psutil

    process = psutil.Process(pid)
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))


def by_hand(source: LogSettings, target: LogSettings) -> tuple[float, float]:
    """Seconds and CPU seconds of the same work without Headwater, in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.commands", source.environment, target.environment]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=LIMIT_S)
    seconds, cpu_seconds = orjson.loads(answer.stdout)
    return seconds, cpu_seconds


def copy_by_hand(source: LogSettings, target: LogSettings) -> tuple[float, float]:
    """Consume the commands of `target`, and for each append what `source` has for one, in transactions."""
    log = KafkaLog(source)
    written = {
        (topic, partition): [record for record in log.read(topic, partition, 0) if not is_heartbeat_key(record.key)]
        for topic in (topics.EVENTS, topics.SNAPSHOTS, topics.RECEIPTS)
        for partition in range(source.partitions)
    }
    log.close()
    ends = {p: len(written[topics.RECEIPTS, p]) for p in range(source.partitions)}
    common = {"bootstrap.servers": target.bootstrap}
    consumer = Consumer(
        common
        | {
            "group.id": f"{target.environment}.handler",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 10,
        }
    )
    producer = Producer(common | {"transactional.id": f"{target.environment}.by_hand", "linger.ms": 0})
    producer.init_transactions(10)
    commands = target.topic(topics.COMMANDS)
    consumer.assign([TopicPartition(commands, p, 0) for p in ends])
    started, cpu_started = time.monotonic(), time.process_time()
    done = dict.fromkeys(ends, 0)
    while sum(done.values()) < COMMANDS:
        messages = consumer.consume(BATCH, 0) or consumer.consume(1, 1.0)
        if not messages:
            continue
        counts = dict.fromkeys(ends, 0)
        for message in messages:
            orjson.loads(message.value() or b"{}")
            counts[message.partition() or 0] += 1
        producer.begin_transaction()
        for (topic, partition), records in written.items():
            from_command, count = done[partition], counts[partition]
            first = from_command * len(records) // ends[partition]
            last = (from_command + count) * len(records) // ends[partition]
            name = target.topic(topic)
            for record in records[first:last]:
                producer.produce(name, record.value, record.key, partition, timestamp=record.timestamp_ms)
        for partition, count in counts.items():
            done[partition] += count
        offsets = [TopicPartition(commands, p, done[p]) for p in ends if counts[p]]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 10)
        producer.commit_transaction(10)
    seconds, cpu_seconds = time.monotonic() - started, time.process_time() - cpu_started
    consumer.close()
    return seconds, cpu_seconds


if __name__ == "__main__":
    ours, floor = (replace(LogSettings.from_environment(os.environ), environment=name) for name in sys.argv[1:])
    print(orjson.dumps(copy_by_hand(ours, floor)).decode())
