"""Loaders on real servers: from `patches` to rows, whatever stands in the way."""

from __future__ import annotations

import logging
import random
import threading
from base64 import b64encode
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from headwater.compose.settings import StackSettings
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.programs.metrics import REGISTRY
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import DEAD_LETTERS, PATCHES
from headwater.projections.loading import patch_reader
from headwater.projections.loading.loader import Loader
from headwater.projections.reading.reader import fold
from headwater.projections.stores.declared import Cache, Elasticsearch, Postgres
from headwater.projections.stores.open import open_store
from headwater.projections.stores.store import Target
from headwater.projections.testing.contracts import PARTITIONS, History, history
from tests.contracts.opened_stores import RealServer
from tests.contracts.view_histories import BY_GROUP, BY_THING
from tests.integration.projections.cut_proxy import CutProxy
from tests.integration.projections.loading import create, rows_become, send
from tests.support.background import running
from tests.support.lost_clients import first_is_lost
from tests.support.ordered_producer import stored
from tests.support.stuck_clients import JoinsNothing, ReceivesNothing, first_is_stuck
from tests.support.versioned import REASONS, readable, unreadable, weighed
from tests.support.waiting import Latest, eventually


def told_of(view: Any, seed: int = 1) -> History:
    return history(view, list(view.plan.events.values()), seed, length=200)


def always(target: Target) -> Callable[[], list[Target]]:
    return lambda: [target]


def test_patches_become_rows_in_every_store(
    servers: dict[str, RealServer], settings: LogSettings, producer: Producer
) -> None:
    told = told_of(BY_GROUP)
    targets = {name: create(server, BY_GROUP) for name, server in servers.items()}
    # more than one loader a store: they share the partitions, and move them when one comes or goes
    loaders = [Loader(servers[n].open(), always(t), settings) for n, t in targets.items() for _ in range(2)]
    with running(*(loader.run for loader in loaders[::2])):
        send(producer, settings, told)
        with running(*(loader.run for loader in loaders[1::2])):
            for server in servers.values():
                rows_become(server, told)
    assert letters_of(settings) == {}


def test_what_is_no_patch_goes_to_the_dead_letters_and_the_rest_goes_on(
    servers: dict[str, RealServer], settings: LogSettings, producer: Producer
) -> None:
    told, server = told_of(BY_THING), servers["postgres"]
    for key, value in (("by_thing@1/x", b"{"), ("by_thing@1/x", b'{"p":0}'), ("", b"{}"), ("by_thing@1/x", None)):
        producer.produce(settings.topic(PATCHES), value, key, 0)
    too_much = {"p": 2, "o": 0, "i": 0, "t": 1, "c": {"total": "many"}}
    producer.produce(settings.topic(PATCHES), orjson.dumps(too_much), "by_thing@1/y", 1)
    stored(producer)
    send(producer, settings, told)
    target = create(server, BY_THING)
    loader = Loader(server.open(), lambda: [target], settings)
    with running(loader.run):
        rows_become(server, told)
    letters = letters_of(settings)
    assert {f"patches/0/{offset}" for offset in range(4)} < letters.keys()
    assert all(letters.values())
    assert len(letters) == 5


def test_events_of_older_versions_are_upcast_for_the_rows_of_each_partition(
    servers: dict[str, RealServer], settings: LogSettings, producer: Producer
) -> None:
    sources = [*readable(), *unreadable()]
    for source in sources:
        texts = {"k": source.envelope.id.encode(), "d": source.record.encode()}
        value = {"p": 0, "o": source.position.offset, "t": source.timestamp_ms, "v": [weighed.tag, "foreign@1"]}
        value |= {name: b64encode(text).decode() for name, text in texts.items()}
        for partition in range(PARTITIONS):
            producer.produce(settings.topic(PATCHES), orjson.dumps(value), "older/0", partition)
    stored(producer)
    view = replace(weighed, stores=(Postgres(), Elasticsearch(), Cache()))
    loaders = [Loader(server.open(), always(create(server, view)), settings) for server in servers.values()]
    expected = fold(view, sources)
    assert len(expected) == 3
    with running(*(loader.run for loader in loaders)):
        for server in servers.values():
            eventually(partial(lambda server: server.rows(view) == expected, server))
    assert letters_of(settings) == {
        f"events/0/{each.position.offset}": why for each, why in zip(unreadable(), REASONS, strict=True)
    }


def letters_of(settings: LogSettings) -> dict[str, str]:
    """The reasons of all dead letters, by their keys."""
    with closing(KafkaLog(settings)) as log:
        return {record.key: orjson.loads(record.value or b"")["reason"] for record in log.read(DEAD_LETTERS, 0, 0)}


def one_loads_all(server: RealServer, settings: LogSettings, producer: Producer) -> None:
    """A loader, which makes its client now, brings a history into the store."""
    told, target = told_of(BY_GROUP), create(server, BY_GROUP)
    send(producer, settings, told)
    with running(Loader(server.open(), lambda: [target], settings).run):
        rows_become(server, told)


def test_a_loader_whose_client_knows_no_broker_any_more_goes_on_with_a_new_one(
    servers: dict[str, RealServer], settings: LogSettings, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patch_reader, "Consumer", first_is_lost(Consumer, monkeypatch))
    one_loads_all(servers["postgres"], settings, producer)


@pytest.mark.complete
@pytest.mark.parametrize("kind", [JoinsNothing, ReceivesNothing])
def test_a_loader_whose_client_gets_nothing_goes_on_with_a_new_one(
    servers: dict[str, RealServer],
    settings: LogSettings,
    producer: Producer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: type[Consumer],
) -> None:
    monkeypatch.setattr(patch_reader, "Consumer", first_is_stuck(kind, monkeypatch))
    one_loads_all(servers["postgres"], settings, producer)
    assert caplog.text.count("a client of Kafka is stuck") == 1


