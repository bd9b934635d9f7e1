"""The log on Kafka: one transactional producer per owned partition, and readers without a group."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from headwater.eventlog.errors import EventLogError, LeftOpen, LogUnavailable
from headwater.eventlog.kafka.admin import ends, offsets, stored_ends, topic_id
from headwater.eventlog.kafka.client import (
    ASK_S,
    GROUP,
    NO_LEADER_CODES,
    TIMEOUT_S,
    client_config,
    offset_of,
    reader_config,
    record_of,
    translate,
)
from headwater.eventlog.kafka.group import KafkaMembership
from headwater.eventlog.kafka.tail import TAIL, KafkaTail
from headwater.eventlog.kafka.writer import KafkaWriter, Submitter
from headwater.eventlog.ports import HANDLER, NEXT_OFFSET, Entry, Failed, Record, RevokedCallback, Role
from headwater.eventlog.settings import LogSettings

FAILOVER_S = 15.0
"""Within this time, a partition gets another leader: Kafka waits 9 s before it considers a broker lost."""
ENDED_S = 5.0
"""How long until the end of an earlier owner's transaction is visible, after Kafka says that it has ended."""
MIN_LOOKS = 20
"""How often an end must not have been visible."""
WAIT_S = 0.1
"""How long a reader waits at once."""
FETCH_MS = 1
"""How long Kafka keeps a fetch for which there is nothing. The client sends one as soon as it has read the last record,
and the next question to that broker waits for its answer."""
SUBMIT_TIMEOUT_MS = 5_000
"""After this time, a write fails because the log is unavailable."""

Answer = TypeVar("Answer")


