"""The handler process on real Kafka: answers, retries, restarts, kills."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import Unanswered
from headwater.commands.receipt import Receipt
from headwater.commands.sending import receipt_follower
from headwater.commands.sending.gateway import CommandGateway
from headwater.commands.sending.stored_receipts import open_stored
from headwater.compose.ports import free_port, free_ports
from headwater.compose.settings import StackSettings
from headwater.compose.stack import Stack
from headwater.eventlog.envelope import HEARTBEAT, decode, partition_of
from headwater.eventlog.errors import EventLogError, TopicMismatch
from headwater.eventlog.kafka import admin
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.ports import Entry, Record
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import COMMANDS, DEAD_LETTERS, EVENTS, RECEIPTS
from tests.integration.commands.handler_process import (
    REGISTRY,
    ended,
    handler,
    output,
    start_handler,
    stored_events,
    with_gateway,
)
from tests.support.badly_behaved import BAD, BAD_COMMANDS, CODES
from tests.support.listed import LISTING
from tests.support.scraped import scraped
from tests.support.seeds import examples
from tests.support.submitted import submit
from tests.support.waiting import BOUND_S, eventually

REPOSITORY = Path(__file__).parents[3]


def test_a_command_becomes_an_event_and_a_receipt(log_settings: LogSettings) -> None:
    async def play(gateway: CommandGateway) -> list[Receipt]:
        body = LISTING | {"listing_id": "Ä/1"}
        return [
            await submit(gateway, "listing.list_property", body, expected_version=0),
            await submit(gateway, "listing.change_price", {"listing_id": "Ä/1", "price": 5}, expected_version=0),
            await submit(gateway, "listing.change_price", {"listing_id": "Ä/1", "price": 5}, expected_version=1),
            await submit(gateway, "listing.sell", {"listing_id": "Ä/1", "sold_for": 5}),
        ]

    port = free_port()
    with handler(log_settings, HEADWATER_METRICS_PORT=str(port)):
        receipts = with_gateway(log_settings, play)
        # counted once the transaction has ended, which the receipt does not wait for
        counted = eventually(lambda: len(found := scraped(port, "headwater_commands_total")) == 4 and found)
        owned = {(("role", "handler"),): log_settings.partitions}
        eventually(lambda: scraped(port, "headwater_partitions_owned") == owned, "all partitions are served")
    assert counted == {(("outcome", receipt.outcome), ("type", receipt.type)): 1 for receipt in receipts}
    assert [receipt.outcome for receipt in receipts] == ["accepted", "conflict", "accepted", "rejected"]
    assert [receipt.version for receipt in receipts] == [1, 1, 2, 2]
    streams = stored_events(log_settings)
    assert [event.type for event in streams["listing/Ä/1"]] == ["listing.listed", "listing.price_changed"]
    log = KafkaLog(log_settings)
    for receipt in (receipts[0], receipts[2]):
        (event,) = receipt.events
        partition, offset = event.position.partition, event.position.offset
        (record,) = log.read(EVENTS, partition, offset, offset + 1)
        assert record.key == event.id
        assert partition == partition_of("listing/Ä/1", log_settings.partitions)
    log.close()


@pytest.mark.complete
def test_a_retry_after_a_restart_is_given_the_first_receipt_and_adds_nothing(
    log_settings: LogSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(gateway: CommandGateway) -> Receipt:
        return await submit(gateway, "listing.list_property", LISTING | {"listing_id": "L1"}, command_id="k")

    with handler(log_settings):
        first = with_gateway(log_settings, play)
    log = KafkaLog(log_settings)
    partition = partition_of("listing/L1", log_settings.partitions)
    (command,) = log.read(COMMANDS, partition, 0)
    # around the gateway, which would answer from what it has read
    log.submit(Entry(COMMANDS, command.key, command.value, command.timestamp_ms), partition).result(240)
    with handler(log_settings):
        receipts = eventually(lambda: two(log.read(RECEIPTS, partition, 0)))
    log.close()
    assert [Receipt.from_json(record.value or b"") for record in receipts] == [first, first]
    assert len(stored_events(log_settings)["listing/L1"]) == 1
    monkeypatch.setattr(receipt_follower, "START_OFFSETS", 0)  # all receipts are older ones
    for _ in range(2):  # the second finds its index again
        assert asyncio.run(looked_up(log_settings, "k")) == first


async def looked_up(settings: LogSettings, command_id: str) -> Receipt | None:
    """The receipt of a command as the API finds it, twice, with one connection."""
    log = KafkaLog(settings)
    gateway = CommandGateway(log, REGISTRY, open_index=partial(open_stored, log, settings.state / "api", 7))
    await gateway.start()
    await asyncio.to_thread(eventually, lambda: gateway._follower.knows_enough, "all receipts are known")
    assert await gateway.receipt("unknown", "listing/L1") is None
    readers: list[object] = []
    for _ in range(100):  # a broker that does not answer in time is asked by another reader
        found = await gateway.receipt(command_id, "listing/L1")
        readers, before = list(log._idle_readers), readers
        if readers == before != []:
            break
    assert readers == before != [], "each question has another reader"
    await gateway.close()
    log.close()
    return found


def two(records: Iterable[Record]) -> list[Record]:
    """All records once there are two, else none."""
    found = list(records)
    return found if len(found) >= 2 else []


@pytest.mark.complete
def test_an_unreadable_command_is_a_dead_letter_and_the_next_is_answered(log_settings: LogSettings) -> None:
    log = KafkaLog(log_settings)
    partition = partition_of("listing/L1", log_settings.partitions)
    # of an older record, Kafka could delete the segment before it is read
    log.submit(Entry(COMMANDS, "?", b"\x00 no event", time.time_ns() // 1_000_000), partition).result(240)

    async def play(gateway: CommandGateway) -> Receipt:
        return await submit(gateway, "listing.list_property", LISTING | {"listing_id": "L1"})

    with handler(log_settings):
        assert with_gateway(log_settings, play).outcome == "accepted"
    (letter,) = log.read(DEAD_LETTERS, 0, 0)
    log.close()
    assert letter.key == f"commands/{partition}/0"
    assert "malformed JSON" in orjson.loads(letter.value or b"")["reason"]


@pytest.mark.complete
def test_no_command_stops_its_partition_whatever_its_rules_do(log_settings: LogSettings) -> None:
    sent = {what: f"bad-{number}" for number, what in enumerate(BAD) if what not in BAD_COMMANDS}
    registry = CommandRegistry.load(["tests.support.badly_behaved"])
    good = itertools.count()

    async def do(gateway: CommandGateway, what: str, command_id: str) -> Receipt:
        return await submit(gateway, "wild.do", {"wild_id": "w", "what": what}, command_id=command_id)

    async def play(gateway: CommandGateway) -> dict[str, Receipt]:
        failed = {}
        for what, command_id in sent.items():
            both = do(gateway, what, command_id), do(gateway, "good", f"good-{next(good)}")
            failed[what], fine = await asyncio.gather(*both)
            assert (failed[what].outcome, fine.outcome) == ("failed", "accepted"), what
        return failed

    async def again(gateway: CommandGateway) -> tuple[dict[str, Receipt], Receipt]:
        failed = {what: await do(gateway, what, command_id) for what, command_id in sent.items()}
        return failed, await do(gateway, "good", f"good-{next(good)}")

    with handler(log_settings, "tests.support.badly_behaved", REPOSITORY) as process:
        failed = with_gateway(log_settings, play, registry=registry)
        assert process.poll() is None, output(log_settings)
    assert {what: CODES.get(what, "internal_error") for what in sent} == {
        what: receipt.error and receipt.error.code for what, receipt in failed.items()
    }
    with handler(log_settings, "tests.support.badly_behaved", REPOSITORY):
        assert with_gateway(log_settings, again, registry=registry)[0] == failed
        _, fine = with_gateway(log_settings, again, registry=registry)
    assert (fine.outcome, fine.version) == ("accepted", len(sent) + 2)
    # a broker that does not answer in time is a warning, and a fault of the handler's own an error
    retried = [line for line in output(log_settings).splitlines() if "retrying" in line and " WARNING " not in line]
    assert retried == []


@pytest.mark.complete
def test_a_command_that_fails_is_one_line_of_json_with_its_stream_and_trace_whichever_handler_decides(
    log_settings: LogSettings,
) -> None:
    registry, trace = CommandRegistry.load(["tests.support.badly_behaved"]), "0af7651916cd43dd8448eb211c80319c"

    async def play(gateway: CommandGateway) -> Receipt:
        body, traceparent = {"wild_id": "w", "what": "evolve fails"}, f"00-{trace}-b7ad6b7169203331-01"
        return await submit(gateway, "wild.do", body, command_id="c1", traceparent=traceparent)

    variables = {"HEADWATER_LOG_FORMAT": "json", "HEADWATER_HANDLERS": "2"}

    def taken() -> set[tuple[str, int]]:
        lines = [orjson.loads(line) for line in output(log_settings).splitlines()]
        return {(line["role"], line["partition"]) for line in lines if "taking over" in line["message"]}

    every = {("handler", partition) for partition in range(log_settings.partitions)}
    with handler(log_settings, "tests.support.badly_behaved", REPOSITORY, **variables):
        assert with_gateway(log_settings, play, registry=registry).outcome == "failed"
        eventually(lambda: taken() >= every, "every partition has its line")
    lines = [orjson.loads(line) for line in output(log_settings).splitlines()]
    assert {line["process"] for line in lines} == {"handler"}
    failed, *_ = (line for line in lines if "command_id" in line)  # more, if its transaction failed
    partition = partition_of("wild/w", log_settings.partitions)
    about = ("level", "role", "partition", "stream", "command_id", "command_type", "trace_id")
    assert [failed[name] for name in about] == ["ERROR", "handler", partition, "wild/w", "c1", "wild.do", trace]
    assert "Traceback" in failed["error"]


@pytest.mark.complete
def test_each_partition_has_a_heartbeat(log_settings: LogSettings) -> None:
    log = KafkaLog(log_settings)

    def beats_of(partition: int) -> list[Record]:
        return two(log.read(EVENTS, partition, 0))

    with handler(log_settings):
        for partition in range(log_settings.partitions):
            beats = eventually(partial(beats_of, partition))
            assert {record.key for record in beats} == {f"heartbeat/{partition}"}
            first, second = (decode(record.value) for record in beats[:2])
            assert first.type == HEARTBEAT
            assert 0.5 < (second.time - first.time).total_seconds() < BOUND_S
    log.close()


@pytest.mark.complete
def test_a_handler_that_joins_takes_a_share_and_no_command_is_lost(log_settings: LogSettings) -> None:
    async def play(gateway: CommandGateway) -> list[Receipt]:
        async def one(number: int) -> Receipt:
            return await submit(gateway, "listing.list_property", LISTING | {"listing_id": f"L{number}"})

        receipts = list(await asyncio.gather(*(one(number) for number in range(50))))
        with handler(log_settings):
            await asyncio.to_thread(eventually, lambda: output(log_settings).count("given up as handler") >= 1)
            receipts += await asyncio.gather(*(one(number) for number in range(50, 100)))
        receipts += await asyncio.gather(*(one(number) for number in range(100, 150)))
        return receipts

    with handler(log_settings):
        receipts = with_gateway(log_settings, play)
    assert {receipt.outcome for receipt in receipts} == {"accepted"}
    assert {len(events) for events in stored_events(log_settings).values()} == {1}


@pytest.mark.soak
def test_a_handler_killed_in_mid_load_loses_and_repeats_nothing(log_settings: LogSettings) -> None:
    kills, streams, rounds = examples(1), 40, examples(10)

    async def load(gateway: CommandGateway) -> dict[str, list[Receipt]]:
        answered: dict[str, list[Receipt]] = {}
        process = await asyncio.to_thread(start_handler, log_settings)

        async def drive(name: str) -> None:
            first = await answer("listing.list_property", LISTING | {"listing_id": name}, name)
            receipts = answered[name] = [first]
            for number in range(rounds):
                body = {"listing_id": name, "price": 1_000 + number}
                receipts.append(await answer("listing.change_price", body, f"{name}-{number}"))

        async def answer(command: str, body: dict[str, Any], command_id: str) -> Receipt:
            """The first one: a retry with the same id must make no difference."""
            for _ in range(5):
                with suppress(Unanswered, EventLogError):
                    return await submit(gateway, command, body, command_id=command_id)
            raise AssertionError(f"{command_id} was never answered")

        async def kill() -> None:
            nonlocal process
            for strike in range(1, kills + 1):
                goal = streams * rounds * strike // (kills + 1)
                await asyncio.to_thread(eventually, lambda g=goal: sum(map(len, answered.values())) >= g)
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
                process = await asyncio.to_thread(start_handler, log_settings)

        try:
            await asyncio.gather(kill(), *(drive(f"L{number}") for number in range(streams)))
        finally:
            process.terminate()
            assert ended(process) == 0, output(log_settings)
        return answered

    answered = with_gateway(log_settings, load, timeout_s=60)  # an answer may be lost with its handler
    assert output(log_settings).count("taking over as handler") >= (kills + 1) * log_settings.partitions
    stored = stored_events(log_settings)
    for name, receipts in answered.items():
        events = stored[f"listing/{name}"]
        assert [event.id for receipt in receipts for event in (receipt.events[0],)] == [event.id for event in events]
        assert [event.data["price"] for event in events[1:]] == [1_000 + number for number in range(rounds)]


@pytest.mark.complete
def test_a_restart_of_the_broker_is_survived(tmp_path: Path) -> None:
    ports = free_ports()

    async def play(gateway: CommandGateway, name: str) -> Receipt:
        body = LISTING | {"listing_id": name}
        for _ in range(60):
            with suppress(Unanswered, EventLogError):
                return await submit(gateway, "listing.list_property", body, command_id=name)
        raise AssertionError(f"{name} was never answered")

    with Stack(StackSettings(tmp_path / "stack", ports), parts=["kafka"]) as own:
        settings = LogSettings(bootstrap=own.endpoints.kafka, partitions=2, state=tmp_path, modules=("listings",))
        admin.prepare(settings)
        with handler(settings) as process:

            async def across(gateway: CommandGateway) -> list[Receipt]:
                receipts = [await play(gateway, "before")]
                stopping = asyncio.create_task(asyncio.to_thread(own["kafka"].kill))
                receipts += await asyncio.gather(*(play(gateway, f"during {n}") for n in range(20)))
                await stopping
                await asyncio.to_thread(own["kafka"].wait_healthy)
                return [*receipts, await play(gateway, "after")]

            # a short wait, since answers that are lost with the broker never come
            receipts = with_gateway(settings, across, timeout_s=5)
            assert process.poll() is None, output(settings)
        assert {receipt.outcome for receipt in receipts} == {"accepted"}
        stored = stored_events(settings)
        assert len(stored) == 22
        assert {len(events) for events in stored.values()} == {1}


def test_a_topic_with_other_settings_is_refused(log_settings: LogSettings) -> None:
    with pytest.raises(TopicMismatch, match="partitions"):
        admin.prepare(replace(log_settings, partitions=3))
