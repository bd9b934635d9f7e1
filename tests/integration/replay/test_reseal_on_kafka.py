"""What `replay reseal` asks of Kafka: it holds a topic, and keeps offsets whatever the gaps between them are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime

import pytest

from headwater.eventlog import topics
from headwater.eventlog.envelope import Envelope, encode
from headwater.eventlog.errors import LogUnavailable, ResealUnfinished
from headwater.eventlog.kafka import admin
from headwater.eventlog.kafka import log as kafka
from headwater.eventlog.kafka.copying import CopiedRecord, KafkaTopics
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.personal.memory import MemoryKeys
from headwater.eventlog.ports import Entry
from headwater.eventlog.settings import LogSettings
from headwater.replay.clear_values import ClearValues
from headwater.replay.errors import CannotReseal
from headwater.replay.resealing import HELD, LIMIT, Reseal
from tests.support.memory_vault import memory_vault
from tests.support.waiting import eventually

CANARY = b"canary@example.org"


class NoGenerations:
    def follow_copy(self, *_: str) -> None:
        pass


@pytest.fixture
def keys() -> Iterator[MemoryKeys]:
    with memory_vault() as found:
        yield found


def event(person: str, number: int) -> Entry:
    stream = f"customer/{person}"
    data = {"customer_id": person, "address": CANARY.decode()}
    name = f"{stream}/{number}"
    made = Envelope(name, "customer.mailed", stream, datetime.now(UTC), data, sequence=number)
    return Entry(topics.EVENTS, name, encode(made), 1_700_000_000_000 + number)


def with_gaps(log: KafkaLog, kept: KafkaTopics) -> None:
    """Transactions, one of them aborted, and first records that are deleted."""
    with closing(log.own(0)) as writer:
        for number in range(1, 40, 3):
            transaction = writer.begin()
            transaction.append([event("C1", number), event("C2", number), event("C1", number + 1)])
            transaction.commit()
        aborted = writer.begin()
        aborted.append([event("C1", 99)])
        aborted.abort()
    kept.alter(topics.EVENTS, {"cleanup.policy": "delete"})  # Kafka does not do it in a topic that is only compacted
    eventually(lambda: _is_cut(kept), "the first records are deleted")
    kept.alter(topics.EVENTS, {"cleanup.policy": "compact"})


def _is_cut(kept: KafkaTopics) -> bool:
    try:
        kept.cut(topics.EVENTS, {0: 9})
    except LogUnavailable:  # the broker has not learned of the setting
        return False
    return True


def read(log: KafkaLog) -> list[tuple[int, int, str, int, bytes | None]]:
    return [
        (each.partition, each.offset, each.key, each.timestamp_ms, each.value)
        for partition in range(log.partitions)
        for each in log.read(topics.EVENTS, partition, 0)
    ]


def test_a_topic_keeps_every_offset_and_who_would_write_or_start_waits(
    log_settings: LogSettings, keys: MemoryKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = KafkaTopics(log_settings)
    values = ClearValues.load(["tests.support.personal_customers"])
    said: list[str] = []
    with closing(KafkaLog(log_settings)) as log:
        with_gaps(log, kept)
        before, found = read(log), kept.find(topics.EVENTS)
        bounds = kept.bounds(topics.EVENTS, range(2))
        assert found is not None
        assert (bounds[0].first, len(before) + 9 < bounds[0].end) == (9, True)
        identity = log.incarnation(topics.EVENTS)

        def report(topic: str, doing: str) -> None:
            said.append(doing)
            if doing in ("sealing partition 1", "comparing partition 1"):
                writes_nothing(log_settings, monkeypatch)
            if doing in ("sealing partition 1", "copying partition 1 back"):
                with pytest.raises(ResealUnfinished, match="run `replay reseal` until it is done"):
                    log.incarnation(topic)
                with pytest.raises(ResealUnfinished):
                    admin.prepare(log_settings)
            if len(said) in (2, 7):
                raise KeyboardInterrupt

        reseal = Reseal(kept, values, log, NoGenerations(), topics.EVENTS, report)  # type: ignore[arg-type]
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                reseal.run()
        reseal.run()

        after = [each for each in read(log) if not each[2].startswith("heartbeat/")]
        assert [each[:4] for each in after] == [each[:4] for each in before]
        assert not any(CANARY in (each[4] or b"") for each in after)
        assert all(values.difference(a[4], b[4]) == "" for a, b in zip(before, after, strict=True))
        again = kept.find(topics.EVENTS)
        assert again is not None
        assert (again.settings, again.partitions, again.id != found.id) == (found.settings, 2, True)
        assert log.incarnation(topics.EVENTS) != identity
        assert kept.bounds(topics.EVENTS, range(2))[0].first == 9
        assert kept.find(topics.EVENTS + topics.RESEALING) is None
        admin.prepare(log_settings)
        with closing(log.own(0)) as writer:  # the next record comes behind those that were there
            transaction = writer.begin()
            (offset,) = transaction.append([event("C1", 100)])
            transaction.commit()
        assert offset >= bounds[0].end


def writes_nothing(settings: LogSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched, closing(KafkaLog(settings)) as other:
        patched.setattr(kafka, "SUBMIT_TIMEOUT_MS", 1_000)
        with pytest.raises(LogUnavailable):
            other.submit(event("C3", 1), 1).result(30)


def test_an_open_transaction_is_not_copied(log_settings: LogSettings, keys: MemoryKeys) -> None:
    kept = KafkaTopics(log_settings)
    values = ClearValues.load(["tests.support.personal_customers"])
    reseal = Reseal(kept, values, None, NoGenerations(), topics.EVENTS)  # type: ignore[arg-type]
    with closing(KafkaLog(log_settings)) as log, closing(log.own(0)) as writer:
        transaction = writer.begin()
        transaction.append([event("C1", 1)])
        bounds = kept.bounds(topics.EVENTS, [0])[0]
        while bounds.end == bounds.stored:  # it is sent in the background
            bounds = kept.bounds(topics.EVENTS, [0])[0]
        with pytest.raises(CannotReseal, match="partition 0 has an open transaction"):
            reseal.run()
        transaction.abort()
    assert reseal.cancel()
    assert not reseal.cancel()
    found = kept.find(topics.EVENTS)
    assert found is not None
    assert found.settings[LIMIT] not in (HELD[LIMIT], None)


def test_headers_and_keys_of_any_bytes_are_copied(log_settings: LogSettings) -> None:
    kept = KafkaTopics(log_settings)
    record = CopiedRecord(0, b"\xff\x00", b"\xfe", [("a", b"\x00"), ("a", None)], 12)
    kept.append(topics.OBSERVATIONS, 1, [record, record._replace(value=None, headers=None)])
    assert list(kept.read(topics.OBSERVATIONS, 1, 0, 2)) == [
        record, record._replace(offset=1, value=None, headers=None)
    ]  # fmt: skip
