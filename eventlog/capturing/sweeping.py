"""Deletes rows from a table's topic that the table no longer has, and finds rows whose last record lacks a value.

A delete is missed if the database's log was lost, and a TRUNCATE is not captured. The connector is stopped meanwhile:
what it captures afterwards comes later in the topic than the deletes that are appended here. A long value is missed if
the connector lost the connection by which it reads those that an update left unchanged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition

from headwater.eventlog.capturing.changes import ChangeDecoder, Operation
from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.capturing.errors import UnreadableChange
from headwater.eventlog.capturing.ports import Database
from headwater.eventlog.capturing.values import may_lack_value
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.heartbeats import is_table_heartbeat
from headwater.eventlog.kafka.client import EOF, TIMEOUT_S, reader_config
from headwater.eventlog.kafka.writer import TransactionalProducer
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.times import now_ms

SWEEPS: Final = "sources"
"""Transactional ids begin with this."""
BATCH: Final = 5_000
"""How many rows are looked up, and deleted in one transaction."""
POLL_S: Final = 0.05
"""How long is waited for a batch to be full: the connector is stopped meanwhile."""


MAX_CONDITION: Final = 1_000
"""Up to this many incomplete rows are named in a condition."""


@dataclass(frozen=True, slots=True)
class Swept:
    """How many rows were deleted, and how many are to be read again.

    where: the condition of these; empty: all. unreadable: how many keys cannot be read, so that their rows were left.
    """

    deleted: int
    incomplete: int
    where: str = ""
    unreadable: int = 0


def sweep(log: LogSettings, table: type[Captured], database: Database, check: Callable[[], None]) -> Swept:
    """Append deletes of the rows that `table` no longer has, and find those to read again.

    The keys of one partition are held in memory. check: called before rows are deleted; raises SourceProblem if the
    connector may run again. Raises LogUnavailable, SourceProblem, or UnreadableChange.
    """
    decoder = ChangeDecoder(table)
    topic = log.topic(table.topic())
    deleted = unreadable = 0
    incomplete: list[Sequence[str]] = []
    try:
        writer = TransactionalProducer(log, f"{log.environment}.{SWEEPS}.{table.table}", topic)
        for partition in range(log.partitions):
            live = _live_keys(log, table, decoder, partition)
            rest = iter(live)
            while batch := list(islice(rest, BATCH)):
                known = _readable(decoder, batch)
                unreadable += len(batch) - len(known)
                keys, values = list(known), list(known.values())
                absent = set(database.absent(table, values)) if values else set()
                if absent:
                    check()
                    _delete(writer, topic, partition, [keys[number] for number in absent], database.place())
                deleted += len(absent)
                incomplete += [values[n] for n, key in enumerate(keys) if live[key] and n not in absent]
    except KafkaException as error:
        raise LogUnavailable(f'sweeping "{topic}"', error.args[0].str()) from error
    return Swept(deleted, len(incomplete), condition_of(database, table, incomplete), unreadable)


def condition_of(database: Database, table: type[Captured], incomplete: Sequence[Sequence[str]]) -> str:
    """The condition of incomplete rows; empty, so that all are read, if they are too many."""
    return database.condition(table, incomplete) if 0 < len(incomplete) <= MAX_CONDITION else ""


def _readable(decoder: ChangeDecoder, keys: Iterable[bytes]) -> dict[bytes, list[str]]:
    """The values of the keys that can be read."""
    found = {}
    for key in keys:
        with suppress(UnreadableChange):
            found[key] = decoder.key_values(key)
    return found


def _live_keys(log: LogSettings, table: type[Captured], decoder: ChangeDecoder, partition: int) -> dict[bytes, bool]:
    """The keys whose last record is neither a delete nor a tombstone, each with whether it may lack a value."""
    consumer = Consumer(reader_config(log, **{"fetch.wait.max.ms": 10}))
    topic, live = log.topic(table.topic()), dict[bytes, bool]()
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        for key, value in _records(consumer, topic):
            if is_table_heartbeat(key):
                continue
            if value is None or decoder.operation(value) is Operation.DELETE:
                live.pop(key, None)
            else:
                live[key] = may_lack_value(value)
    finally:
        consumer.close()
    return live


def _records(consumer: Consumer, topic: str) -> Iterator[tuple[bytes, bytes | None]]:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        for record in consumer.consume(BATCH, POLL_S):
            error = record.error()
            if error is None:
                deadline = time.monotonic() + TIMEOUT_S
                yield record.key() or b"", record.value()
            elif error.code() == EOF:
                return
            else:
                raise KafkaException(error)
    raise LogUnavailable(f'reading "{topic}"', "nothing came in time")


def _delete(
    writer: TransactionalProducer, topic: str, partition: int, keys: Sequence[bytes], place: dict[str, Any]
) -> None:
    """Append what Debezium would have for each of these keys: a delete, and a tombstone."""
    source = {**place, "ts_ms": now_ms()}
    value = msgspec.json.encode({"op": "d", "before": None, "after": None, "source": source, "transaction": None})
    writer.begin()
    for key in keys:
        writer.client.produce(topic, key=key, value=value, partition=partition)
        writer.client.produce(topic, key=key, value=None, partition=partition)
    writer.client.flush(TIMEOUT_S)
    writer.commit()


def present(database: Database, table: type[Captured], keys: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Those of these keys that have a row."""
    absent = set(database.absent(table, keys)) if keys else set()
    return [key for number, key in enumerate(keys) if number not in absent]