def test_a_generation_that_appears_is_loaded_from_its_start(
    servers: dict[str, RealServer], settings: LogSettings, producer: Producer
) -> None:
    told, server = told_of(BY_GROUP), servers["valkey"]
    targets: list[Target] = []
    loader = Loader(server.open(), lambda: list(targets), settings)
    with running(loader.run):
        send(producer, settings, told)
        targets.append(create(server, BY_GROUP))
        rows_become(server, told)
        # the next one starts from the beginning while the first goes on
        more = told_of(BY_THING, 2)
        send(producer, settings, more)
        targets.append(create(server, BY_THING))
        rows_become(server, more)
    assert server.rows(BY_GROUP) == fold(BY_GROUP, told.sources)


def test_a_generation_whose_patches_are_deleted_is_named_and_the_others_go_on(
    servers: dict[str, RealServer], settings: LogSettings, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    told, server = told_of(BY_GROUP), servers["postgres"]
    late = create(server, BY_THING)
    old = told_of(BY_THING, 3)
    send(producer, settings, old)
    starts = [len(old.patches.get(partition, ())) for partition in range(settings.patch_partitions)]
    admin = AdminClient({"bootstrap.servers": settings.bootstrap})
    places = [TopicPartition(settings.topic(PATCHES), patch, starts[patch]) for patch in old.patches]
    for future in admin.delete_records(places).values():
        future.result()
    kept = create(server, BY_GROUP, starts)
    with (
        caplog.at_level(logging.ERROR, "headwater.projections.loading.loader"),
        running(Loader(server.open(), lambda: [late, kept], settings).run),
    ):
        send(producer, settings, told)
        rows_become(server, told)
    assert "replay rebuild by_thing" in caplog.text
    assert server.rows(BY_THING) == {}


def test_a_store_that_was_emptied_is_named(
    servers: dict[str, RealServer], settings: LogSettings, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    told, server = told_of(BY_GROUP), servers["valkey"]
    target = create(server, BY_GROUP)
    loader = Loader(server.open(), lambda: [target], settings)
    with caplog.at_level(logging.ERROR, "headwater.projections.loading.loader"), running(loader.run):
        send(producer, settings, told)
        rows_become(server, told)
        server.clean()
        send(producer, settings, told)
        eventually(
            lambda: "replay rebuild by_group" in caplog.text, Latest(lambda: f"logged is: {caplog.text[-2000:]}")
        )
    assert server.open().ledgers(target) == {}


def test_loaders_that_die_and_come_back_leave_exact_sums(
    servers: dict[str, RealServer], settings: LogSettings, producer: Producer
) -> None:
    told, chance = told_of(BY_GROUP), random.Random(1)
    for server in servers.values():
        target, done = create(server, BY_GROUP), False
        if server is servers["postgres"]:
            send(producer, settings, told)
        while not done:
            died = threading.Event()

            def fault(moment: str, died: threading.Event = died) -> None:
                if chance.random() < 0.4:
                    died.set()
                    raise _Death(moment)

            loader = Loader(server.open(fault), always(target), settings, range(PARTITIONS))
            ends = {each: len(records) for each, records in told.patches.items()}
            try:
                while loader.positions != ends:
                    loader.step(threading.Event())
                done = True
            except _Death:
                continue
            finally:
                loader.close()
        assert server.rows(BY_GROUP) == fold(BY_GROUP, told.sources)


@pytest.mark.parametrize("away", ["postgres", "elasticsearch", "valkey"])
def test_a_store_that_is_cut_off_holds_back_no_other_and_catches_up(
    servers: dict[str, RealServer], settings: LogSettings, producer: Producer, stack: StackSettings, away: str
) -> None:
    told = told_of(BY_GROUP)
    targets = {name: create(server, BY_GROUP) for name, server in servers.items()}
    address = urlsplit(getattr(stack.endpoints, away))
    proxy = CutProxy(str(address.hostname), int(address.port or 0))
    url = address._replace(netloc=address.netloc.replace(str(address.port), str(proxy.port))).geturl()
    through = open_store(away, replace(servers[away].settings, **{away: url}))
    loaders = {
        name: Loader(through if name == away else server.open(), always(targets[name]), settings)
        for name, server in servers.items()
    }
    try:
        with running(*(loader.run for loader in loaders.values())):
            half = History(BY_GROUP, told.sources, {each: found[:30] for each, found in told.patches.items()})
            send(producer, settings, half)
            reader = loaders[away]
            eventually(lambda: sum(reader.positions.values()) == 90, Latest(lambda: f"90 in {dict(reader.positions)}"))
            proxy.cut()
            before = waits_for(away)
            rest = History(BY_GROUP, told.sources, {each: found[30:] for each, found in told.patches.items()})
            send(producer, settings, rest)
            for name in servers.keys() - {away}:
                rows_become(servers[name], told)
            eventually(lambda: waits_for(away) > before + 2, f"the loader of {away} waits for it")
            assert servers[away].rows(BY_GROUP) != fold(BY_GROUP, told.sources)
            proxy.mend()
            rows_become(servers[away], told)
    finally:
        through.close()
        proxy.close()


class _Death(Exception):
    """The loader's process ends here."""


def waits_for(store: str) -> float:
    return REGISTRY.get_sample_value("headwater_loader_store_waits_total", {"store": store}) or 0.0
