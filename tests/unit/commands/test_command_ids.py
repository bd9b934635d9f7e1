"""Whose a command id is: one stream's and one origin's; and a retry always gets its own first receipt."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from commands.codec import fingerprint_of
from commands.declaring.json_body import canonical
from commands.errors import AmbiguousReceipt
from commands.handling.batch import Batch
from commands.handling.handler import Handler
from commands.local_state.state import MemoryStore
from commands.receipt import Receipt, reuse_key, scoped_key
from commands.sending.gateway import CommandGateway
from eventlog.envelope import CLIENT, OUTBOX, PROCESS, Envelope, decode, encode, partition_of
from eventlog.memory import MemoryLog
from eventlog.ports import Entry, Record
from eventlog.topics import EVENTS, RECEIPTS
from tests.support import listed
from tests.unit.commands.test_gateway import eventually_submitted, play, receipt_once_all_are_read
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
    return {each.stream: replace(each, shared=False) for each in receipts.values() if each.command_id == command_id}


@pytest.mark.parametrize("together", [False, True], ids=["earlier", "in the same transaction"])
@pytest.mark.parametrize("command_id", ["a", " a", " "])
def test_each_stream_decides_an_id_once_and_a_retry_gets_its_own_receipt(
    partition: Partition, together: bool, command_id: str
) -> None:
    streams = [command(name, number, command_id) for number, name in enumerate("cdef", 1)]
    first: dict[str, Receipt] = {}
    for some in [streams] if together else [[each] for each in streams]:
        first |= own_of(partition.run(*some)[1], command_id)
    assert [first[each.stream].outcome for each in streams] == ["accepted"] * 4
    partition.restart()
    for each in streams:
        batch, again = partition.run(each)
        assert batch.events == []
        assert own_of(again, command_id)[each.stream] == first[each.stream]


def test_an_id_that_is_the_key_of_another_receipt_takes_nothing(partition: Partition) -> None:
    key = scoped_key("a", "counter/d", CLIENT)
    for some in ([command("c", 5, key), command("c")], [command("d")]):
        assert {each.outcome for each in partition.run(*some)[1].values()} == {"accepted"}
    for each in (command("c", 5, key), command("d")):
        batch, again = partition.run(each)
        assert (batch.events, {found.outcome for found in again.values()}) == ([], {"accepted"})


def test_the_receipt_beside_another_renews_it_so_that_none_outlives_the_one_by_which_it_is_found(
    partition: Partition,
) -> None:
    _, first = partition.run(command("c"))
    assert not first["a"].shared
    _, beside = partition.run(command("d"))
    key = scoped_key("a", "counter/d", CLIENT)
    assert beside.keys() == {"a", key}
    assert beside["a"] == replace(first["a"], shared=True)
    _, retried = partition.run(command("d"), command("d"), command("c"))
    assert retried == beside


@pytest.mark.parametrize("other", [PROCESS, OUTBOX])
@pytest.mark.parametrize("client_first", [True, False])
@pytest.mark.parametrize("by", [1, 2], ids=["the same command", "another one"])
def test_an_id_of_another_origin_is_another_id(partition: Partition, client_first: bool, other: str, by: int) -> None:
    first, second = (CLIENT, other) if client_first else (other, CLIENT)
    one, two = command(command_id=PLACE, origin=first), command(command_id=PLACE, origin=second, by=by)
    partition.run(one)
    batch, receipts = partition.run(two)
    assert len(batch.events) == 1
    assert receipts[scoped_key(PLACE, "counter/c", second)].origin == second
    assert partition.run(one, two)[0].events == []


@pytest.mark.parametrize(
    ("origin", "source"),
    [
        (PROCESS, "fulfilment"),
        (PROCESS, "fulfilment/O1"),
        (PROCESS, "counter"),
        (PROCESS, "counter/c"),
        (OUTBOX, "counter"),
        (CLIENT, "counter"),
    ],
)
def test_commands_and_receipts_of_an_earlier_release_are_not_decided_again(
    partition: Partition, origin: str, source: str
) -> None:
    earlier, now = (command(command_id=PLACE, origin=each, source=source) for each in (None, origin))
    for first, second in ((earlier, now), (now, earlier)):
        partition.store.clear()
        partition.restart()
        _, receipts = partition.run(first)
        batch, again = partition.run(second)
        assert (batch.events, again) == ([], receipts)
        assert receipts.keys() == {PLACE}  # where an earlier release looks for it
        # as an earlier release has written it
        partition.store.apply({}, {PLACE: replace(receipts[PLACE], origin=None).to_json()}, {})
        assert partition.run(now)[0].events == partition.run(earlier)[0].events == []


def test_a_receipt_of_an_earlier_release_that_a_client_has_taken_refuses_no_process(partition: Partition) -> None:
    taken = fingerprint_of("counter.count", b'{"by":7,"counter_id":"c"}', None)
    earlier = Receipt("p:x:0", "counter.count", "counter/c", "accepted", 1, taken, "2026-01-02T00:00:00.000000Z")
    partition.store.apply({}, {"p:x:0": earlier.to_json()}, {})
    assert len(partition.run(command(command_id="p:x:0", origin=PROCESS, source="p"))[0].events) == 1
    _, refused = partition.run(command(command_id="p:x:0"))
    assert refused.popitem()[1].outcome == "failed"


def test_a_reused_id_is_refused_and_does_not_disturb_those_of_other_streams(partition: Partition) -> None:
    partition.run(command("c"), command("d"))
    batch, receipts = partition.run(command("d", by=2), command("d"), command("c"))
    assert batch.events == []
    fingerprint = fingerprint_of("counter.count", b'{"by":2,"counter_id":"d"}', None)
    assert receipts[reuse_key("a", fingerprint)].error is not None
    assert {key: each.outcome for key, each in receipts.items()} == {
        "a": "accepted",
        scoped_key("a", "counter/d", CLIENT): "accepted",
        reuse_key("a", fingerprint): "failed",
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
            sent = [gateway.submit("listing.list_property", listing(each), command_id="k") for each in some]
            return await asyncio.gather(*sent)

        first = await send_all()
        assert [(each.outcome, each.stream) for each in first] == [("accepted", f"listing/{each}") for each in some]
        # from what the gateway has read, and from the handler
        for _ in range(2):
            again = await send_all()
            assert [replace(each, shared=False) for each in again] == [replace(each, shared=False) for each in first]
        reused = await gateway.submit("listing.list_property", listing(some[1], price=7), command_id="k")
        assert (reused.outcome, reused.error and reused.error.code) == ("failed", "idempotency_key_reused")
        for each in first:
            found = await gateway.receipt("k", stream=each.stream)
            assert found is not None
            assert found.events == each.events
            assert await gateway.receipt("k", stream=each.stream, origin=PROCESS) is None
        with pytest.raises(AmbiguousReceipt, match='"listing/L'):
            await gateway.receipt("k")
        assert await gateway.receipt("k", stream="listing/nobody's") is None

    play(scenario)


@pytest.mark.parametrize("same_partition", [False, True])
def test_an_id_alone_is_enough_as_long_as_one_command_has_it(same_partition: bool) -> None:
    async def scenario(gateway: CommandGateway, log: MemoryLog) -> None:
        names = names_by_partition(log)
        one, other = (names[0][0], names[0][1]) if same_partition else (names[1][0], names[0][0])
        first = await gateway.submit("listing.list_property", listing(one), command_id="k")
        assert await receipt_once_all_are_read(gateway, "k") == first
        await gateway.submit("listing.list_property", listing(other), command_id="k")
        with pytest.raises(AmbiguousReceipt):
            await gateway.receipt("k")

    play(scenario)


def test_a_command_of_a_process_with_the_id_and_body_of_a_client_s_does_not_answer_the_client() -> None:
    async def scenario(gateway: CommandGateway, log: MemoryLog) -> None:
        stream, partition = "listing/L1", partition_of("listing/L1", log.partitions)
        receipt = asyncio.create_task(gateway.submit("listing.list_property", listing("L1"), command_id="p:x:0"))
        sent = decode((await eventually_submitted(log, 1))[0].value)
        fingerprint = fingerprint_of("listing.list_property", encoded(sent), None)
        others = Receipt("p:x:0", sent.type, stream, "accepted", 9, fingerprint, "2026-01-02T00:00:00.000000Z")
        for each in (replace(others, origin=PROCESS), replace(others, origin=CLIENT, version=1)):
            log.submit(Entry(RECEIPTS, "p:x:0", each.to_json(), 1), partition)
        assert (await receipt).version == 1
        assert list(log.read(EVENTS, partition, 0)) == []

    play(scenario, answered=False)


def encoded(envelope: Envelope) -> bytes:
    return canonical(envelope.data)[0]
