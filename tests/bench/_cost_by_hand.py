"""`python -m tests.bench._cost_by_hand PART`: a part of a command's way, written by hand. Together they are a floor of
`cost`.

`decide` reads commands from Kafka, and appends an event, a receipt and a state of each in a transaction. Three loaders
read the events, and write a row of each and how far they are. Nothing is checked, folded or remembered, and there is no
HTTP.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import orjson
import psycopg
import valkey
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from elasticsearch import Elasticsearch

from tests.bench._deployment import paced
from tests.bench._listing import LISTING
from tests.bench._waiting import eventually

COMMANDS, EVENTS, RECEIPTS, STATES = TOPICS = [
    f"by_hand.{name}" for name in ("commands", "events", "receipts", "states")
]
PARTITIONS: Final = 4
TABLE: Final = "by_hand"
BATCH: Final = 5_000

Write = Callable[[Sequence[Message], str], None]


def prepare() -> None:
    """Create the topics, the table and the index."""
    admin = AdminClient({"bootstrap.servers": os.environ["HEADWATER_KAFKA"]})
    for created in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in TOPICS]).values():
        created.result()
    with psycopg.connect(os.environ["HEADWATER_POSTGRES"]) as connection:
        connection.execute(f"CREATE TABLE {TABLE} (key text PRIMARY KEY, value text)")
    with Elasticsearch(os.environ["HEADWATER_ELASTICSEARCH"]) as client:
        client.indices.create(index=TABLE, settings={"number_of_replicas": 0})


def decide() -> None:
    """Turn commands into events, exactly once."""
    consumer = _consumer("decide", COMMANDS)
    producer = Producer(_kafka() | {"transactional.id": "by_hand", "linger.ms": 0})
    producer.init_transactions()
    for records in _batches(consumer):
        producer.begin_transaction()
        for record in records:
            for topic in (EVENTS, RECEIPTS, STATES):
                producer.produce(topic, record.value(), record.key(), record.partition() or 0)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
        )
        producer.commit_transaction()


def load(store: str) -> None:
    """Write a row of each event, and how far this is, as often as there are new ones."""
    write = {"postgres": in_postgres, "elasticsearch": in_elasticsearch, "valkey": in_valkey}[store]()
    for records in _batches(_consumer(store, EVENTS)):
        write(records, ",".join(f"{record.partition()}:{record.offset()}" for record in records[-PARTITIONS:]))


def in_postgres() -> Write:
    """What writes a table."""
    connection = psycopg.connect(os.environ["HEADWATER_POSTGRES"])
    upsert = f"INSERT INTO {TABLE} VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value"

    def write(records: Sequence[Message], place: str) -> None:
        with connection.transaction(), connection.cursor() as cursor:
            rows = [(_key(record), (record.value() or b"").decode()) for record in records]
            cursor.executemany(upsert, [*rows, ("place", place)])

    return write


def in_elasticsearch() -> Write:
    """What writes an index."""
    client = Elasticsearch(os.environ["HEADWATER_ELASTICSEARCH"])

    def write(records: Sequence[Message], place: str) -> None:
        operations: list[Mapping[str, Any]] = []
        for record in records:
            operations += [{"index": {"_id": _key(record)}}, orjson.loads(record.value() or b"")]
        client.bulk(index=TABLE, operations=[*operations, {"index": {"_id": "place"}}, {"place": place}])

    return write


def in_valkey() -> Write:
    """What writes a cache."""
    client = valkey.Valkey.from_url(os.environ["HEADWATER_VALKEY"])

    def write(records: Sequence[Message], place: str) -> None:
        with client.pipeline() as pipeline:
            pipeline.mset({f"{TABLE}:{_key(record)}": record.value() or b"" for record in records})
            pipeline.set(f"{TABLE}:place", place)
            pipeline.execute()  # type: ignore[no-untyped-call]

    return write


async def send(first: int, rate: float, seconds: float) -> None:
    """Append commands at a steady rate, and wait until the last ones have rows: the client, which is not counted."""
    producer = Producer(_kafka() | {"enable.idempotence": True, "linger.ms": 0})
    number = first
    async for _ in paced(rate, round(rate * seconds)):
        body = orjson.dumps({"listing_id": f"row-{number}", **LISTING})
        producer.produce(COMMANDS, body, f"row-{number}", number % PARTITIONS)
        producer.poll(0)
        number += 1
    producer.flush()
    with (
        psycopg.connect(os.environ["HEADWATER_POSTGRES"], autocommit=True) as connection,
        Elasticsearch(os.environ["HEADWATER_ELASTICSEARCH"]) as client,
        valkey.Valkey.from_url(os.environ["HEADWATER_VALKEY"]) as cache,
    ):
        there: tuple[Callable[[str], bool], ...] = (
            lambda key: connection.execute(f"SELECT FROM {TABLE} WHERE key = %s", (key,)).rowcount == 1,
            lambda key: bool(client.exists(index=TABLE, id=key)),
            lambda key: cache.exists(f"{TABLE}:{key}") == 1,
        )
        for last in range(number - PARTITIONS, number):
            for is_there in there:
                eventually(partial(is_there, f"row-{last}"), "a row of each of the last commands", 60)


def _kafka() -> dict[str, str | int | bool]:
    return {"bootstrap.servers": os.environ["HEADWATER_KAFKA"]}


def _consumer(group: str, topic: str) -> Consumer:
    consumer = Consumer(_kafka() | {"group.id": f"by_hand.{group}", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    return consumer


def _batches(consumer: Consumer) -> Iterator[list[Message]]:
    while True:
        first = consumer.poll(1.0)
        records = [] if first is None else [first, *consumer.consume(BATCH, 0)]
        if found := [record for record in records if record.error() is None]:
            yield found


def _key(record: Message) -> str:
    return (record.key() or b"").decode()


if __name__ == "__main__":
    part, *words = sys.argv[1:]
    match part:
        case "prepare":
            prepare()
        case "send":
            asyncio.run(send(int(words[0]), float(words[1]), float(words[2])))
        case "decide":
            decide()
        case _:
            load(part)
