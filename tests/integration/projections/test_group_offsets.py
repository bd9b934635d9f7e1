"""The offsets of groups in Kafka: ordinary tools see the lag by them, and nothing resumes from them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.handling.command_task import CommandTask
from headwater.commands.local_state.state import MemoryStore
from headwater.commands.owning.ownership import PartitionOwner
from headwater.commands.receipt import Receipt
from headwater.eventlog.envelope import CLIENT, Envelope, encode, partition_of
from headwater.eventlog.kafka import shown_offsets
from headwater.eventlog.kafka.admin import prepare
from headwater.eventlog.kafka.client import client_config
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.kafka.shown_offsets import ShownGroup
from headwater.eventlog.ports import HANDLER, Entry
from headwater.eventlog.programs.metrics import REGISTRY
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import COMMANDS, EVENTS, PATCHES, RECEIPTS
from headwater.projections.loading.loader import Loader
from headwater.projections.testing.contracts import history
from tests.contracts.opened_stores import RealServer
from tests.contracts.view_histories import BY_GROUP
from tests.integration.projections.loading import create, rows_become, send
from tests.support.background import running
from tests.support.listed import LISTING
from tests.support.receipt_keys import short_key
from tests.support.waiting import Latest, eventually

TIME = datetime(2026, 1, 2, tzinfo=UTC)


class Group:
    """What Kafka has of a group."""

    def __init__(self, settings: LogSettings, name: str, topic: str, partitions: int) -> None:
        self._settings, self._group = settings, f"{settings.environment}.{name}"
        self._places = [TopicPartition(settings.topic(topic), partition) for partition in range(partitions)]

    def offsets(self) -> dict[int, int]:
        with closing(Consumer(client_config(self._settings, **{"group.id": self._group}))) as consumer:
            found = consumer.committed(self._places, timeout=240.0)
        return {record.partition: record.offset for record in found if record.offset >= 0}

    def set(self, offset: int) -> None:
        """As a tool that resets the offsets of a group does, once it has no member."""
        places = [TopicPartition(place.topic, place.partition, offset) for place in self._places]
        with closing(Consumer(client_config(self._settings, **{"group.id": self._group}))) as consumer:
            consumer.commit(offsets=places, asynchronous=False)
        assert set(self.offsets().values()) == {offset}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown_offsets, "SHOW_S", 0.1)


def ends(settings: LogSettings, topic: str, partitions: int) -> dict[int, int]:
    with closing(KafkaLog(settings)) as log:
        found = {partition: log.end(topic, partition) for partition in range(partitions)}
    return {each: end for each, end in found.items() if end}


def without_start(offsets: Mapping[int, int]) -> dict[int, int]:
    return {each: offset for each, offset in offsets.items() if offset}


def all_becomes_shown(group: Group, settings: LogSettings, topic: str, partitions: int) -> None:
    """Wait until Kafka's tools see that a group is at the ends of a topic."""

    def shown() -> str:
        return f"{topic} ends at {ends(settings, topic, partitions)}; the group has shown {group.offsets()}"

    eventually(lambda: without_start(group.offsets()) == ends(settings, topic, partitions), Latest(shown))


def read_patches() -> float:
    return REGISTRY.get_sample_value("headwater_loader_patches_total", {"store": "postgres"}) or 0.0


@pytest.mark.parametrize("wrong", [0, 1_000_000])
def test_a_loader_shows_how_far_it_is_and_a_wrong_offset_of_its_group_changes_nothing(
    servers: dict[str, RealServer], settings: LogSettings, producer: Producer, wrong: int
) -> None:
    server, partitions = servers["postgres"], settings.patch_partitions
    group = Group(settings, "loader.postgres.any", PATCHES, partitions)
    told = history(BY_GROUP, list(BY_GROUP.plan.events.values()), 1, length=200)
    send(producer, settings, told)
    target = create(server, BY_GROUP)
    before, first = read_patches(), Loader(server.open(), lambda: [target], settings)
    with running(first.run):
        rows_become(server, told)
        all_becomes_shown(group, settings, PATCHES, partitions)
    group.set(wrong)
    read = read_patches()
    send(producer, settings, told)  # again: what is applied is known by its place
    second = Loader(server.open(), lambda: [target], settings)
    with running(second.run):
        all_becomes_shown(group, settings, PATCHES, partitions)
    assert read_patches() - read == read - before, "neither more nor fewer than the new ones"
    rows_become(server, told)


def test_a_handler_shows_how_far_it_is_and_a_wrong_offset_of_its_group_changes_nothing(settings: LogSettings) -> None:
    prepare(settings)
    registry, group = CommandRegistry.load(["listings"]), Group(settings, "handler", COMMANDS, settings.partitions)
    with closing(KafkaLog(settings)) as log:

        def submit(number: int) -> None:
            for each in range(10):
                stream, body = f"listing/L{each}", LISTING | {"listing_id": f"L{each}"}
                kind = "listing.list_property"
                if number:
                    kind, body = "listing.change_price", {"listing_id": f"L{each}", "price": number}
                envelope = Envelope(f"c{number}-{each}", kind, stream, TIME, body, origin=CLIENT)
                partition = partition_of(stream, settings.partitions)
                log.submit(Entry(COMMANDS, stream, encode(envelope), 1), partition).result(240)

        def decided() -> dict[str, Receipt]:
            found = [partition for p in range(settings.partitions) for partition in log.read(RECEIPTS, p, 0)]
            return {short_key(record.key): Receipt.from_json(record.value or b"") for record in found}

        def serve(stop: threading.Event) -> None:
            PartitionOwner(log, HANDLER, lambda each: CommandTask(log, registry, each, MemoryStore())).run(stop)

        for number, wrong in enumerate([0, 1_000_000, 0]):
            group.set(wrong)
            submit(number)
            with running(serve):
                eventually(lambda: len(decided()) == 10 * (number + 1))  # noqa: B023 - it is called here
                all_becomes_shown(group, settings, COMMANDS, settings.partitions)
        outcomes = {
            (receipt.command_id.partition("-")[0], receipt.outcome, receipt.version) for receipt in decided().values()
        }
        assert outcomes == {(f"c{number}", "accepted", number + 1) for number in range(3)}


def test_what_reads_without_a_group_is_shown_as_a_group_without_members(settings: LogSettings) -> None:
    prepare(settings)
    group = Group(settings, "live", EVENTS, settings.partitions)
    with closing(ShownGroup(settings, "live")) as shown:
        shown.show({(EVENTS, 0): 5, (EVENTS, 1): 7})
        eventually(lambda: group.offsets() == {0: 5, 1: 7})
        shown._shown._not_before = 0.0
        shown.show({(EVENTS, 0): 6, (EVENTS, 1): 7})
        eventually(lambda: group.offsets() == {0: 6, 1: 7})
