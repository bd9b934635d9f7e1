"""The spans of commands and of processes, and the trace contexts in their records, on the log in memory."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from datetime import UTC, datetime, timedelta

import pytest

from headwater.commands.codec import fingerprint_of
from headwater.commands.declaring.aggregate import Aggregate, Event
from headwater.commands.declaring.json_body import canonical
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import Unanswered
from headwater.commands.handling.command_task import CommandTask
from headwater.commands.handling.handler import Handler
from headwater.commands.local_state.state import MemoryStore
from headwater.commands.owning.ownership import PartitionWorker
from headwater.commands.owning.running_code import running, running_facts
from headwater.commands.receipt import Receipt
from headwater.commands.sending.gateway import CommandGateway
from headwater.commands.sending.prepared_command import prepare
from headwater.eventlog import topics
from headwater.eventlog.envelope import CLIENT, Envelope, decode, encode, partition_of, timestamp_ms
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import HANDLER, Entry, Record
from headwater.eventlog.programs.logs import JsonLines, about, take_facts_from
from tests.support.collector import Recorded, Seen, recorded
from tests.support.listed import LISTING
from tests.support.process_world import World
from tests.support.purses import Pay, Purse
from tests.support.purses import evolve as evolve_purse
from tests.support.submitted import submit
from tests.unit.commands.test_order_fulfilment import lines, stocked

SAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = SAMPLED[:-1] + "0"
TRACE, CALLER = SAMPLED.split("-")[1:3]


def submitted(traceparent: str | None, price: int = 1, **answered: float) -> tuple[Receipt, MemoryLog]:
    """List a property through a gateway and a handler."""

    async def main() -> tuple[Receipt, MemoryLog]:
        log, registry = MemoryLog(1), CommandRegistry.load(["listings"])
        worker = PartitionWorker(log, HANDLER, 0, lambda p: CommandTask(log, registry, p, MemoryStore()))
        worker.start()
        gateway = CommandGateway(log, registry, timeout_s=60)
        await gateway.start()
        try:
            body = LISTING | {"listing_id": "L1", "price": price}
            receipt = await submit(gateway, "listing.list_property", body, traceparent=traceparent)
        finally:
            await gateway.close()
            worker.stop()
            worker.join()
            worker.check()
        return receipt, log

    return asyncio.run(main())


def contexts(log: MemoryLog, topic: str) -> list[str | None]:
    """The trace contexts of the records of a topic, without heartbeats."""
    found = [decode(record.value) for record in log.read(topic, 0, 0)]
    return [event.traceparent for event in found if event.type != "headwater.heartbeat"]


def context_of(span: Seen) -> str:
    return f"00-{span.trace}-{span.id}-01"


def test_a_command_is_one_trace_from_the_caller_to_the_transaction() -> None:
    with recorded() as found:
        receipt, log = submitted(SAMPLED)
    send, decide = found.named("send listing.list_property"), found.named("decide listing.list_property")
    transaction = found.named("transaction")
    assert [span.trace for span in (send, decide)] == [TRACE] * 2
    assert [span.parent for span in (send, decide)] == [CALLER, send.id]
    assert decide.began_ns <= transaction.began_ns <= transaction.ended_ns == decide.ended_ns
    assert contexts(log, topics.COMMANDS) == [context_of(send)]
    assert contexts(log, topics.EVENTS) == [context_of(decide)]
    assert transaction.trace != TRACE
    assert (transaction.links, decide.links) == (((TRACE, decide.id),), ((transaction.trace, transaction.id),))
    facts = {
        "headwater.command.type": "listing.list_property",
        "headwater.command.id": receipt.command_id,
        "headwater.stream": "listing/L1",
        "headwater.outcome": "accepted",
    }
    assert send.facts == facts
    assert decide.facts.pop("headwater.rule_us") > 0
    assert decide.facts == {**facts, "headwater.events": 1}
    assert transaction.facts == {"headwater.role": "handler", "headwater.records": 1}


@pytest.mark.parametrize("traceparent", [None, UNSAMPLED])
def test_a_command_that_is_not_sampled_leaves_no_span_and_its_context_as_it_was(traceparent: str | None) -> None:
    with recorded() as found:
        _, log = submitted(traceparent)
    assert found == []
    assert contexts(log, topics.COMMANDS) == contexts(log, topics.EVENTS) == [traceparent]


def test_records_are_the_same_if_nothing_is_recorded() -> None:
    _, log = submitted(SAMPLED)
    assert contexts(log, topics.COMMANDS) == contexts(log, topics.EVENTS) == [SAMPLED]


def test_no_field_of_a_command_or_event_is_in_a_span() -> None:
    with recorded() as found:
        submitted(SAMPLED, price=987_654)
    texts = " ".join(str((span.name, span.facts)) for span in found)
    assert "987654" not in texts
    assert str(LISTING["city"]) not in texts


def test_a_trace_changes_neither_the_fingerprint_nor_the_id_of_a_command() -> None:
    kind = CommandRegistry.load(["listings"]).command("listing.list_property")
    body, now = LISTING | {"listing_id": "L1"}, datetime.now(UTC)
    with recorded():
        traced = prepare(kind, body, now, command_id="c", traceparent=SAMPLED)
    plain = prepare(kind, body, now, command_id="c")
    assert (traced.fingerprint, traced.command_id) == (plain.fingerprint, plain.command_id)
    assert traced.fingerprint == fingerprint_of(kind.command.type, decode_body(traced.entry), None)


def decode_body(entry: Entry) -> bytes:
    return canonical(decode(entry.value).data)[0]


def test_a_command_without_a_receipt_ends_as_failed() -> None:
    async def main() -> None:
        gateway = CommandGateway(MemoryLog(1), CommandRegistry.load(["listings"]), timeout_s=0.01)
        await gateway.start()
        try:
            await submit(gateway, "listing.list_property", LISTING | {"listing_id": "L1"}, traceparent=SAMPLED)
        finally:
            await gateway.close()

    with recorded() as found, pytest.raises(Unanswered):
        asyncio.run(main())
    (send,) = found
    assert send.failed


def send_traced(
    world: World, command_type: str, stream: str, *, traceparent: str | None = SAMPLED, **body: object
) -> None:
    envelope = Envelope("traced", command_type, stream, world.now, body, traceparent=traceparent, origin=CLIENT)
    entry = Entry(topics.COMMANDS, stream, encode(envelope), timestamp_ms(world.now))
    world.log.submit(entry, partition_of(stream, world.log.partitions))


def test_a_process_carries_the_trace_on_to_its_commands() -> None:
    world = stocked(("tea", 5))
    world.send("order.place", order_id="O", customer="Ada", lines=lines(("tea", 3)))
    world.settle()
    with recorded() as found:
        send_traced(world, "order.pay", "order/O", order_id="O", amount_cents=15)
        world.settle()
    assert world.states()["order/O"].status == "confirmed"
    tree = paths(found)
    assert "decide order.pay > react order_fulfilment > decide stock.reserve" in tree
    reserved = "decide order.pay > react order_fulfilment > decide stock.reserve > react order_fulfilment"
    assert f"{reserved} > decide order.confirm" in tree
    reactions = [span for span in found if span.name == "react order_fulfilment"]
    assert {reaction.facts["headwater.cause.type"] for reaction in reactions} >= {"order.paid", "stock.reserved"}
    batches = [span for span in found if span.facts.get("headwater.role") == "processes"]
    assert {link for batch in batches for link in batch.links} <= {(TRACE, event.id) for event in found}
    assert batches


def paths(found: Recorded) -> set[str]:
    """Each span of the trace, with those above it."""
    by_id = {event.id: event for event in found if event.trace == TRACE}

    def path(span: Seen) -> str:
        above = by_id.get(span.parent)
        return span.name if above is None else f"{path(above)} > {span.name}"

    return {path(each) for each in by_id.values()}


def test_a_timer_begins_a_trace_that_links_to_the_reaction_that_set_it() -> None:
    world = stocked(("tea", 5))
    with recorded() as found:
        send_traced(world, "order.place", "order/O", order_id="O", customer="Ada", lines=lines(("tea", 3)))
        world.settle()
        world.restart_all()
        world.wait(timedelta(days=2))
        world.settle()
    (fired,) = [span for span in found if span.facts.get("headwater.cause.type") == "headwater.timed_out"]
    (setting,) = [span for span in found if span.facts.get("headwater.cause.type") == "order.placed"]
    assert (fired.name, fired.parent, fired.facts["headwater.commands"]) == ("react order_fulfilment", "", 1)
    assert fired.trace != setting.trace
    assert (setting.trace, setting.id) in fired.links
    expiring = found.named("decide order.expire")
    assert (expiring.trace, expiring.parent) == (fired.trace, fired.id)


@pytest.mark.parametrize("traceparent", [None, UNSAMPLED, SAMPLED])
def test_a_timer_keeps_the_context_only_if_it_is_sampled(traceparent: str | None) -> None:
    world = stocked(("tea", 5))
    ordered = lines(("tea", 3))
    send_traced(world, "order.place", "order/O", traceparent=traceparent, order_id="O", customer="Ada", lines=ordered)
    world.settle()
    document = world.instance("order_fulfilment/O")
    assert document is not None
    assert document["timers"]["unpaid"]["traceparent"] == (SAMPLED if traceparent == SAMPLED else None)


def test_a_refusal_that_a_process_gets_follows_from_the_decision() -> None:
    world = stocked(("tea", 1))
    world.send("order.place", order_id="O", customer="Ada", lines=lines(("tea", 3)))
    world.settle()
    with recorded() as found:
        send_traced(world, "order.pay", "order/O", order_id="O", amount_cents=15)
        world.settle()
    assert any("decide stock.reserve > react order_fulfilment" in path for path in paths(found))


def test_handling_an_event_again_makes_no_second_span() -> None:
    world = stocked(("tea", 5))
    world.send("order.place", order_id="O", customer="Ada", lines=lines(("tea", 3)))
    send_traced(world, "order.pay", "order/O", order_id="O", amount_cents=15)
    world.settle()
    with recorded() as found:
        world.redeliver()
        world.settle()
    assert [span.name for span in found if span.name.startswith("react")] == []


def test_a_world_in_disorder_still_has_one_trace() -> None:
    world = World(random.Random(5))
    with recorded() as found:
        world.send("stock.receive", sku="tea", quantity=5)
        world.send("order.place", order_id="O", customer="Ada", lines=lines(("tea", 3)))
        world.settle()
        send_traced(world, "order.pay", "order/O", order_id="O", amount_cents=15)
        world.some_steps(200)
        world.settle()
    assert {span.trace for span in found if span.name != "transaction"} == {TRACE}


def test_a_log_line_of_a_rule_says_of_which_command_and_trace_it_is() -> None:
    lines: list[dict[str, object]] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(json.loads(JsonLines("handler").format(record)))

    def decide(command: Pay, state: Purse) -> list[Event]:
        rules.warning("looks odd")
        return []

    rules, kept = logging.getLogger("rules"), Kept()
    rules.addHandler(kept)
    take_facts_from(running_facts)
    registry = CommandRegistry([("here", Aggregate("purse", "purse_id", Purse(), decide, evolve_purse))])
    try:
        envelope = Envelope(
            "c-1", "purse.pay", "purse/A", datetime.now(UTC), {"purse_id": "A"}, traceparent=UNSAMPLED, origin=CLIENT
        )
        record = Record(topics.COMMANDS, 0, 7, "purse/A", encode(envelope), timestamp_ms(envelope.time))
        with about(role="handler", partition=0):
            Handler(registry, 0, 1, MemoryStore()).decide([record], timestamp_ms(envelope.time))
        rules.warning("and outside")
    finally:
        rules.removeHandler(kept)
    inside, outside = lines
    facts = {"command_id": "c-1", "command_type": "purse.pay", "stream": "purse/A", "trace_id": TRACE, "partition": 0}
    assert {name: inside.get(name) for name in facts} == facts
    assert not facts.keys() & outside.keys()


def test_a_log_line_of_a_process_names_its_instance_and_trace() -> None:
    with running("react", "order.paid", "order_fulfilment/O", "order/O/2", SAMPLED):
        assert running_facts() == {"instance": "order_fulfilment/O", "trace_id": TRACE}
    with running("read, for the router", "k", "events", "0:1"):
        assert running_facts() == {}
    assert running_facts() == {}
