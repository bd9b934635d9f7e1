"""Deletes rows from a table's topic that the table no longer has, and finds rows whose last record lacks a value.

A delete is missed if the database's log was lost, and a TRUNCATE is not captured. The connector is stopped meanwhile:
what it captures afterwards comes later in the topic than the deletes that are appended here.

PostgreSQL does not send a long value that an update leaves as it was, and Debezium reads it from the table. It finds
nothing there if it reads before the transaction is visible, and does not read at all once it has lost the connection
for that: both without an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final

import msgspec
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, TopicPartition

from headwater.eventlog.capturing.changes import ChangeDecoder, Operation
from headwater.eventlog.capturing.database import Database
from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.capturing.errors import SourceProblem, UnreadableChange
from headwater.eventlog.capturing.naming import SourceNames
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.heartbeats import is_table_heartbeat
from headwater.eventlog.kafka.client import TIMEOUT_S, reader_config
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.kafka.writer import TransactionalProducer
from headwater.eventlog.programs.metrics import counter
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.times import now_ms

SWEEPS: Final = "sources"
"""Transactional ids begin with this."""
BATCH: Final = 5_000
"""How many rows are looked up, and deleted in one transaction."""
FREE: Final = 100
"""Up to this many rows are deleted from any topic without a question."""
MAX_CONDITION: Final = 1_000
"""Up to this many incomplete rows are named in a condition."""
WATCH: Final = "watch"
"""The group whose offsets say how far topics were followed ends with this. Nobody joins it."""
LOOK_S: Final = 2.0
"""About so long is read in one look, while other sources wait: some 300,000 records."""
READ_AGAIN: Final = counter(
    "source_incomplete_rows", "Rows whose records lacked long values, so that they are read again.", ["source", "table"]
)

Place = tuple[str, int]
"""A topic, without the environment, and a partition."""
Row = tuple[Place, bytes]
"""Where the records of a row are, and their key."""


@dataclass(frozen=True, slots=True)
class Swept:
    """How many rows were deleted, and how many are to be read again.

    where: the condition of these; empty: all. unreadable: how many keys cannot be read, so that their rows were left.
    """

    deleted: int
    incomplete: int
    where: str = ""
    unreadable: int = 0


def sweep(
    settings: LogSettings, table: type[Captured], database: Database, check: Callable[[], None], yes_delete: int = 0
) -> Swept:
    """Append deletes of the rows that `table` no longer has, and find those to read again.

    The keys of one partition are held in memory, and those of all rows to be deleted. check: called before rows are
    deleted; raises SourceProblem if the connector may run again. yes_delete: so many rows are deleted at most, if they
    are more than FREE, and more than a tenth of all. Raises LogUnavailable, SourceProblem, or UnreadableChange.
    """
    decoder, topic = ChangeDecoder(table), settings.topic(table.topic())
    rows = unreadable = 0
    gone: dict[int, list[bytes]] = {}
    incomplete: list[Sequence[str]] = []
    try:
        with closing(KafkaLog(settings)) as log:
            writer = TransactionalProducer(settings, f"{settings.environment}.{SWEEPS}.{table.table}", topic)
            # those of the topic, whatever the settings of this shell say
            for partition in sorted(log.stored_ends(table.topic())):
                live = _live_keys(log, table.topic(), partition, decoder)
                rows, rest = rows + len(live), iter(live)
                while batch := list(islice(rest, BATCH)):
                    keys, values = list[bytes](), list[list[str]]()
                    for key in batch:
                        try:
                            values.append(decoder.key_values(key))
                            keys.append(key)
                        except UnreadableChange:
                            unreadable += 1
                    absent = set(database.absent(table, values)) if values else set()
                    if absent:
                        gone.setdefault(partition, []).extend(keys[number] for number in absent)
                    incomplete += [values[n] for n, key in enumerate(keys) if live[key] and n not in absent]
            deleted = sum(map(len, gone.values()))
            if deleted > max(FREE, rows // 10, yes_delete):
                raise SourceProblem(
                    table.source_name,
                    f'table "{table.table}" lacks {deleted:,} of the {rows:,} rows in its topic, and nothing was '
                    "deleted: check that this is its database, then run headwater sources sweep "
                    f"{table.source_name} --yes-delete {deleted}",
                )
            for partition, keys_gone in gone.items():
                for start in range(0, len(keys_gone), BATCH):
                    check()
                    _delete(writer, topic, partition, keys_gone[start : start + BATCH], database)
    except KafkaException as error:
        raise LogUnavailable(f'sweeping "{topic}"', error.args[0].str()) from error
    return Swept(deleted, len(incomplete), condition_of(database, table, incomplete), unreadable)


def condition_of(database: Database, table: type[Captured], incomplete: Sequence[Sequence[str]]) -> str:
    """The condition of incomplete rows; empty, so that all are read, if they are too many."""
    return database.condition(table, incomplete) if 0 < len(incomplete) <= MAX_CONDITION else ""


def _live_keys(log: KafkaLog, topic: str, partition: int, decoder: ChangeDecoder) -> dict[bytes, bool]:
    """The keys whose last record is neither a delete nor a tombstone, each with whether it may lack a value."""
    live = dict[bytes, bool]()
    for messages in log.batches(topic, partition, log.first(topic, partition), log.end(topic, partition)):
        for message in messages:
            key, value = message.key() or b"", message.value()
            if is_table_heartbeat(key):
                continue
            if value is None or decoder.operation(value) is Operation.DELETE:
                live.pop(key, None)
            else:
                live[key] = decoder.lacks_value(value)
    return live


def _delete(
    writer: TransactionalProducer, topic: str, partition: int, keys: Sequence[bytes], database: Database
) -> None:
    """Append what Debezium would have for each of these keys: a delete, and a tombstone."""
    source = {**database.place(), "ts_ms": now_ms()}
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


def watch_group(names: SourceNames) -> str:
    """The group of the watch over a source."""
    return f"{names.connector}.{WATCH}"


class IncompleteRows:
    """Rows of one source that lack a value, as far as their topics were followed.

    The followed offsets are committed, up to the first row that still lacks a value: a watch that starts goes on there.
    """

    def __init__(self, log: KafkaLog, names: SourceNames) -> None:
        self._log, self._group = log, watch_group(names)
        self._next: dict[Place, int] = {}
        self._committed: dict[Place, int] = {}
        self._lacking: dict[Row, int] = {}
        """The offset of the last record, if that lacks a value."""
        self._lacked: dict[Row, int] = {}
        """The same at the last call that has read all."""
        self._found: dict[Row, int] = {}
        """Those that `find` has found last."""
        self.is_behind = False
        """Whether the last call has not read all that there was."""
        self._decoders: dict[str, ChangeDecoder] = {}
        """By topic."""

    def find(self, tables: Sequence[type[Captured]]) -> Mapping[type[Captured], Sequence[Sequence[str]]]:
        """By table, the keys, as texts per column, of rows whose last record lacked a value at the call before, too.

        A row is left until the next call, because a whole record may follow at once. Nothing is found while it is
        behind. Raises LogUnavailable.
        """
        by_topic = {table.topic(): table for table in tables}
        for table in tables:
            self._decoders.setdefault(table.topic(), ChangeDecoder(table))
        try:
            self.is_behind = not self._read_all(list(by_topic))
        except KafkaException as error:
            raise LogUnavailable("looking for incomplete rows", error.args[0].str()) from error
        self._found = {} if self.is_behind else dict(self._lacked.items() & self._lacking.items())
        if not self.is_behind:
            self._lacked = dict(self._lacking)
        keys: dict[type[Captured], list[Sequence[str]]] = {}
        for (topic, _), key in self._found:
            if (known := by_topic.get(topic)) is not None:
                with suppress(UnreadableChange):
                    keys.setdefault(known, []).append(self._decoders[topic].key_values(key))
        return keys

    def forget(self, tables: Iterable[type[Captured]]) -> None:
        """Forget the rows of these tables that `find` has found last: they are read again, or are gone."""
        topics = {table.topic() for table in tables}
        for row, offset in self._found.items():
            if row[0][0] in topics and self._lacking.get(row) == offset:
                del self._lacking[row]

    def _read_all(self, topics: Sequence[str]) -> bool:
        """Read on for LOOK_S, and commit how far; returns whether all is read that was there at the beginning."""
        places = [(topic, partition) for topic in topics for partition in self._log.stored_ends(topic)]
        ends = self._log.ends(places)
        if all(self._next.get(place) == ends[place] for place in places) and self._following() == self._committed:
            return True
        with closing(Consumer(reader_config(self._log.settings, **{"group.id": self._group}))) as consumer:
            if new := [place for place in places if place not in self._next]:
                for committed in consumer.committed([self._at(place) for place in new], timeout=TIMEOUT_S):
                    place = committed.topic.removeprefix(self._log.settings.topic("")), committed.partition
                    self._next[place] = self._committed[place] = max(committed.offset, 0)
            for place in places:
                if self._next[place] > ends[place]:  # its topic was recreated
                    self._next[place] = 0
                    self._lacking = {row: offset for row, offset in self._lacking.items() if row[0] != place}
            is_read = self._read({place: ends[place] for place in places if self._next[place] < ends[place]})
            if (following := self._following()) != self._committed:
                consumer.commit(offsets=[self._at(*place) for place in following.items()], asynchronous=False)
                self._committed = following
        return is_read

    def _read(self, unread: Mapping[Place, int]) -> bool:
        """Read partitions up to these ends, for about LOOK_S; whether all is read."""
        ends_at = time.monotonic() + LOOK_S
        for place, end in unread.items():
            if time.monotonic() >= ends_at:
                return False
            for messages in self._log.batches(*place, self._next[place], end):
                for message in messages:
                    self._note(place, message.offset() or 0, message.key() or b"", message.value())
                self._next[place] = (messages[-1].offset() or 0) + 1
                if time.monotonic() >= ends_at:
                    return False
            self._next[place] = end
        return True

    def _note(self, place: Place, offset: int, key: bytes, value: bytes | None) -> None:
        self._lacking.pop((place, key), None)
        if value is not None and self._decoders[place[0]].lacks_value(value):
            self._lacking[place, key] = offset

    def _following(self) -> dict[Place, int]:
        """Where a watch that starts must go on, by partition."""
        following = dict(self._next)
        for (place, _), offset in self._lacking.items():
            following[place] = min(following[place], offset)
        return following

    def _at(self, place: Place, offset: int = OFFSET_INVALID) -> TopicPartition:
        topic, partition = place
        return TopicPartition(self._log.settings.topic(topic), partition, offset)
