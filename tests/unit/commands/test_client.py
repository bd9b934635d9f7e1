"""The Python client on the log in memory: what it raises, what it sends again, and many commands at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from headwater.commands.declaring.aggregate import Command
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import (
    IdempotencyKeyReused,
    MalformedCommand,
    Rejected,
    Unanswered,
    UnknownCommand,
    WrongVersion,
)
from headwater.commands.handling.command_task import CommandTask
from headwater.commands.local_state.state import MemoryStore
from headwater.commands.owning.ownership import PartitionWorker
from headwater.commands.sending.client import BlockingCommandClient, CommandClient, Request
from headwater.commands.sending.prepared_command import Options, prepare
from headwater.eventlog.envelope import decode, partition_of
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.personal.ports import PersonKey
from headwater.eventlog.ports import HANDLER, Entry, Failed
from headwater.eventlog.topics import COMMANDS, EVENTS
from headwater.samples.listings.domain import ChangePrice, ListProperty, Sell
from tests.support.memory_vault import memory_vault
from tests.support.personal_customers import Pay
from tests.support.waiting import BOUND_S, eventually
from tests.unit.commands.test_gateway import LISTING
from tests.unit.commands.test_registry import INTERNAL, Dim


class FaultyLog(MemoryLog):
    """A log that is away for the first `failures` submissions: before they are stored, or after."""

    def __init__(self, failures: int = 0, stored: bool = False) -> None:
        super().__init__(partitions=2)
        self.failures, self.stored = failures, stored

    def submit(self, entry: Entry, partition: int) -> Future[int]:
        if self.failures == 0:
            return super().submit(entry, partition)
        self.failures -= 1
        if self.stored:
            super().submit(entry, partition)
        failed: Future[int] = Future()
        failed.set_exception(LogUnavailable("appending", "no broker"))
        return failed

    def send(self, entries: Sequence[Entry], partition: int, failed: Failed) -> None:
        for entry in entries:
            error = self.submit(entry, partition).exception()
            if isinstance(error, LogUnavailable):
                failed(error)


@contextmanager
def handled(log: MemoryLog, modules: Sequence[str] = ("listings",)) -> Iterator[None]:
    registry = CommandRegistry.load(modules)
    workers = [
        PartitionWorker(log, HANDLER, partition, lambda p: CommandTask(log, registry, p, MemoryStore()))
        for partition in range(log.partitions)
    ]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.stop()
            worker.join()
            worker.check()


def play(
    scenario: Callable[[CommandClient], Any],
    log: MemoryLog | None = None,
    modules: Sequence[str] = ("listings",),
    **options: Any,
) -> Any:
    log = log or MemoryLog(partitions=2)

    async def main() -> Any:
        async with CommandClient(log, CommandRegistry.load(modules), **options) as client:
            return await scenario(client)

    with handled(log, modules):
        return asyncio.run(main())


def listed(listing_id: str = "L1", **changes: Any) -> ListProperty:
    return ListProperty(**(LISTING | {"listing_id": listing_id} | changes))


def test_a_command_its_receipt_and_its_position() -> None:
    async def scenario(client: CommandClient) -> None:
        assert client.position == ""
        first = await client.send(listed(), command_id="k", expected_version=0)
        assert (first.version, str(first.position)) == (1, client.position)
        assert await client.receipt("k", "listing/L1") == first
        assert await client.send(listed(), command_id="k", expected_version=0) == first
        other = await client.send(listed("L4"))  # in the other partition
        assert set(client.position.split(",")) == {str(first.position), str(other.position)}
        changed = await client.send(ChangePrice(listing_id="L1", price=5))
        assert set(client.position.split(",")) == {str(changed.position), str(other.position)}

    play(scenario)


def test_refusals_are_raised_by_their_kind() -> None:
    async def scenario(client: CommandClient) -> None:
        await client.send(listed(), command_id="k")
        with pytest.raises(Rejected, match="not under_offer"):
            await client.send(Sell(listing_id="L1", sold_for=1))
        with pytest.raises(WrongVersion) as wrong:
            await client.send(ChangePrice(listing_id="L1", price=1), expected_version=7)
        assert (wrong.value.expected, wrong.value.actual) == (7, 1)
        with pytest.raises(IdempotencyKeyReused):
            await client.send(ChangePrice(listing_id="L1", price=1), command_id="k")
        with pytest.raises(MalformedCommand):
            await client.send(ChangePrice(listing_id="L\0", price=1))

        class Paint(ChangePrice, type="listing.paint"):
            pass

        with pytest.raises(UnknownCommand):
            await client.send(Paint(listing_id="L1", price=1))
        client._gateway.registry = INTERNAL
        with pytest.raises(UnknownCommand):
            await client.send(Dim(lamp_id="L1"))

    play(scenario)


def test_what_went_along_is_in_the_log() -> None:
    log = MemoryLog(partitions=2)

    async def scenario(client: CommandClient) -> None:
        sent: Options = {
            "command_id": "k",
            "correlation_id": "c",
            "causation_id": "b",
            "traceparent": "00-a",
            "actor": "import",
        }
        receipt = await client.send(listed(), **sent)
        assert (receipt.actor, await client.receipt("k", "listing/L1")) == ("import", receipt)
        assert (await client.send(listed("L2"))).actor == "nightly"
        with pytest.raises(ValueError, match="the actor is 'process:x'"):
            await client.send(listed("L3"), actor="process:x")

    play(scenario, log, actor="nightly")
    command, event = (
        decode(next(record for p in (0, 1) for record in log.read(topic, p, 0) if "heartbeat" not in record.key).value)
        for topic in (COMMANDS, EVENTS)
    )
    assert (command.id, command.correlation_id, command.causation_id, command.traceparent) == ("k", "c", "b", "00-a")
    assert (event.causation_id, event.correlation_id, event.traceparent) == ("k", "c", "00-a")
    assert (command.actor, event.actor) == ("import", "import")


@pytest.mark.parametrize("stored", [False, True])
def test_a_log_that_is_away_for_a_moment_is_asked_again_with_the_same_id(stored: bool) -> None:
    log = FaultyLog(failures=2, stored=stored)

    async def scenario(client: CommandClient) -> None:
        assert (await client.send(listed())).version == 1

    play(scenario, log)
    commands = [decode(record.value) for p in (0, 1) for record in log.read(COMMANDS, p, 0)]
    assert len({command.id for command in commands}) == 1
    assert stored or len(commands) == 1
    events = [record.key for p in (0, 1) for record in log.read(EVENTS, p, 0) if "heartbeat" not in record.key]
    assert events == ["listing/L1/1"]


def test_after_the_last_attempt_it_is_said() -> None:
    async def scenario(client: CommandClient) -> None:
        with pytest.raises(LogUnavailable):
            await client.send(listed())

    play(scenario, FaultyLog(failures=100))

    async def unanswered() -> None:
        log = MemoryLog()
        async with CommandClient(log, CommandRegistry.load(["listings"]), timeout_s=0.01, attempts=2) as client:
            with pytest.raises(Unanswered) as error:
                await client.send(listed(), command_id="k")
            assert error.value.command_id == "k"
        assert sum(1 for p in range(4) for _ in log.read(COMMANDS, p, 0)) == 2

    asyncio.run(unanswered())


def test_many_commands_in_the_order_of_each_aggregate() -> None:
    async def scenario(client: CommandClient) -> None:
        commands = [listed(f"L{n}") for n in range(20)]
        prices = [ChangePrice(listing_id=f"L{n}", price=price) for price in (1, 2, 3) for n in range(20)]
        refused = Request(Sell(listing_id="L1", sold_for=1), command_id="refused")

        async def each() -> AsyncIterator[Any]:
            for command in [*commands, *prices, refused]:
                yield command

        outcomes = [outcome async for outcome in client.send_many(each(), in_flight=7)]
        assert len(outcomes) == 81
        (failed,) = (outcome for outcome in outcomes if outcome.error)
        assert (failed.command_id, failed.receipt, type(failed.error)) == ("refused", None, Rejected)
        versions: dict[str, list[int]] = {}
        for outcome in outcomes:
            if outcome.receipt:
                versions.setdefault(outcome.receipt.stream, []).append(outcome.receipt.version)
        assert len(versions) == 20
        assert all(sorted(found) == [1, 2, 3, 4] for found in versions.values())
        again = [outcome async for outcome in client.send_many([refused.command])]
        assert isinstance(again[0].error, Rejected)

    play(scenario)


def test_a_command_whose_id_another_stream_has_keeps_its_place_in_its_own() -> None:
    first, second = [f"L{n}" for n in range(20) if partition_of(f"listing/L{n}", 2) == 0][:2]

    async def scenario(client: CommandClient) -> None:
        await client.send(listed(first), command_id="list")
        prices = [ChangePrice(listing_id=second, price=price) for price in range(1, 20)]
        taken = [Request(price, command_id="list") for price in prices[:1]]  # by the next command
        requests: list[Command | Request] = [Request(listed(second), command_id="list"), *prices, *taken]
        outcomes = [outcome async for outcome in client.send_many(requests)]
        refused = [outcome for outcome in outcomes if outcome.error]
        assert [type(outcome.error) for outcome in refused] == [IdempotencyKeyReused]
        accepted = {outcome.request.command: outcome.receipt for outcome in outcomes if outcome.receipt}
        versions = [receipt.version for command in prices if (receipt := accepted[command])]
        assert versions == list(range(2, 21))

    play(scenario)


def test_a_command_that_is_cancelled_while_it_looks_for_its_receipt_holds_up_no_later_one() -> None:
    async def scenario(client: CommandClient) -> None:
        await client.send(listed("L1"), command_id="list")
        body = listed("L1").model_dump_json().encode()
        (never,) = client._gateway.send(
            [prepare(client._gateway.registry.command(ListProperty.type), body, datetime.now(UTC), command_id="list")]
        )
        never.cancel()  # before it begins
        later = client.send(ChangePrice(listing_id="L1", price=7), command_id="other")
        assert (await asyncio.wait_for(later, 60)).version == 2
        assert client._gateway._turns == {}

    play(scenario)


def test_who_stops_early_leaves_nothing_behind() -> None:
    async def scenario(client: CommandClient) -> None:
        taken = 0

        def commands() -> Iterator[ListProperty]:
            nonlocal taken
            while True:
                taken += 1
                yield listed(f"L{taken}")

        outcomes = client.send_many(commands(), in_flight=5)
        async for outcome in outcomes:
            assert outcome.receipt
            break
        await outcomes.aclose()  # type: ignore[attr-defined]
        assert taken <= 12
        assert len(asyncio.all_tasks()) == 1

    play(scenario)


def test_an_error_of_the_commands_own_is_raised_as_it_is() -> None:
    async def scenario(client: CommandClient) -> None:
        def commands() -> Iterator[ListProperty]:
            yield listed()
            raise ZeroDivisionError("mine")

        with pytest.raises(ZeroDivisionError, match="mine"):
            async for _ in client.send_many(commands()):
                pass

    play(scenario)


def test_the_same_without_asyncio() -> None:
    log = MemoryLog(partitions=2)
    with handled(log), BlockingCommandClient(log, CommandRegistry.load(["listings"])) as client:
        first = client.send(listed("L0"), command_id="k")
        assert client.receipt("k", "listing/L0") == first
        with pytest.raises(Rejected):
            client.send(listed("L0"))
        outcomes = list(client.send_many((listed(f"L{n}") for n in range(1, 10)), in_flight=3))
        assert len([outcome for outcome in outcomes if outcome.receipt]) == 9
        assert len(client.position.split(",")) == 2, "both partitions"
        some = client.send_many(listed(f"M{n}") for n in range(1_000))
        assert next(some).receipt
        some.close()  # type: ignore[attr-defined]


def test_a_store_of_keys_that_hangs_holds_back_no_other_stream_and_the_order_of_each_stays() -> None:
    log, hangs, asks = MemoryLog(partitions=2), threading.Event(), threading.Event()

    def pay(customer_id: str, cents: int, **personal: str) -> Pay:
        return Pay(customer_id=customer_id, payee_id="Q", cents=cents, **personal)

    def sent() -> list[str]:
        return [record.key for p in (0, 1) for record in log.read(COMMANDS, p, 0)]

    async def scenario(client: CommandClient) -> None:
        first = asyncio.create_task(client.send(pay("C1", 1, payee_name="Grace")))
        assert await asyncio.to_thread(asks.wait, BOUND_S)
        second = asyncio.create_task(client.send(pay("C1", 2)))
        other = asyncio.create_task(client.send(pay("C2", 3)))
        # the handler has the same vault, so it answers nobody before the store does
        await asyncio.to_thread(eventually, lambda: sent() == ["customer/C2"], "the other command is appended")
        hangs.set()
        versions = [(await each).version for each in (first, second, other)]
        assert versions == [1, 2, 1]
        assert not client._turns

    with memory_vault() as keys:
        key_of = keys.key_unless_erased

        def hanging(person: str) -> PersonKey | None:
            asks.set()
            assert hangs.wait(BOUND_S)
            return key_of(person)

        keys.key_unless_erased = hanging  # type: ignore[method-assign]
        play(scenario, log, ["tests.support.personal_customers"])