class KafkaLog:
    """The EventLog port on Kafka. It connects at its first use; safe to use from several threads."""

    def __init__(self, settings: LogSettings) -> None:
        self.settings = settings
        self.partitions = settings.partitions
        self._lock = threading.Lock()
        self._idle_readers: list[Consumer] = []
        self._opened_submitter: Submitter | None = None
        self._admin: AdminClient | None = None

    def join(self, on_revoked: RevokedCallback, role: Role = HANDLER) -> KafkaMembership:
        group = self._group(role)
        new_consumer = partial(self._consumer, **GROUP, **group)
        return KafkaMembership(new_consumer, group["group.id"], self.settings.topic(role.reads), on_revoked)

    def own(self, partition: int, role: Role = HANDLER) -> KafkaWriter:
        writer = KafkaWriter(self.settings, partition, role)
        try:
            self._check_ended(partition, role)
        except EventLogError:
            writer.close()
            raise
        return writer

    def submit(self, entry: Entry, partition: int) -> Future[int]:
        stored: Future[int] = Future()
        stored.set_running_or_notify_cancel()
        self._submitter().send([entry], partition, stored.set_exception, stored.set_result)
        return stored

    def send(self, entries: Sequence[Entry], partition: int, failed: Failed) -> None:
        self._submitter().send(entries, partition, failed)

    def read(self, topic: str, partition: int, start: int, end: int | None = None) -> Iterator[Record]:
        if end is None:
            end = self.end(topic, partition)
        for messages in self.batches(topic, partition, start, end):
            for message in messages:
                yield record_of(topic, message)

    def batches(self, topic: str, partition: int, start: int, end: int) -> Iterator[list[Message]]:
        """The committed records from `start` to `end` (exclusive) as Kafka's messages, for a reader of millions.

        Raises LogUnavailable.
        """
        if start >= end:
            return
        with self.reader() as consumer:
            consumer.assign([TopicPartition(self.settings.topic(topic), partition, start)])
            waits, ended = 0, False
            while not ended:
                messages = consumer.consume(5_000, 0) or consumer.consume(1, WAIT_S)
                without_errors = [message for message in messages if message.error() is None]
                last = without_errors[-1].offset() or 0 if without_errors else -1
                ended = last == end - 1
                if len(without_errors) < len(messages) or last >= end:
                    without_errors, ended = _before(end, messages, f'reading "{topic}"')
                if without_errors:
                    yield without_errors
                waits = 0 if messages else waits + 1
                if waits * WAIT_S >= TIMEOUT_S:  # counted: a pause of this process or machine is no silence of Kafka
                    raise LogUnavailable(f'reading "{topic}"', f"nothing came for {TIMEOUT_S:g} s")

    def tail(self, topic: str, starts: Mapping[int, int], *, rereads: bool = True) -> KafkaTail:
        return KafkaTail(partial(self._consumer, **TAIL), self.settings, topic, starts, rereads=rereads)

    def end(self, topic: str, partition: int) -> int:
        """See EventLog.end: the last stable offset, which an open transaction holds back."""
        return self._bounds(topic, partition)[1]

    def ends(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return self._offsets(places, OffsetSpec.latest(), "ends")  # type: ignore[no-untyped-call]

    def stored_ends(self, topic: str) -> Mapping[int, int]:
        """See EventLog.stored_ends: the high watermarks, which no open transaction holds back."""
        name = self.settings.topic(topic)
        return self._repeated(lambda: stored_ends(self._admin_client(), name), f'asking for the ends of "{topic}"', 0)

    def offset_at(self, topic: str, partition: int, time_ms: int) -> int:
        # for Kafka, negative times are special offsets
        times = [TopicPartition(self.settings.topic(topic), partition, max(time_ms, 0))]
        offset: int = self._ask(
            lambda consumer: consumer.offsets_for_times(times, timeout=ASK_S)[0].offset,
            f'looking for a time in "{topic}"',
            partition,
        )
        return offset if offset >= 0 else self.end(topic, partition)

    def first(self, topic: str, partition: int) -> int:
        return self._bounds(topic, partition)[0]

    def firsts(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return self._offsets(places, OffsetSpec.earliest(), "starts")  # type: ignore[no-untyped-call]

    def next_offset(self, partition: int, role: Role = HANDLER) -> int:
        return int(self.last(role.owns[0], partition, NEXT_OFFSET) or 0)

    def last(self, topic: str, partition: int, key: str) -> bytes | None:
        """See EventLog.last: searched from the end."""
        first, end = self._bounds(topic, partition)
        span = 64
        while first < end:
            start = max(first, end - span)
            values = [record.value for record in self.read(topic, partition, start, end) if record.key == key]
            if values:
                return values[-1]
            end, span = start, span * 16
        return None

    def incarnation(self, topic: str) -> str:
        """See EventLog.incarnation: Kafka's own id of the topic."""
        return topic_id(self.settings, topic, self._admin_client())

    def client(self, **config: Any) -> dict[str, Any]:
        """Configuration for another client of this log, plus `config`."""
        return client_config(self.settings, **config)

    def close(self) -> None:
        self._close_readers()
        with self._lock:
            submitter, self._opened_submitter = self._opened_submitter, None
        if submitter is not None:
            submitter.close()

    @contextmanager
    def reader(self) -> Iterator[Consumer]:
        """A consumer for one request; it is kept for the next, because connecting takes longer than the request."""
        with self._lock:
            consumer = self._idle_readers.pop() if self._idle_readers else None
        consumer = consumer or self._consumer(**{"fetch.wait.max.ms": FETCH_MS})
        try:
            yield consumer
            consumer.unassign()
        except BaseException:
            consumer.close()
            raise
        with self._lock:
            self._idle_readers.append(consumer)

    def _submitter(self) -> Submitter:
        with self._lock:
            if self._opened_submitter is None:
                self._opened_submitter = Submitter(self.settings, {"message.timeout.ms": SUBMIT_TIMEOUT_MS})
            return self._opened_submitter

    def _check_ended(self, partition: int, role: Role) -> None:
        """Raise LeftOpen if a record of an earlier owner is neither committed nor aborted."""
        deadline = time.monotonic() + ENDED_S
        for looks in count(1):
            try:
                stable, stored = ends(self.settings, role.owns, partition)
            except LogUnavailable:  # also if a partition has no leader yet
                if time.monotonic() > deadline:
                    raise
            else:
                opened = [topic for topic in role.owns if stable[topic] < stored[topic]]
                if not opened:
                    return
                # several times: if this process was paused meanwhile, Kafka may end it just now
                if time.monotonic() > deadline and looks >= MIN_LOOKS:
                    raise LeftOpen(self.settings.topic(opened[0]), partition, stable[opened[0]])
            time.sleep(0.05)

    def _bounds(self, topic: str, partition: int) -> tuple[int, int]:
        place = TopicPartition(self.settings.topic(topic), partition)
        first, end = self._ask(
            lambda consumer: consumer.get_watermark_offsets(place, timeout=ASK_S),
            f'asking for the end of "{topic}"',
            partition,
        )
        return int(first), int(end)

    def _offsets(self, places: Iterable[tuple[str, int]], spec: OffsetSpec, what: str) -> dict[tuple[str, int], int]:
        names = {(self.settings.topic(topic), partition): (topic, partition) for topic, partition in places}
        doing = f"asking for the {what} of partitions"
        offsets_found = (
            self._repeated(lambda: offsets(self._admin_client(), names, spec, ASK_S), doing, 0) if names else {}
        )
        return {names[place]: offset for place, offset in offsets_found.items()}

    def _ask(self, question: Callable[[Consumer], Answer], doing: str, partition: int) -> Answer:
        """The answer to a request to the leader of a partition."""

        def ask() -> Answer:
            with self.reader() as consumer:
                return question(consumer)

        return self._repeated(ask, doing, partition)

    def _repeated(self, ask: Callable[[], Answer], doing: str, partition: int) -> Answer:
        """The answer of `ask`, repeated with the broker that leads the partition by then."""
        deadline = time.monotonic() + FAILOVER_S
        while True:
            try:
                return ask()
            except KafkaException as error:
                code = error.args[0].code()
                if code not in (*NO_LEADER_CODES, KafkaError._TIMED_OUT) or time.monotonic() > deadline:
                    raise translate(error.args[0], doing, partition) from error
                # idle clients, too, may only know a leader that is gone
                self._close_readers()
                time.sleep(0.05)

    def _admin_client(self) -> AdminClient:
        with self._lock:
            if self._admin is None:
                self._admin = AdminClient(client_config(self.settings))
            return self._admin

    def _close_readers(self) -> None:
        with self._lock:
            readers, self._idle_readers = self._idle_readers, []
            self._admin = None  # its connections end with it
        for reader in readers:
            reader.close()

    def _group(self, role: Role) -> dict[str, str]:
        return {"group.id": f"{self.settings.environment}.{role.name}"}

    def _consumer(self, **config: Any) -> Consumer:
        return Consumer(reader_config(self.settings, **config))


def _before(end: int, messages: list[Message], doing: str) -> tuple[list[Message], bool]:
    """The records before this offset, and whether all of them have been read."""
    buffered: list[Message] = []
    for message in messages:
        offset = offset_of(message, doing)
        if offset >= end:  # also if the last offsets are markers: the end of the partition is reported
            return buffered, True
        if message.error() is None:
            buffered.append(message)
    return buffered, bool(buffered) and buffered[-1].offset() == end - 1
