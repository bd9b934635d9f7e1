"""Deletes rows from a table's topic that the table no longer has.

A delete is missed if the replication slot was lost, and a TRUNCATE is not captured. The connector is stopped meanwhile:
what it captures afterwards comes later in the topic than the deletes that are appended here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from psycopg import sql

from eventlog.capturing.changes import ChangeDecoder
from eventlog.capturing.declaring import Captured
from eventlog.capturing.errors import UnreadableChange
from eventlog.capturing.postgres_database import CapturedDatabase
from eventlog.errors import LogUnavailable
from eventlog.kafka_client import EOF, READER, TIMEOUT_S, WRITER, client_config
from eventlog.settings import LogSettings

BATCH: Final = 5_000
"""How many rows are looked up, and deleted in one transaction."""


def sweep(log: LogSettings, table: type[Captured], database: CapturedDatabase) -> int:
    """Append deletes of the rows that `table` no longer has; returns how many.

    The keys of one partition are held in memory. Raises LogUnavailable, SourceProblem, or UnreadableChange.
    """
    decoder = ChangeDecoder(table)
    topic = log.topic(table.topic())
    writer = Producer(client_config(log, **WRITER, **{"transactional.id": f"{log.environment}.sources.{table.table}"}))
    swept = 0
    try:
        writer.init_transactions(TIMEOUT_S)
        for partition in range(log.partitions):
            keys = iter(_live_keys(log, table, partition))
            while batch := list(islice(keys, BATCH)):
                gone = [
                    batch[number] for number in _absent(database, table, [decoder.key_values(key) for key in batch])
                ]
                if gone:
                    _delete(writer, topic, partition, gone, database.wal_position())
                swept += len(gone)
    except KafkaException as error:
        raise LogUnavailable(f'sweeping "{topic}"', error.args[0].str()) from error
    return swept


def _live_keys(log: LogSettings, table: type[Captured], partition: int) -> list[bytes]:
    """The keys whose last record is neither a delete nor a tombstone."""
    consumer = Consumer(client_config(log, **READER, **{"group.id": f"{log.environment}.sources"}))
    topic, live = log.topic(table.topic()), dict[bytes, None]()
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        for key, value in _records(consumer, topic):
            if value is None or _operation(table, value) == "d":
                live.pop(key, None)
            else:
                live[key] = None
    finally:
        consumer.close()
    return list(live)


class _Operation(msgspec.Struct):
    op: str


_OPERATION: Final = msgspec.json.Decoder(_Operation)


def _operation(table: type[Captured], value: bytes) -> str:
    try:
        return _OPERATION.decode(value).op
    except msgspec.MsgspecError as error:
        raise UnreadableChange(table.table, f"it is not a record of Debezium ({error})") from error


def _records(consumer: Consumer, topic: str) -> Iterator[tuple[bytes, bytes | None]]:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        for record in consumer.consume(BATCH, 1.0):
            error = record.error()
            if error is None:
                deadline = time.monotonic() + TIMEOUT_S
                yield record.key() or b"", record.value()
            elif error.code() == EOF:
                return
            else:
                raise KafkaException(error)
    raise LogUnavailable(f'reading "{topic}"', "nothing came in time")


def _absent(database: CapturedDatabase, table: type[Captured], keys: Sequence[Sequence[str]]) -> list[int]:
    """Which of these keys, given as texts per column, have no row; the database compares them as values."""
    columns = [list(values) for values in zip(*keys, strict=True)]
    names = [sql.Identifier(f"key_{number}") for number in range(len(table.key))]
    types = database.column_types(table)
    same = sql.SQL(" AND ").join(
        sql.SQL("there.{} = asked.{}::{}").format(sql.Identifier(column), name, sql.SQL(types[column]))
        for column, name in zip(table.key, names, strict=True)
    )
    query = sql.SQL(
        "SELECT asked.number::int - 1 AS number FROM unnest({}) WITH ORDINALITY asked({}, number) "
        "WHERE NOT EXISTS (SELECT FROM {} there WHERE {})"
    ).format(
        sql.SQL(", ").join([sql.SQL("%s::text[]")] * len(names)),
        sql.SQL(", ").join(names),
        sql.Identifier(*table.table.split(".")),
        same,
    )
    return [row["number"] for row in database.rows(query, columns)]


def _delete(writer: Producer, topic: str, partition: int, keys: Sequence[bytes], lsn: int) -> None:
    """Append what Debezium would have for each of these keys: a delete, and a tombstone."""
    source: dict[str, Any] = {"lsn": lsn, "sequence": f'["{lsn}","{lsn}"]', "ts_ms": time.time_ns() // 1_000_000}
    value = msgspec.json.encode({"op": "d", "before": None, "after": None, "source": source, "transaction": None})
    writer.begin_transaction()
    for key in keys:
        writer.produce(topic, key=key, value=value, partition=partition)
        writer.produce(topic, key=key, value=None, partition=partition)
    writer.commit_transaction(TIMEOUT_S)
