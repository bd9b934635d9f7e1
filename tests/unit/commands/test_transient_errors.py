"""An outage says nothing about a record: no dead letter and no final receipt; it is tried again in place, in order."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from headwater.commands.declaring.process import ProcessRegistry
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.handling.erasing import Erasure
from headwater.commands.reacting.erasing import instances_of
from headwater.commands.reacting.outbox import OutboxTask, outbox_role
from headwater.commands.reacting.router import Router
from headwater.commands.reacting.row_router import RowRouter
from headwater.commands.receipt import KEYS_UNAVAILABLE
from headwater.commands.sending.prepared_command import prepare
from headwater.eventlog import topics
from headwater.eventlog.actors import OUTBOX_ACTOR
from headwater.eventlog.capturing.naming import COMMAND_PREFIX
from headwater.eventlog.envelope import Envelope, decode, encode
from headwater.eventlog.errors import KeysUnavailable, LogUnavailable, UnknownKey
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.personal.memory import MemoryKeys
from headwater.eventlog.ports import Entry, Record
from headwater.samples.shop.source import Customer as ShopCustomer
from headwater.samples.shop.source import shop
from tests.support.memory_vault import memory_vault
from tests.support.personal_customers import customer, greeting
from tests.unit.commands.test_captured_causes import noting
from tests.unit.commands.test_personal_handling import ADA, REGISTRY, TIME, World

ROLE = outbox_role(shop)


@pytest.fixture
def keys() -> Iterator[MemoryKeys]:
    with memory_vault() as found:
        yield found


def message(body: dict[str, Any], lsn: int) -> bytes:
    content = orjson.dumps({"type": "customer.register", "body": body})
    written = {"prefix": COMMAND_PREFIX, "content": base64.b64encode(content).decode()}
    return orjson.dumps({"message": written, "source": {"lsn": lsn, "ts_ms": 1_767_323_045_678}})


def test_messages_of_an_outbox_wait_for_the_keys_in_their_order(keys: MemoryKeys) -> None:
    log, task = MemoryLog(1), OutboxTask(CommandRegistry([("here", customer)]), "shop")
    for number in (1, 2):
        log.submit(Entry(ROLE.reads, "k", message({**ADA, "customer_id": f"C{number}"}, number), 0), 0)
    keys.is_away = True
    with closing(log.own(0, ROLE)) as writer, pytest.raises(KeysUnavailable):
        task.work(writer, list(log.read(ROLE.reads, 0, 0)))
    assert (list(log.read(topics.DEAD_LETTERS, 0, 0)), log.next_offset(0, ROLE)) == ([], 0)
    keys.is_away = False
    with closing(log.own(0, ROLE)) as writer:
        task.work(writer, list(log.read(ROLE.reads, 0, log.next_offset(0, ROLE))))
    assert [record.key for record in log.read(topics.COMMANDS, 0, 0)] == ["customer/C1", "customer/C2"]


def test_a_command_of_an_outbox_with_an_id_of_its_own_waits_too_because_nobody_sends_it_again(keys: MemoryKeys) -> None:
    world = World()
    out = prepare(REGISTRY.command("customer.register"), orjson.dumps(ADA), TIME, command_id="mine")
    value = encode(replace(decode(out.entry.value), actor=f"{OUTBOX_ACTOR}shop"))
    keys.is_away = True
    with pytest.raises(KeysUnavailable):
        world.decide(out.entry.key, value, "mine")
    keys.is_away = False
    assert world.decide(out.entry.key, value, "mine").outcome == "accepted"


def test_a_command_with_a_key_that_the_store_lacks_is_decided_once_the_right_store_is_there() -> None:
    world = World()
    with memory_vault() as right:
        out = prepare(REGISTRY.command("customer.register"), orjson.dumps(ADA), TIME, command_id="c-1")
    with memory_vault():
        receipt = world.decide(out.entry.key, out.entry.value or b"", "c-1")
        of_outbox = encode(replace(decode(out.entry.value), actor=f"{OUTBOX_ACTOR}shop"))
        with pytest.raises(UnknownKey):
            world.decide(out.entry.key, of_outbox, "c-1")
    assert (receipt.outcome, receipt.error and receipt.error.code) == ("failed", KEYS_UNAVAILABLE)
    with memory_vault() as restored:
        restored._keys, restored._facts = right._keys, right._facts
        assert world.decide(out.entry.key, out.entry.value or b"", "c-1").outcome == "accepted"


def test_a_state_with_a_key_that_the_store_lacks_is_no_final_answer() -> None:
    world = World()
    with memory_vault() as right:
        assert world.send("customer.register", ADA).outcome == "accepted"
    world.restarted()
    pay = {"customer_id": "C1", "payee_id": "C2", "cents": 1}
    with memory_vault():
        receipt = world.send("customer.pay", pay, "c-2")
    assert (receipt.outcome, receipt.error and receipt.error.code) == ("failed", KEYS_UNAVAILABLE)
    with memory_vault() as restored:
        restored._keys, restored._facts = right._keys, right._facts
        assert world.send("customer.pay", pay, "c-2").outcome == "accepted"


def test_a_request_to_erase_is_not_refused_for_good_without_keys(keys: MemoryKeys) -> None:
    world = World()
    world.send("customer.register", ADA)
    sealed = orjson.loads(world.store.snapshot("customer/C1") or b"")["state"]
    request = Erasure(1, 1, 1, state=orjson.dumps(sealed).decode(), fields=customer.shape)
    envelope = request.envelope(id="e", stream="customer/C1", time=TIME, expected_version=1)
    keys.is_away = True
    receipt = world.decide("customer/C1", encode(envelope), "e")
    assert (receipt.outcome, receipt.error and receipt.error.code) == ("failed", KEYS_UNAVAILABLE)
    keys.is_away = False
    assert world.decide("customer/C1", encode(envelope), "e").outcome == "accepted"


class SilentLog(MemoryLog):
    is_silent = False

    def read(self, topic: str, partition: int, start: int, end: int | None = None) -> Iterator[Record]:
        if self.is_silent:
            raise LogUnavailable("reading", "nothing came")
        return super().read(topic, partition, start, end)


def test_a_look_back_at_captured_rows_is_tried_again() -> None:
    log = SilentLog(1)
    processes = ProcessRegistry([("here", noting())])
    topic = next(iter(processes.by_topic))
    assert processes.tables[topic] is ShopCustomer
    router = RowRouter(log, processes, topic)
    tombstone = Record(topic, 0, 5, '{"id":1}', None, 1_767_323_045_678)
    log.is_silent = True
    for _ in range(2):
        with pytest.raises(LogUnavailable):
            router.route(tombstone, lambda _: True)
    log.is_silent = False
    assert [record.topic for record in router.route(tombstone, lambda _: True)] == [topics.INBOX]


def test_an_erasure_finds_instances_that_were_told_of_events_it_cannot_read(keys: MemoryKeys) -> None:
    """A router needs the key only: of an event that cannot be read, and while the keys of persons are away."""
    processes = ProcessRegistry([("here", greeting)])
    commands = CommandRegistry([("here", customer)])
    event = Envelope("customer/C1/1", "customer.registered", "customer/C1", TIME, {}, sequence=1)
    data = {"customer_id": "C1", "email": 5, "name": []}
    value = encode(replace(event, data=data, data_version=1))
    routed = Router(commands, processes).route(Record(topics.EVENTS, 0, 0, event.id, value, 0), lambda _: True)
    assert [record.topic for record in routed] == [topics.INBOX]
    assert list(instances_of(commands, processes, [value, None, b"{"])) == [record.key for record in routed]
