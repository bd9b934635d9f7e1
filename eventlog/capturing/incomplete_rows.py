"""Finds rows whose last record lacks a long value, by following the topics of their tables.

PostgreSQL does not send a long value that an update leaves as it was, and Debezium reads it from the table. It finds
nothing there if it reads before the transaction is visible, and does not read at all once it has lost the connection
for that: both without an error.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from typing import Final

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, TopicPartition

from headwater.eventlog.capturing.changes import ChangeDecoder, Operation
from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.capturing.errors import UnreadableChange
from headwater.eventlog.capturing.naming import SourceNames
from headwater.eventlog.capturing.values import may_lack_value
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.kafka.client import EOF, TIMEOUT_S, reader_config
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.programs.metrics import counter
from headwater.eventlog.settings import LogSettings

WATCH: Final = "watch"
"""The group whose offsets say how far topics were followed ends with this. Nobody joins it."""
LOOK_S: Final = 2.0
"""About so long is read in one look, while other sources wait: some 300,000 records."""
DOING: Final = "looking for incomplete rows"
BATCH: Final = 5_000
POLL_S: Final = 0.2

READ_AGAIN: Final = counter(
    "source_incomplete_rows", "Rows whose records lacked long values, so that they are read again.", ["source", "table"]
)

Place = tuple[str, int]
"""A topic, without the environment, and a partition."""
Row = tuple[Place, bytes]
"""Where the records of a row are, and their key."""


def watch_group(names: SourceNames) -> str:
    """The group of the watch over a source."""
    return f"{names.connector}.{WATCH}"


class IncompleteRows:
    """Rows of one source that lack a value, as far as their topics were followed.

    The followed offsets are committed, up to the first row that still lacks a value: a watch that starts goes on there.
    """

    def __init__(self, log: LogSettings, names: SourceNames) -> None:
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
        self._decoders: dict[type[Captured], ChangeDecoder] = {}

    def find(self, tables: Sequence[type[Captured]]) -> Mapping[type[Captured], Sequence[Sequence[str]]]:
        """By table, the keys, as texts per column, of rows whose last record lacked a value at the call before, too.

        A row is left until the next call, because a whole record may follow at once. Nothing is found while it is
        behind. Raises LogUnavailable.
        """
        by_topic = {table.topic(): table for table in tables}
        try:
            self.is_behind = not self._read_all({topic: self._decoder(table) for topic, table in by_topic.items()})
        except KafkaException as error:
            raise LogUnavailable(DOING, error.args[0].str()) from error
        self._found = {} if self.is_behind else dict(self._lacked.items() & self._lacking.items())
        if not self.is_behind:
            self._lacked = dict(self._lacking)
        found: dict[type[Captured], list[Sequence[str]]] = {}
        for (topic, _), key in self._found:
            if (table := by_topic.get(topic)) is not None:
                with suppress(UnreadableChange):
                    found.setdefault(table, []).append(self._decoder(table).key_values(key))
        return found

    def forget(self, tables: Iterable[type[Captured]]) -> None:
        """Forget the rows of these tables that `find` has found last: they are read again, or are gone."""
        topics = {table.topic() for table in tables}
        for row, offset in self._found.items():
            if row[0][0] in topics and self._lacking.get(row) == offset:
                del self._lacking[row]

    def _decoder(self, table: type[Captured]) -> ChangeDecoder:
        if table not in self._decoders:
            self._decoders[table] = ChangeDecoder(table)
        return self._decoders[table]

    def _read_all(self, decoders: Mapping[str, ChangeDecoder]) -> bool:
        """Read on for LOOK_S, and commit how far; returns whether all is read that was there at the beginning."""
        places = [(topic, partition) for topic in decoders for partition in range(self._log.partitions)]
        with closing(KafkaLog(self._log)) as log:
            ends = log.ends(places)
        if all(self._next.get(place) == ends[place] for place in places) and self._following() == self._committed:
            return True
        with closing(Consumer(reader_config(self._log, **{"group.id": self._group}))) as consumer:
            if new := [place for place in places if place not in self._next]:
                for each in consumer.committed([self._at(place) for place in new], timeout=TIMEOUT_S):
                    place = each.topic.removeprefix(self._log.topic("")), each.partition
                    self._next[place] = self._committed[place] = max(each.offset, 0)
            for place in [each for each in places if self._next[each] > ends[each]]:
                self._begin_again(place)
            unread = {place: ends[place] for place in places if self._next[place] < ends[place]}
            if unread:
                self._read(consumer, decoders, unread)
            if (following := self._following()) != self._committed:
                consumer.commit(offsets=[self._at(*each) for each in following.items()], asynchronous=False)
                self._committed = following
        return not unread

    def _begin_again(self, place: Place) -> None:
        """Read a partition from its beginning, since its topic was deleted and made again."""
        self._next[place] = 0
        self._lacking = {row: offset for row, offset in self._lacking.items() if row[0] != place}

    def _read(self, consumer: Consumer, decoders: Mapping[str, ChangeDecoder], unread: dict[Place, int]) -> None:
        """Read partitions up to these ends, for about LOOK_S; `unread` loses what is read."""
        consumer.assign([self._at(place, self._next[place]) for place in unread])
        ends_at = time.monotonic() + LOOK_S
        while unread and time.monotonic() < ends_at:
            for record in consumer.consume(BATCH, POLL_S):
                place = (record.topic() or "").removeprefix(self._log.topic("")), record.partition() or 0
                error, offset = record.error(), record.offset() or 0
                if error is not None and error.code() != EOF:
                    raise KafkaException(error)
                if error is None:
                    self._note(decoders[place[0]], place, offset, record.key() or b"", record.value())
                self._next[place] = offset if error else offset + 1
                if error or self._next[place] >= unread.get(place, 0):
                    unread.pop(place, None)

    def _note(self, decoder: ChangeDecoder, place: Place, offset: int, key: bytes, value: bytes | None) -> None:
        self._lacking.pop((place, key), None)
        if value is not None and may_lack_value(value):
            with suppress(UnreadableChange):
                if decoder.operation(value) is not Operation.DELETE:
                    self._lacking[place, key] = offset

    def _following(self) -> dict[Place, int]:
        """Where a watch that starts must go on, by partition."""
        following = dict(self._next)
        for (place, _), offset in self._lacking.items():
            following[place] = min(following[place], offset)
        return following

    def _at(self, place: Place, offset: int = OFFSET_INVALID) -> TopicPartition:
        topic, partition = place
        return TopicPartition(self._log.topic(topic), partition, offset)
