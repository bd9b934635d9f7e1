"""A command that was decided is sent again after its person was erased: nothing changes, and no key is made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import IdempotencyKeyReused, Unanswered
from headwater.commands.reacting.outbox import command_of
from headwater.commands.receipt import Receipt
from headwater.commands.sending.client import CommandClient, Request
from headwater.commands.sending.gateway import CommandGateway
from headwater.commands.sending.prepared_command import PreparedCommand, prepare
from headwater.eventlog.envelope import partition_of
from headwater.eventlog.errors import KeysUnavailable
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.personal.memory import MemoryKeys
from headwater.eventlog.ports import Entry, Record
from headwater.eventlog.topics import COMMANDS, EVENTS, RECEIPTS
from tests.support.memory_vault import memory_vault
from tests.support.personal_customers import Contact, Register, customer
from tests.support.waiting import eventually
from tests.unit.commands.test_client import handled
from tests.unit.commands.test_outbox import ROLE, message

REGISTRY = CommandRegistry([("here", customer)])
ADA: dict[str, Any] = {
    "customer_id": "C1",
    "email": "ada@canary.org",
    "name": "Ada Canary",
    "contacts": [{"person_id": "C2", "phone": "+44-canary-1", "note": "canary note"}],
}
LATER = {"customer_id": "C1", "address": "later@canary.org"}


@pytest.fixture
def keys() -> Iterator[MemoryKeys]:
    with memory_vault() as found:
        yield found


@asynccontextmanager
async def deciding(log: MemoryLog) -> AsyncIterator[None]:
    """A handler decides what is in the log."""
    with handled(log, ["tests.support.personal_customers"]):
        yield


@asynccontextmanager
async def gateway_on(log: MemoryLog, remembered: int = 1_000, timeout_s: float = 60.0) -> AsyncIterator[CommandGateway]:
    gateway = CommandGateway(log, REGISTRY, timeout_s=timeout_s, remembered=remembered)
    await gateway.start()
    await asyncio.to_thread(gateway.wait_ready, 10)
    try:
        yield gateway
    finally:
        await gateway.close()


def play(scenario: Callable[[MemoryLog], Awaitable[None]]) -> None:
    asyncio.run(scenario(MemoryLog(partitions=2)))  # type: ignore[arg-type]


def register(command_id: str | None = "c-1", **changes: Any) -> PreparedCommand:
    return made("customer.register", {**ADA, **changes}, command_id)


def made(command_type: str, body: dict[str, Any], command_id: str | None) -> PreparedCommand:
    return prepare(REGISTRY.command(command_type), orjson.dumps(body), datetime.now(UTC), command_id=command_id)


async def sent(gateway: CommandGateway, *commands: PreparedCommand) -> list[Receipt]:
    return list(await asyncio.gather(*gateway.send(commands)))


def living(keys: MemoryKeys, person: str = "C1") -> list[bool]:
    return [key.erased is None for key in keys.keys_of(person)]


def records(log: MemoryLog, topic: str) -> int:
    return sum(len(list(log.read(topic, partition, 0))) for partition in range(log.partitions))


def values(log: MemoryLog, topic: str) -> bytes:
    return b"\n".join(partition.value or b"" for p in range(log.partitions) for partition in log.read(topic, p, 0))


def test_a_retry_makes_no_key_and_no_record(keys: MemoryKeys) -> None:
    async def scenario(log: MemoryLog) -> None:
        async with deciding(log), gateway_on(log) as gateway:
            (first,) = await sent(gateway, register())
            keys.erase("C1")
            before = records(log, COMMANDS), records(log, RECEIPTS)
            assert await sent(gateway, register(), register()) == [first, first]
            assert (records(log, COMMANDS), records(log, RECEIPTS)) == before
            assert (living(keys), living(keys, "C2")) == ([False], [True])

    play(scenario)


@pytest.mark.parametrize("erased", [("C1",), ("C2",), ("C1", "C2")])
def test_the_handler_finds_a_receipt_that_the_gateway_does_not_know(keys: MemoryKeys, erased: tuple[str, ...]) -> None:
    async def scenario(log: MemoryLog) -> None:
        async with deciding(log):
            async with gateway_on(log) as gateway:
                (first,) = await sent(gateway, register())
            for each in erased:
                keys.erase(each)
            # it remembers no receipt, as a client that has just started and is sent an old command again
            async with gateway_on(log, remembered=0) as gateway:
                assert await sent(gateway, register(), register()) == [first, first]
                (other,) = await sent(gateway, register(contacts=None))
                assert other.error is not None
                assert other.error.code == "idempotency_key_reused"
            for person in ("C1", "C2"):
                assert living(keys, person) == [person not in erased], person
            assert records(log, EVENTS) - values(log, EVENTS).count(b"headwater.heartbeat") == 1

    play(scenario)


def test_a_retry_of_a_command_in_flight_makes_no_key(keys: MemoryKeys) -> None:
    async def scenario(log: MemoryLog) -> None:
        async with gateway_on(log, timeout_s=0.05) as gateway:
            with pytest.raises(Unanswered):
                await sent(gateway, register())
            keys.erase("C1")
            with pytest.raises(Unanswered):
                await sent(gateway, register())
        async with gateway_on(log) as gateway, gateway_on(log) as other:
            again = asyncio.gather(sent(gateway, register()), sent(other, register()))
            async with deciding(log):
                (one,), (two,) = await again
        assert (one, one.outcome) == (two, "accepted")
        assert living(keys) == [False]

    play(scenario)


def test_a_new_command_about_an_erased_person_has_a_new_key_and_its_values(keys: MemoryKeys) -> None:
    async def scenario(log: MemoryLog) -> None:
        async with deciding(log), gateway_on(log) as gateway, gateway_on(log) as other:
            (first,) = await sent(gateway, register())
            keys.erase("C1")
            # two processes at once, and behind it a command of the same stream
            answers = await asyncio.gather(
                sent(gateway, made("customer.mail", LATER, "c-2"), made("customer.mail", LATER, "c-3")),
                sent(other, made("customer.mail", LATER, "c-2")),
            )
            (mailed, behind), (same,) = answers
            assert (mailed.outcome, mailed.version, behind.version) == ("accepted", 2, 3)
            assert (same, first.version) == (mailed, 1)
            assert living(keys) == [False, True]
            assert await sent(gateway, made("customer.mail", LATER, "c-2")) == [mailed]
            assert b"canary" not in values(log, COMMANDS) + values(log, EVENTS) + values(log, RECEIPTS)
            (unnamed,) = await sent(gateway, made("customer.mail", LATER, None))
            assert unnamed.outcome == "accepted"

    play(scenario)


def test_without_keys_it_is_not_decided_and_may_be_sent_again(keys: MemoryKeys) -> None:
    async def scenario(log: MemoryLog) -> None:
        async with deciding(log), gateway_on(log) as gateway:
            await sent(gateway, register())
            keys.erase("C1")
            late = made("customer.mail", LATER, "c-2")
            keys.is_away = True
            with pytest.raises(KeysUnavailable):
                await sent(gateway, late)
            keys.is_away = False
            (mailed,) = await sent(gateway, made("customer.mail", LATER, "c-2"))
            assert mailed.outcome == "accepted"

    play(scenario)


def test_a_client_that_sends_again_makes_no_key(keys: MemoryKeys) -> None:
    async def scenario(log: MemoryLog) -> None:
        command = Register(
            customer_id="C1",
            email="ada@canary.org",
            name="Ada Canary",
            contacts=[Contact(person_id="C2", phone="+44-canary-1")],
        )
        async with CommandClient(log, REGISTRY, timeout_s=0.05, attempts=1) as client:
            with pytest.raises(Unanswered):
                await client.send(command, command_id="c-1")
        keys.erase("C1")
        async with CommandClient(log, REGISTRY, timeout_s=60) as client:
            first = asyncio.create_task(client.send(command, command_id="c-1"))
            async with deciding(log):
                assert (await first).outcome == "accepted"
                again = [each async for each in client.send_many([Request(command, command_id="c-1")] * 3)]
                assert [each.receipt for each in again] == [await first] * 3
                with pytest.raises(IdempotencyKeyReused):
                    await client.send(command.model_copy(update={"contacts": None}), command_id="c-1")
        assert living(keys) == [False]

    play(scenario)


def outbox_command(**changes: Any) -> Entry:
    """Of a message of an outbox that was written in January 2026, whenever it is read."""
    value = message({"type": "customer.register", "body": {**ADA, **changes}})
    entry = command_of(REGISTRY, "shop", Record(ROLE.reads, 0, 0, "key", value, 0))
    assert entry is not None
    return entry


@pytest.mark.parametrize("is_back", [False, True])
def test_a_message_of_an_outbox_that_is_read_again_is_neither_decided_nor_refused(
    keys: MemoryKeys, is_back: bool
) -> None:
    async def scenario(log: MemoryLog) -> None:
        async with deciding(log):
            partition = partition_of("customer/C1", log.partitions)
            first = outbox_command()
            log.submit(first, partition)
            await asyncio.to_thread(eventually, lambda: records(log, RECEIPTS) == 1, "it is decided")
            keys.erase("C1")
            if is_back:
                keys.key_of("C1")
            again = outbox_command()
            assert again.value != first.value
            assert again.value is not None
            assert b"anary.org" not in again.value
            log.submit(again, partition)
            async with gateway_on(log) as gateway:
                await sent(gateway, made("customer.mail", LATER, None))
            receipts = values(log, RECEIPTS)
            assert receipts.count(b'"command_id":"shop@0/3E8"') == 2, "the first one, again"
            assert b"idempotency_key_reused" not in receipts
            assert values(log, EVENTS).count(b'"type":"customer.registered"') == 1
            assert living(keys) == [False, True], "only the later command, or what came before, made a key"

    play(scenario)


def test_a_message_of_an_outbox_that_waited_through_an_erasure_is_decided_without_values(keys: MemoryKeys) -> None:
    async def scenario(log: MemoryLog) -> None:
        keys.key_of("C1")
        keys.erase("C1")
        async with deciding(log):
            log.submit(outbox_command(), partition_of("customer/C1", log.partitions))
            await asyncio.to_thread(eventually, lambda: b"customer.registered" in values(log, EVENTS), "it is decided")
        assert (living(keys), living(keys, "C2")) == ([False], [True])
        assert b'"name":"(erased)"' in values(log, EVENTS)

    play(scenario)
