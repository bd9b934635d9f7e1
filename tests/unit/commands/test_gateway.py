"""The gateway on the log in memory, with a worker that answers."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Unpack

import orjson
import pytest

from headwater.commands.codec import fingerprint_of
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import EarlierReceiptsUnread, MalformedCommand, TooLarge, Unanswered, UnknownCommand
from headwater.commands.handling.command_task import CommandTask
from headwater.commands.local_state.state import MemoryStore
from headwater.commands.owning.ownership import PartitionWorker
from headwater.commands.receipt import Receipt, ReceiptError, RecordedEvent, receipt_key, reuse_key
from headwater.commands.sending.gateway import ENOUGH, MANY, WOKEN_PER_TURN, CommandGateway
from headwater.commands.sending.prepared_command import Options, PreparedCommand, new_command_id, prepare
from headwater.eventlog.envelope import CLIENT, Envelope, Position, decode, partition_of
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import HANDLER, Entry, Failed, Record
from headwater.eventlog.topics import COMMANDS, RECEIPTS
from tests.support import listed
from tests.support.submitted import submit

LISTING = listed.LISTING | {"listing_id": "L1"}
Scenario = Callable[[CommandGateway, MemoryLog], Awaitable[None]]


@asynccontextmanager
async def gateway_on(log: MemoryLog, answered: bool, timeout_s: float) -> AsyncIterator[CommandGateway]:
    registry = CommandRegistry.load(["listings"])
    workers = [
        PartitionWorker(log, HANDLER, p, lambda p: CommandTask(log, registry, p, MemoryStore()))
        for p in range(log.partitions if answered else 0)
    ]
    for worker in workers:
        worker.start()
    gateway = CommandGateway(log, registry, timeout_s=timeout_s)
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.close()
        for worker in workers:
            worker.stop()
            worker.join()
            worker.check()


def play(scenario: Scenario, answered: bool = True, timeout_s: float = 60.0) -> None:
    async def main() -> None:
        log = MemoryLog(partitions=2)
        async with gateway_on(log, answered, timeout_s) as gateway:
            await scenario(gateway, log)

    asyncio.run(main())


def test_a_command_is_answered_with_its_receipt() -> None:
    async def scenario(gateway: CommandGateway, log: MemoryLog) -> None:
        receipt = await submit(gateway, "listing.list_property", LISTING, traceparent="00-a", correlation_id="x")
        assert (receipt.outcome, receipt.version, receipt.stream) == ("accepted", 1, "listing/L1")
        assert receipt.position == receipt.events[0].position
        (record,) = (record for p in (0, 1) for record in log.read(COMMANDS, p, 0))
        envelope = decode(record.value)
        assert (envelope.id, envelope.traceparent, envelope.correlation_id) == (receipt.command_id, "00-a", "x")
        assert envelope.data == LISTING

    play(scenario)


def test_many_commands_at_once_each_get_their_own_receipt() -> None:
    async def scenario(gateway: CommandGateway, log: MemoryLog) -> None:
        names = [f"L{n}" for n in range(50)]
        receipts = await asyncio.gather(
            *(submit(gateway, "listing.list_property", LISTING | {"listing_id": name}) for name in names)
        )
        assert [receipt.stream for receipt in receipts] == [f"listing/{name}" for name in names]

    play(scenario)


def test_a_retry_is_answered_with_the_first_receipt() -> None:
    async def scenario(gateway: CommandGateway, log: MemoryLog) -> None:
        first = await submit(gateway, "listing.list_property", LISTING, command_id="k")
        again = await submit(gateway, "listing.list_property", LISTING, command_id="k")
        assert again == first
        assert await gateway.receipt("k", "listing/L1") == first
        assert await receipt_once_all_are_read(gateway, "unknown") is None

    play(scenario)


async def receipt_once_all_are_read(gateway: CommandGateway, command_id: str) -> Receipt | None:
    while True:
        try:
            return await gateway.receipt(command_id, "listing/L1")
        except EarlierReceiptsUnread:
            await asyncio.sleep(0.01)


def test_two_at_once_with_one_id_but_other_bodies_are_told_apart() -> None:
    async def scenario(gateway: CommandGateway, log: MemoryLog) -> None:
        await submit(gateway, "listing.list_property", LISTING)
        prices = (1, 2)
        answers = await asyncio.gather(
            *(
                submit(gateway, "listing.change_price", {"listing_id": "L1", "price": price}, command_id="k")
                for price in prices
            )
        )
        assert sorted(answer.outcome for answer in answers) == ["accepted", "failed"]
        refused = next(answer for answer in answers if answer.outcome == "failed")
        assert refused.error is not None
        assert refused.error.code == "idempotency_key_reused"
        later = await submit(gateway, "listing.change_price", {"listing_id": "L1", "price": 3}, command_id="k")
        assert later.error is not None
        assert later.error.code == "idempotency_key_reused"
        kept = await gateway.receipt("k", "listing/L1")
        assert kept is not None
        assert kept.outcome == "accepted"

    play(scenario)


def test_what_cannot_be_a_command_never_reaches_the_log() -> None:
    async def scenario(gateway: CommandGateway, log: MemoryLog) -> None:
        with pytest.raises(UnknownCommand):
            await submit(gateway, "listing.paint", {})
        for body in (
            b"{",
            b"[]",
            b"null",
            b'{"listing_id":"L1","price":NaN}',
            b'{"listing_id":"L1","price":1.5}',
            b'{"listing_id":"\\ud800","price":1}',
            b'{"listing_id":"L\\u00001","price":1}',
            b'{"listing_id":"L1","price":1,"more":2}',
            b'{"listing_id":"L1","price":100000000000000000000000}',
        ):
            with pytest.raises(MalformedCommand):
                await submit(gateway, "listing.change_price", body)
        with pytest.raises(TooLarge):
            await submit(gateway, "listing.change_price", b" " * 900_001)
        assert [record for p in (0, 1) for record in log.read(COMMANDS, p, 0)] == []

    play(scenario)


def test_of_commands_sent_together_each_gets_its_own_answer() -> None:
    def command(price: int, **options: Unpack[Options]) -> PreparedCommand:
        kind = CommandRegistry.load(["listings"]).command("listing.change_price")
        return prepare(kind, {"listing_id": "L1", "price": price}, datetime.now(UTC), **options)

    async def scenario(gateway: CommandGateway, log: MemoryLog) -> None:
        await submit(gateway, "listing.list_property", LISTING)
        first = await submit(gateway, "listing.change_price", {"listing_id": "L1", "price": 1}, command_id="k")
        sent = [command(2), command(1, command_id="k"), command(3, command_id="k"), command(4)]
        receipts = [await answer for answer in gateway.send(sent)]
        assert [receipt.command_id for receipt in receipts] == [asked.command_id for asked in sent]
        assert [receipt.outcome for receipt in receipts] == ["accepted", "accepted", "failed", "accepted"]
        assert receipts[1] == first
        assert [receipt.version for receipt in receipts] == [3, 2, 2, 4]
        assert gateway.send([]) == []

    play(scenario)


def test_commands_that_may_not_be_in_the_log_are_told_and_those_of_other_partitions_are_answered() -> None:
    class Halved(MemoryLog):
        def send(self, entries: Sequence[Entry], partition: int, failed: Failed) -> None:
            if partition == 0:
                failed(LogUnavailable("appending", "no broker"))
            else:
                super().send(entries, partition, failed)

    async def main() -> None:
        log = Halved(partitions=2)
        kind, now = CommandRegistry.load(["listings"]).command("listing.list_property"), datetime.now(UTC)
        sent = [prepare(kind, LISTING | {"listing_id": f"L{n}"}, now) for n in range(8)]
        async with gateway_on(log, answered=True, timeout_s=60.0) as gateway:
            answers = await asyncio.gather(*gateway.send(sent), return_exceptions=True)
        for command, answer in zip(sent, answers, strict=True):
            lost = partition_of(command.stream, log.partitions) == 0
            assert isinstance(answer, LogUnavailable if lost else Receipt)
        assert {type(answer) for answer in answers} == {LogUnavailable, Receipt}

    asyncio.run(main())


def test_a_command_that_nobody_waits_for_any_more_leaves_its_id_to_others() -> None:
    async def scenario(gateway: CommandGateway, log: MemoryLog) -> None:
        gone = asyncio.create_task(submit(gateway, "listing.list_property", LISTING, command_id="k"))
        await asyncio.sleep(0)
        gone.cancel()
        assert (await submit(gateway, "listing.list_property", LISTING, command_id="k")).outcome == "accepted"
        assert (gateway._waiting._by_key, gateway._waiting._by_deadline) == ({}, {})

    play(scenario)


@pytest.mark.parametrize("error", [Unanswered, LogUnavailable])
def test_however_many_fail_at_once_little_is_done_in_a_turn_of_the_loop(error: type[Exception]) -> None:
    async def scenario(gateway: CommandGateway, log: MemoryLog) -> None:
        kind, failed, turn = gateway.registry.command("listing.list_property"), list[int](), 0
        sent = gateway.send([prepare(kind, LISTING, datetime.now(UTC)) for _ in range(500)])
        for answer in sent:
            answer.add_done_callback(lambda _: failed.append(turn))
        if error is LogUnavailable:
            gateway._waiting.fail(list(gateway._waiting._by_deadline), LogUnavailable("appending", "no broker"))
        while len(failed) < len(sent):
            turn += 1
            await asyncio.sleep(0)
        assert {type(answer.exception()) for answer in sent} == {error}
        assert max(Counter(failed).values()) <= WOKEN_PER_TURN
        assert (gateway._waiting._by_key, gateway._waiting._by_deadline) == ({}, {})

    play(scenario, answered=False, timeout_s=0.05 if error is Unanswered else 60.0)


def test_where_many_wait_new_commands_are_sent_together_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[list[str]] = []

    class Noting(MemoryLog):
        def send(self, entries: Sequence[Entry], partition: int, failed: Failed) -> None:
            sent.append([decode(entry.value or b"").id for entry in entries])

    monkeypatch.setattr("headwater.commands.sending.gateway.until_round_s", lambda _: 0.0)

    async def main() -> None:
        async with gateway_on(Noting(partitions=1), answered=False, timeout_s=60) as gateway:
            kind = gateway.registry.command("listing.list_property")

            def send(*ids: str) -> None:
                gateway.send([prepare(kind, LISTING, datetime.now(UTC), command_id=id_) for id_ in ids])

            few = [f"c{number}" for number in range(MANY)]
            send(*few[:2])
            for each in few[2:]:
                send(each)
            assert sent == [few[:2], *([each] for each in few[2:])], "at once"
            sent.clear()
            send("d1")
            send("d2", "d3")
            assert sent == [], "they wait for the round"
            await asyncio.sleep(0.001)
            assert sent == [["d1", "d2", "d3"]]
            for waiting in [*gateway._waiting._by_deadline]:
                gateway._waiting._fail(waiting, LogUnavailable("appending", "no broker"))
            send("e1")
            assert sent[1:] == [["e1"]], "few wait again"
            sent.clear()
            send(*few)
            enough = [f"g{number}" for number in range(ENOUGH)]
            send(*enough[:-1])
            assert sent == [few], "they wait for the round"
            send(enough[-1])
            assert sent == [few, enough], "they need not wait"
            for waiting in [*gateway._waiting._by_deadline]:
                gateway._waiting._fail(waiting, LogUnavailable("appending", "no broker"))
            send(*few)
            send("f1")
        assert sent[2:] == [few, ["f1"]], "what is gathered at the end is sent"

    asyncio.run(main())


def test_no_command_overtakes_another_of_its_stream_that_came_behind_a_known_id() -> None:
    sent: list[str] = []

    class Noting(MemoryLog):
        def send(self, entries: Sequence[Entry], partition: int, failed: Failed) -> None:
            sent.extend(decode(entry.value or b"").id for entry in entries)
            super().send(entries, partition, failed)

    async def main() -> None:
        log = Noting(partitions=1)
        async with gateway_on(log, answered=True, timeout_s=60) as gateway:
            await submit(gateway, "listing.list_property", LISTING, command_id="known")
        sent.clear()
        async with gateway_on(log, answered=False, timeout_s=60) as gateway:
            await asyncio.to_thread(gateway.wait_ready, 240)
            kind = gateway.registry.command("listing.list_property")

            def send(*ids: str) -> Sequence[asyncio.Future[Receipt]]:
                return gateway.send([prepare(kind, LISTING, datetime.now(UTC), command_id=id_) for id_ in ids])

            send(*(f"many-{number}" for number in range(MANY)))
            known, _ = send("known", "behind")
            await known
            for _ in range(100):  # until the one behind is on its way
                await asyncio.sleep(0)
            assert gateway.awaited == MANY + 1
            send("last")
        assert sent[MANY:] == ["behind", "last"]

    asyncio.run(main())


def test_no_answer_in_time_tells_the_id_to_ask_for_later() -> None:
    async def scenario(gateway: CommandGateway, log: MemoryLog) -> None:
        with pytest.raises(Unanswered) as unanswered:
            await submit(gateway, "listing.list_property", LISTING, command_id="k")
        assert unanswered.value.command_id == "k"

    play(scenario, answered=False, timeout_s=0.05)


def test_receipts_from_before_the_start_are_known_when_it_is_ready() -> None:
    async def main() -> None:
        log = MemoryLog(partitions=2)
        async with gateway_on(log, answered=True, timeout_s=60) as gateway:
            first = await submit(gateway, "listing.list_property", LISTING, command_id="k")
        async with gateway_on(log, answered=False, timeout_s=60) as gateway:
            assert await asyncio.to_thread(gateway.wait_ready, 240)
            assert await gateway.receipt("k", "listing/L1") == first
            assert await submit(gateway, "listing.list_property", LISTING, command_id="k") == first

    asyncio.run(main())


def test_a_record_that_is_no_receipt_stops_nobody() -> None:
    async def scenario(gateway: CommandGateway, log: MemoryLog) -> None:
        pending = asyncio.create_task(submit(gateway, "listing.list_property", LISTING, command_id="k"))
        (asked,) = await eventually_submitted(log, 1)
        key = receipt_key("listing/L1", CLIENT, "k")
        log.submit(Entry(RECEIPTS, key, b"nonsense", 1), 0)
        log.submit(Entry(RECEIPTS, key, accepted(decode(asked.value)).to_json(), 0), 0)
        assert (await pending).outcome == "accepted"

    play(scenario, answered=False)


def test_a_receipt_is_read_back_as_it_was_written() -> None:
    receipt = Receipt("k", "t.x", "t/1", "accepted", 7, "f", "2026-01-02T03:04:05.678901Z")
    receipt = replace(receipt, events=(RecordedEvent("t/1/7", "t.y", Position(3, 9)),))
    for one in (receipt, replace(receipt, events=(), error=ReceiptError("wrong_version", "m", 1, 2))):
        assert Receipt.from_json(one.to_json()) == one
    for nonsense in (b"[]", b"{}", b"{", b'{"events":[{}]}'):
        with pytest.raises(ValueError):
            Receipt.from_json(nonsense)


def test_command_ids_are_version_7_uuids_in_order_of_time() -> None:
    ids = [uuid.UUID(new_command_id()) for _ in range(1_000)]
    assert {(one.version, one.variant) for one in ids} == {(7, uuid.RFC_4122)}
    assert len(set(ids)) == 1_000
    stamps = [one.int >> 80 for one in ids]
    assert stamps == sorted(stamps)


def test_the_key_of_a_refusal_is_not_the_command_id() -> None:
    assert reuse_key("k", "f") != "k"


def test_however_many_receipts_come_at_once_little_is_done_in_a_turn_of_the_loop() -> None:
    async def scenario(gateway: CommandGateway, log: MemoryLog) -> None:
        names = [f"L{n}" for n in range(500)]
        sent = [
            asyncio.create_task(
                submit(gateway, "listing.list_property", LISTING | {"listing_id": name}, command_id=f"c-{name}")
            )
            for name in names
        ]
        asked = [decode(record.value) for record in await eventually_submitted(log, len(names))]
        woken, turn = list[int](), 0
        for task in sent:
            task.add_done_callback(lambda _: woken.append(turn))
        for event in asked:
            answer = accepted(event)
            log.submit(Entry(RECEIPTS, receipt_key(event.stream, CLIENT, event.id), answer.to_json(), 0), 0)
        while not all(task.done() for task in sent):
            turn += 1
            await asyncio.sleep(0)
        assert max(Counter(woken).values()) <= WOKEN_PER_TURN

    play(scenario, answered=False)


async def eventually_submitted(log: MemoryLog, count: int) -> list[Record]:
    """All commands in the log, once there are `count`."""
    while True:
        found = [record for partition in (0, 1) for record in log.read(COMMANDS, partition, 0)]
        if len(found) == count:
            return found
        await asyncio.sleep(0)


def accepted(command: Envelope) -> Receipt:
    asked = fingerprint_of(command.type, orjson.dumps(command.data, option=orjson.OPT_SORT_KEYS), None)
    return Receipt(command.id, command.type, command.stream, "accepted", 1, asked, "2026-01-02T03:04:05.000000Z")
