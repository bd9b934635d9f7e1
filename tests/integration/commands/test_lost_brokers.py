"""Clients that know no broker any more, though Kafka is there: they are replaced, and all goes on."""

from __future__ import annotations

import time
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer

from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.kafka import client as kafka_client
from headwater.eventlog.kafka import heartbeats
from headwater.eventlog.kafka import log as kafka
from headwater.eventlog.kafka import writer as kafka_writer
from headwater.eventlog.kafka.heartbeats import beating
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.ports import Entry
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import COMMANDS, OBSERVATIONS
from tests.support.lost_clients import NOWHERE, first_is_lost
from tests.support.waiting import eventually


def test_a_tail_goes_on_where_it_was(log_settings: LogSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    log = KafkaLog(log_settings)
    for number in range(3):
        log.submit(Entry(COMMANDS, f"k{number}", b"{}", 1), 0).result(240)
    monkeypatch.setattr(kafka, "Consumer", first_is_lost(Consumer, monkeypatch))
    tail = log.tail(COMMANDS, {0: 1})
    seen: list[str] = []

    def two_came() -> bool:
        seen.extend(record.key for record in tail.poll(10, 0.1))
        return len(seen) == 2

    eventually(two_came)
    assert seen == ["k1", "k2"]
    assert tail.position(0) == 3
    tail.close()
    log.close()


def test_a_member_of_a_group_joins_again(log_settings: LogSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    log = KafkaLog(log_settings)
    monkeypatch.setattr(kafka, "Consumer", first_is_lost(Consumer, monkeypatch))
    member = log.join(lambda _: None)
    eventually(lambda: member.poll(0.1) == {0, 1})
    member.close()
    log.close()


def test_who_submits_is_told_and_the_next_one_is_served(
    log_settings: LogSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = KafkaLog(log_settings)
    monkeypatch.setattr(kafka_writer, "Producer", first_is_lost(Producer, monkeypatch))
    lost, failed = log.submit(Entry(COMMANDS, "lost", b"{}", 1), 0), list[LogUnavailable]()
    log.send([Entry(COMMANDS, "lost too", b"{}", 1)], 0, failed.append)
    with pytest.raises(LogUnavailable, match=r"Purged|timed out"):
        lost.result(240)
    eventually(lambda: failed)
    assert log.submit(Entry(COMMANDS, "kept", b"{}", 1), 0).result(240) == 0
    log.close()


def test_heartbeats_go_on(log_settings: LogSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "Producer", first_is_lost(Producer, monkeypatch))
    with closing(KafkaLog(log_settings)) as log, beating(log_settings, [OBSERVATIONS], 0.1):
        eventually(lambda: all(log.end(OBSERVATIONS, partition) for partition in range(log.partitions)))


def test_a_client_is_lost_only_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_client, "LOST_S", 0.5)
    monkeypatch.setattr(kafka_client, "CONTACT_EVERY_S", 0.1)
    contact, client = kafka_client.Contact("topic"), Consumer({"bootstrap.servers": NOWHERE, "group.id": "none"})
    began = time.monotonic()
    eventually(lambda: contact.is_lost(client))
    assert time.monotonic() - began >= kafka_client.LOST_S
    contact.answered()
    assert not contact.is_lost(client)
    client.close()
