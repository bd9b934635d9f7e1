"""Whose a command id is: one stream's and one origin's; and a retry always gets its own first receipt."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from headwater.commands.codec import fingerprint_of
from headwater.commands.declaring.json_body import canonical
from headwater.commands.handling.batch import Batch
from headwater.commands.handling.handler import Handler
from headwater.commands.local_state.state import MemoryStore
from headwater.commands.receipt import Receipt, receipt_key, reuse_key
from headwater.commands.sending.gateway import CommandGateway
from headwater.eventlog.envelope import CLIENT, OUTBOX, PROCESS, Envelope, decode, encode, partition_of
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry, Record
from headwater.eventlog.topics import EVENTS, RECEIPTS
from tests.support import listed
from tests.support.submitted import submit
from tests.unit.commands.test_gateway import eventually_submitted, play
from tests.unit.commands.test_handler import NOW_MS, REGISTRY

TIME = datetime(2026, 1, 2, tzinfo=UTC)
PLACE = "shop@0/16B3748"


class Partition:
    """One partition of commands of counters, and its store."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.restart()

    def restart(self) -> None:
        self._handler = Handler(REGISTRY, 0, 1, self.store)

    def run(self, *commands: Envelope) -> tuple[Batch, dict[str, Receipt]]:
        records = [Record("commands", 0, at, each.stream, encode(each), 1) for at, each in enumerate(commands)]
        batch = self._handler.decide(records, NOW_MS)
        receipts = batch.receipts(range(len(batch.entries)))
        self.store.apply(batch.snapshots, receipts, {})
        return batch, {key: Receipt.from_json(value or b"") for key, value in receipts.items()}


def command(
    counter: str = "c", by: int = 1, command_id: str = "a", origin: str | None = CLIENT, source: str = "counter"
) -> Envelope:
    data = {"counter_id": counter, "by": by}
    stream = f"counter/{counter}"
    return Envelope(command_id, "counter.count", stream, TIME, data, f"/headwater/{source}", origin=origin)


@pytest.fixture
def partition() -> Partition:
    return Partition()


def own_of(receipts: dict[str, Receipt], command_id: str) -> dict[str, Receipt]:
    """The receipts of an id, by stream."""
    return {receipt.stream: receipt for receipt in receipts.values() if receipt.command_id == command_id}


@pytest.mark.parametrize("together", [False, True], ids=["earlier", "in the same transaction"])
@pytest.mark.parametrize("command_id", ["a", " a", " ", '"', "\n"])
def test_each_stream_decides_an_id_once_and_a_retry_gets_its_own_receipt(
    partition: Partition, together: bool, command_id: str
) -> None:
    streams = [command(name, number, command_id) for number, name in enumerate("cdef", 1)]
    first: dict[str, Receipt] = {}
    for some in [streams] if together else [[stream] for stream in streams]:
        first |= own_of(partition.run(*some)[1], command_id)
    assert [first[stream.stream].outcome for stream in streams] == ["accepted"] * 4
    partition.restart()
    for stream in streams:
        batch, again = partition.run(stream)
        assert batch.events == []
        assert own_of(again, command_id) == {stream.stream: first[stream.stream]}


def test_an_id_that_is_the_key_of_another_receipt_takes_nothing(partition: Partition) -> None:
    key = receipt_key("counter/d", CLIENT, "a")
    reused = reuse_key(key, fingerprint_of("counter.count", b'{"by":2,"counter_id":"d"}', None))
    others = [command("d", 5, key), command("d", 5, reused), command("d", 5, f"a{reused.removeprefix(key)}")]
    assert {receipt.outcome for receipt in partition.run(*others, command("d"))[1].values()} == {"accepted"}
    assert [receipt.outcome for receipt in partition.run(command("d", by=2))[1].values()] == ["failed"]
    for each in (*others, command("d")):
        batch, again = partition.run(each)
        assert (batch.events, {found.outcome for found in again.values()}) == ([], {"accepted"})


