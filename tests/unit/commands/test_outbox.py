"""The outbox: messages in the database's log become commands, once each, and bad ones stop nothing."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import orjson
import pytest

from headwater import Aggregate, Command, Event
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.reacting.outbox import OutboxTask, outbox_role, outbox_topics, settle_start
from headwater.commands.reacting.router import COMMIT_IDLE_S
from headwater.eventlog import topics
from headwater.eventlog.capturing.naming import COMMAND_PREFIX
from headwater.eventlog.envelope import decode, partition_of
from headwater.eventlog.letters import Letter
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry, Record
from headwater.eventlog.settings import LogSettings
from headwater.replay.errors import CannotRetry
from headwater.replay.retry import Resender, is_resent
from headwater.samples.shop.source import shop
from tests.support.personal_customers import Customer, Register
from tests.unit.commands.test_registry import INTERNAL

ROLE = outbox_role(shop)
IMPORT = {"customer_id": "1", "email": "", "is_business": False, "credit_limit_cents": None}
REFUND = {"type": "payment.refund", "body": {"payment_id": "P"}}


def message(content: Any, lsn: int = 1_000, prefix: str = COMMAND_PREFIX) -> bytes:
    """A record of Debezium; content: of the message, as JSON unless it is bytes."""
    written = content if isinstance(content, bytes) else orjson.dumps(content)
    source = {"lsn": lsn, "ts_ms": 1_767_323_045_678, "txId": 555}
    document = {
        "op": "m",
        "source": source,
        "message": {"prefix": prefix, "content": base64.b64encode(written).decode()},
    }
    return orjson.dumps(document)


class Visit(Command, type="customer.visit"):
    customer_id: str


class Visited(Event, type="customer.visited"):
    customer_id: str


def visit(command: Visit | Register, state: Customer) -> Sequence[Event]:
    return [Visited(customer_id=command.customer_id)]


def evolve(state: Customer, event: Visited) -> Customer:
    return state


VISITED = CommandRegistry([("here", Aggregate("customer", "customer_id", Customer(), visit, evolve))])


def test_an_internal_command_is_sent(outbox: Outbox) -> None:
    outbox.task = OutboxTask(INTERNAL, "shop", lambda: 0.0)
    outbox.write(message({"type": "lamp.dim", "body": {"lamp_id": "L1"}}))
    outbox.work()
    assert [command.key for command in outbox.commands()] == ["lamp/L1"]


class Outbox:
    """The owner of the messages of one source."""

    def __init__(self) -> None:
        self.log, self.now = MemoryLog(3), 0.0
        self.task = OutboxTask(CommandRegistry.load(["shop"]), "shop", lambda: self.now)

    def write(self, *values: bytes) -> None:
        for value in values:
            self.log.submit(Entry(ROLE.reads, '{"prefix":"headwater.command"}', value, 0), 0)

    def work(self) -> None:
        start = self.log.next_offset(0, ROLE)
        with closing(self.log.own(0, ROLE)) as writer:
            self.task.work(writer, list(self.log.read(ROLE.reads, 0, start)))

    def commands(self) -> list[Record]:
        return [number for p in range(3) for number in self.log.read(topics.COMMANDS, p, 0)]

    def letters(self) -> dict[str, Letter]:
        return {
            record.key: Letter.from_json(record.value or b"") for record in self.log.read(topics.DEAD_LETTERS, 0, 0)
        }


@pytest.fixture
def outbox() -> Outbox:
    return Outbox()


def test_a_message_becomes_a_command_whose_id_is_its_place(outbox: Outbox) -> None:
    chosen = {**REFUND, "id": "mine", "expected_version": 3, "correlation_id": "order-7"}
    outbox.write(message(REFUND, 1_000), message(chosen, 1_008))
    outbox.work()
    outbox.work()
    first, second = outbox.commands()
    assert first.partition == second.partition == partition_of("payment/P", 3)
    assert first.key == "payment/P"
    sent, other = decode(first.value), decode(second.value)
    assert (sent.id, sent.type, sent.stream, sent.data) == ("shop@0/3E8", "payment.refund", "payment/P", REFUND["body"])
    assert (sent.expected_version, sent.correlation_id, sent.causation_id) == (None, None, "shop@0/3E8")
    assert (other.id, other.expected_version, other.correlation_id) == ("mine", 3, "order-7")
    assert sent.time.timestamp() == 1_767_323_045.678
    assert (sent.actor, other.actor) == ("outbox:shop", "outbox:shop")


def test_an_empty_id_of_a_related_message_is_none(outbox: Outbox) -> None:
    outbox.write(message({**REFUND, "correlation_id": "", "causation_id": "", "traceparent": ""}))
    outbox.work()
    sent = decode(outbox.commands()[0].value)
    assert (sent.correlation_id, sent.causation_id, sent.traceparent) == (None, "shop@0/3E8", None)


def test_other_messages_are_passed_over_and_its_place_is_noted_now_and_then(outbox: Outbox) -> None:
    outbox.write(message(b"1767323045.6", prefix="headwater"), b"{}", b"\xff", message(REFUND, prefix="theirs"))
    outbox.work()
    assert outbox.log.next_offset(0, ROLE) == 0
    outbox.now = COMMIT_IDLE_S
    outbox.work()
    assert outbox.log.next_offset(0, ROLE) == 4
    assert (outbox.commands(), outbox.letters()) == ([], {})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", 'write {"type": "payment.refund"'),
        (b"\xff", "not a command"),
        ([REFUND], "not a command"),
        ({"type": "payment.refund"}, "missing required field `body`"),
        ({**REFUND, "expected": 3}, "unknown field `expected`"),
        ({**REFUND, "id": ""}, "not a command"),
        ({**REFUND, "id": "x" * 20_000}, "not a command"),
        ({**REFUND, "expected_version": -1}, "not a command"),
        ({"type": "payment.fly", "body": {}}, 'unknown command "payment.fly"'),
        ({"type": "payment.refund", "body": {"payment_id": 5}}, "payment_id"),
        (b'{"type": "payment.refund", "body": {"payment_id": "\\ud800"}}', "not a command"),
        ({"type": "customer.import", "body": {**IMPORT, "name": "x" * 1_000_000}}, "bytes"),
        ({**REFUND, "correlation_id": "x" * 1_000_000}, "the command's record has 1000"),
    ],
)  # fmt: skip
def test_what_is_no_command_is_a_dead_letter_and_the_next_one_is_sent(outbox: Outbox, content: Any, says: str) -> None:
    outbox.write(message(content), message(REFUND, 2_000))
    outbox.work()
    ((key, letter),) = outbox.letters().items()
    assert key == "cdc.shop.message/0/0/outbox"
    assert says in letter.reason
    assert [decode(command.value).id for command in outbox.commands()] == ["shop@0/7D0"]
    assert is_resent(key)
    with pytest.raises(CannotRetry, match="still not a valid command"):
        Resender(LogSettings(modules=("shop",)), outbox.log).resend(key, letter)


@pytest.mark.parametrize(
    ("content", "is_kept"),
    [
        (b'{"type": "customer.register", "body": {"name": "canary"}, "id": ""}', False),
        (b'{"type": "customer.register", "body": {"name": "canary"}}', False),
        (b'{"type": "customer.misspelt", "body": {"name": "canary"}}', False),
        (b'{"body": "canary"', False),
        (b'{"type": "customer.visit", "body": {}}', True),
    ],
)
def test_a_dead_letter_has_no_text_that_may_be_personal(outbox: Outbox, content: bytes, is_kept: bool) -> None:
    outbox.task = OutboxTask(VISITED, "shop", lambda: 0.0)
    outbox.write(value := message(content))
    outbox.work()
    ((key, letter),) = outbox.letters().items()
    assert (letter.value == value) is is_kept
    assert "canary" not in letter.reason
    with pytest.raises(CannotRetry, match="still not a valid command"):  # it is read from its topic
        Resender(LogSettings(modules=("shop",)), outbox.log).resend(key, letter)


def test_a_message_that_could_not_be_read_is_sent_again_under_its_own_id(outbox: Outbox) -> None:
    letter = Letter("", "", b"{}", message(REFUND))
    assert Resender(LogSettings(modules=("shop",)), outbox.log).resend("cdc.shop.message/0/7/outbox", letter) is None
    (command,) = outbox.commands()
    assert decode(command.value).id == "shop@0/3E8"


def test_an_outbox_that_is_new_does_not_miss_what_retention_has_deleted(outbox: Outbox) -> None:
    outbox.write(message(REFUND), message(REFUND, 2_000))
    outbox.log.delete(ROLE.reads, 0, 1)
    settle_start(outbox.log, ROLE)
    assert outbox.log.next_offset(0, ROLE) == 1
    outbox.work()
    settle_start(outbox.log, ROLE)
    assert outbox.log.next_offset(0, ROLE) == 2


def test_its_topics_have_one_partition_which_keeps_the_order_of_commits() -> None:
    specs = {topic.name: topic for topic in outbox_topics(LogSettings(), [shop])}
    assert {name: spec.partitions for name, spec in specs.items()} == {
        "cdc.shop.message": 1,
        "routed.cdc.shop.message": 1,
    }
    assert specs["cdc.shop.message"].settings["cleanup.policy"] == "delete"
