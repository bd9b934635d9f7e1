"""The rows of views as the stores have them: each store is read with its own client, not through Headwater."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import psycopg
import valkey
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from elasticsearch import Elasticsearch, helpers
from psycopg.rows import dict_row

from headwater.compose.samples.sample import Deployment

LOOK_S: Final = 60.0
Rows = dict[str, dict[str, Any]]
"""The columns of each row, by its key."""


def table(deployment: Deployment, view: str, key: str) -> Rows:
    """A view in PostgreSQL. key: the column with the row's key."""
    query = psycopg.sql.SQL("SELECT * FROM {}").format(psycopg.sql.Identifier(deployment.environment, view))
    with psycopg.connect(deployment.endpoints.postgres, row_factory=dict_row) as connection:
        return {row[key]: row for row in connection.execute(query)}


def documents(deployment: Deployment, view: str, key: str) -> Rows:
    """A view in Elasticsearch. key: the member with the row's key."""
    alias = f"{deployment.environment}.{view}"
    with Elasticsearch(deployment.endpoints.elasticsearch) as client:
        client.indices.refresh(index=alias)
        hits = helpers.scan(client, index=alias, query={"query": {"bool": {"must_not": {"term": {"_deleted": True}}}}})
        return {hit["_source"][key]: hit["_source"] for hit in hits}


def cached(deployment: Deployment, view: str) -> Rows:
    """A view in Valkey."""
    found: Rows = {}
    with valkey.Valkey.from_url(deployment.endpoints.valkey, decode_responses=True) as cache:
        generation = cache.get(f"{deployment.environment}:{view}:generation")
        prefix = f"{deployment.environment}:{view}:g{generation}:"
        for key in cache.scan_iter(f"{prefix}*", count=1000):
            document: Any = cache.hget(key, "doc")
            if document is not None:
                found[key.removeprefix(prefix)] = json.loads(document)
    return found


def followed(deployment: Deployment, view: str, key: str) -> Rows:
    """A view in Kafka, as a program has it that follows its topic. key: the member with the row's key."""
    topic, found = f"{deployment.environment}.views.{view}", Rows()
    consumer = Consumer(
        {
            "bootstrap.servers": deployment.endpoints.kafka,
            "group.id": topic,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        left = set(consumer.list_topics(topic, LOOK_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in left])
        while left:
            # what has come; if nothing has, it waits for one record, not until so many have come
            for record in consumer.consume(1_000, 0) or consumer.consume(1, LOOK_S):
                error = record.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                if error is not None:
                    left.discard(record.partition())
                elif (value := record.value()) is None:
                    found.pop((record.key() or b"").decode(), None)
                else:
                    row = json.loads(value)["data"]
                    found[row[key]] = row
    finally:
        consumer.close()
    return found


def differences(view: str, expected: Mapping[str, Mapping[str, Any]], actual: Rows, source: str) -> Iterator[str]:
    """Every difference between a view's rows and the expected ones, as a text. source: who says what is expected."""
    for key in sorted(expected.keys() | actual.keys()):
        if key not in actual:
            yield f"{view}/{key} is missing"
        elif key not in expected:
            yield f"{view}/{key} should not be there"
        else:
            for name, value in expected[key].items():
                if not is_equal(value, actual[key].get(name)):
                    yield f"{view}/{key} has {name} {actual[key].get(name)!r}, {source} says {value!r}"


def is_equal(expected: Any, actual: Any) -> bool:
    """Whether a stored value is the expected one. In some stores times, days, decimals, JSON and places are texts."""
    match expected, actual:
        case float(), float() | int():
            return math.isclose(expected, actual, rel_tol=1e-12)
        case datetime(), str():
            return expected == datetime.fromisoformat(actual)
        case date(), str():
            return expected.isoformat() == actual
        case Decimal(), str():
            return expected == Decimal(actual)
        case {"lat": latitude, "lon": longitude}, str():  # PostgreSQL's `point`
            return bool([longitude, latitude] == json.loads(f"[{actual.strip('()')}]"))
        case list() | dict(), str():
            return bool(expected == json.loads(actual))
    return bool(expected == actual)
