"""`python -m tests.bench._replay_in_python`: what a rebuild does once, in memory, as a Python loop in two processes.

The floor of `replay_cli`: each process reads half of the partitions, folds them in a dict, and copies its rows.
"""

from __future__ import annotations

import os
import sys
from multiprocessing import get_context

import orjson
import psycopg
from confluent_kafka import Consumer, TopicPartition

from headwater.eventlog import topics
from headwater.eventlog.settings import LogSettings
from headwater.projections.settings import StoreSettings

PROCESSES = 2
TABLE = "by_hand_prices"


def fold(settings: LogSettings, stores: StoreSettings, partitions: list[int]) -> None:
    """Fold these partitions; their keys are in no other."""
    config = {"bootstrap.servers": settings.bootstrap, "group.id": "by-hand", "fetch.queue.backoff.ms": 10}
    consumer, topic = Consumer({**config, "isolation.level": "read_committed"}), settings.topic(topics.EVENTS)
    ends = {partition: consumer.get_watermark_offsets(TopicPartition(topic, partition))[1] for partition in partitions}
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    left = {each for each, end in ends.items() if end}
    rows: dict[str, list[object]] = {}
    while left:
        for message in consumer.consume(5_000, 0.1):
            event = orjson.loads(message.value() or b"")
            if event["type"] == "listing.price_changed":
                data, version = event["data"], event["sequence"]
                row = rows.get(data["listing_id"])
                if row is None:
                    row = rows[data["listing_id"]] = ["", 0, 0, 0, 0]
                if version >= row[4]:
                    row[0], row[1], row[4] = data["city"], data["price"], version
                row[2] += 1  # type: ignore[operator]
                row[3] += data["price"] - data["previous_price"]
            partition = message.partition()
            if partition is not None and message.offset() == ends[partition] - 1:
                left.discard(partition)
    consumer.close()
    text = f'COPY "{stores.environment}".{TABLE} FROM STDIN'
    with psycopg.connect(stores.postgres) as connection, connection.cursor() as cursor, cursor.copy(text) as copy:
        for key, row in rows.items():
            copy.write_row((key, *row[:4]))


def main() -> int:
    """Returns the exit code."""
    settings, stores = LogSettings.from_environment(os.environ), StoreSettings.from_environment(os.environ)
    columns = "listing_id text, city text, price bigint, changes bigint, gained bigint"
    with psycopg.connect(stores.postgres) as connection:
        connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{stores.environment}"')
        connection.execute(f'DROP TABLE IF EXISTS "{stores.environment}".{TABLE}')
        connection.execute(f'CREATE TABLE "{stores.environment}".{TABLE} ({columns})')
    every = list(range(settings.partitions))
    shares = [every[at::PROCESSES] for at in range(PROCESSES)]
    processes = [get_context("spawn").Process(target=fold, args=(settings, stores, share)) for share in shares]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    with psycopg.connect(stores.postgres) as connection:
        connection.execute(f'ALTER TABLE "{stores.environment}".{TABLE} ADD PRIMARY KEY (listing_id)')
    return max(process.exitcode or 0 for process in processes)


if __name__ == "__main__":
    sys.exit(main())