@pytest.mark.parametrize("other", [PROCESS, OUTBOX])
@pytest.mark.parametrize("client_first", [True, False])
@pytest.mark.parametrize("by", [1, 2], ids=["the same command", "another one"])
def test_an_id_of_another_origin_is_another_id(partition: Partition, client_first: bool, other: str, by: int) -> None:
    first, second = (CLIENT, other) if client_first else (other, CLIENT)
    one, two = command(command_id=PLACE, origin=first), command(command_id=PLACE, origin=second, by=by)
    partition.run(one)
    batch, receipts = partition.run(two)
    assert len(batch.events) == 1
    assert receipts[receipt_key("counter/c", second, PLACE)].origin == second
    assert partition.run(one, two)[0].events == []


def test_a_command_without_an_origin_is_a_client_s(partition: Partition) -> None:
    _, receipts = partition.run(command(origin=None))
    assert receipts.keys() == {receipt_key("counter/c", CLIENT, "a")}
    assert partition.run(command())[0].events == []


def test_a_reused_id_is_refused_and_does_not_disturb_those_of_other_streams(partition: Partition) -> None:
    partition.run(command("c"), command("d"))
    batch, receipts = partition.run(command("d", by=2), command("d"), command("c"))
    assert batch.events == []
    fingerprint = fingerprint_of("counter.count", b'{"by":2,"counter_id":"d"}', None)
    key = receipt_key("counter/d", CLIENT, "a")
    assert receipts[reuse_key(key, fingerprint)].error is not None
    assert {key: receipt.outcome for key, receipt in receipts.items()} == {
        receipt_key("counter/c", CLIENT, "a"): "accepted",
        key: "accepted",
        reuse_key(key, fingerprint): "failed",
    }


def names_by_partition(log: MemoryLog) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {0: [], 1: []}
    for number in range(20):
        found[partition_of(f"listing/L{number}", log.partitions)].append(f"L{number}")
    return found


def listing(name: str, **more: Any) -> dict[str, Any]:
    return listed.LISTING | {"listing_id": name} | more


def test_one_id_at_the_same_time_for_several_streams_is_accepted_once_by_each() -> None:
    async def scenario(gateway: CommandGateway, log: MemoryLog) -> None:
        names = names_by_partition(log)
        some = [*names[0][:2], *names[1][:2]]

        async def send_all() -> list[Receipt]:
            sent = [submit(gateway, "listing.list_property", listing(each), command_id="k") for each in some]
            return await asyncio.gather(*sent)

        first = await send_all()
        assert [(receipt.outcome, receipt.stream) for receipt in first] == [
            ("accepted", f"listing/{each}") for each in some
        ]
        # from what the gateway has read, and from the handler
        for _ in range(2):
            assert await send_all() == first
        reused = await submit(gateway, "listing.list_property", listing(some[1], price=7), command_id="k")
        assert (reused.outcome, reused.error and reused.error.code) == ("failed", "idempotency_key_reused")
        for event in first:
            assert await gateway.receipt("k", event.stream) == event
            assert await gateway.receipt("k", event.stream, origin=PROCESS) is None
        assert await gateway.receipt("k", "listing/nobody's") is None

    play(scenario)


def test_a_command_of_a_process_with_the_id_and_body_of_a_client_s_does_not_answer_the_client() -> None:
    async def scenario(gateway: CommandGateway, log: MemoryLog) -> None:
        stream, partition = "listing/L1", partition_of("listing/L1", log.partitions)
        receipt = asyncio.create_task(submit(gateway, "listing.list_property", listing("L1"), command_id="p:x:0"))
        sent = decode((await eventually_submitted(log, 1))[0].value)
        fingerprint = fingerprint_of("listing.list_property", encoded(sent), None)
        others = Receipt("p:x:0", sent.type, stream, "accepted", 9, fingerprint, "2026-01-02T00:00:00.000000Z")
        for each in (replace(others, origin=PROCESS), replace(others, origin=CLIENT, version=1)):
            log.submit(Entry(RECEIPTS, receipt_key(stream, each.origin, "p:x:0"), each.to_json(), 1), partition)
        assert (await receipt).version == 1
        assert list(log.read(EVENTS, partition, 0)) == []

    play(scenario, answered=False)


def encoded(envelope: Envelope) -> bytes:
    return canonical(envelope.data)[0]
