"""Commands, events, states and receipts with personal fields: what is stored, what rules see, what erasure leaves."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import orjson
import pytest
from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, field_validator

from headwater import Aggregate, Command, Event, Personal
from headwater.commands.codec import fold, read_command, read_event, read_snapshot
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import MalformedCommand, UnreadableEvent
from headwater.commands.handling.batch import Batch
from headwater.commands.handling.handler import Handler
from headwater.commands.local_state.state import MemoryStore
from headwater.commands.receipt import KEYS_UNAVAILABLE, Receipt, receipt_key
from headwater.commands.sending.prepared_command import PreparedCommand, prepare
from headwater.eventlog.envelope import CLIENT, PROCESS, Envelope, decode, encode
from headwater.eventlog.errors import KeysUnavailable
from headwater.eventlog.personal.memory import MemoryKeys
from headwater.eventlog.ports import Record
from tests.support.memory_vault import memory_vault
from tests.support.personal_customers import Customer, Registered, customer
from tests.support.receipt_keys import short_key

REGISTRY = CommandRegistry([("here", customer)])
TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CANARIES = ("ada@canary.org", "Ada Canary", "19151210", "+44-canary-1", "canary note", "Grace Canary", "canary-mail")
ADA: dict[str, Any] = {
    "customer_id": "C1",
    "email": "ada@canary.org",
    "name": "Ada Canary",
    "born": 19151210,
    "contacts": [{"person_id": "C2", "phone": "+44-canary-1", "note": "canary note"}],
}


@pytest.fixture
def keys() -> Iterator[MemoryKeys]:
    with memory_vault() as found:
        yield found


class World:
    """A partition's handler, and everything that it was given and has written."""

    def __init__(self) -> None:
        self.store, self.stored = MemoryStore(), list[bytes]()
        self.handler = Handler(REGISTRY, 0, 1, self.store)
        self.receipts: dict[str, Receipt] = {}
        self.events: list[bytes] = []
        self._offset = 0

    def send(self, command_type: str, body: dict[str, Any], command_id: str | None = None) -> Receipt:
        out = prepare(REGISTRY.command(command_type), orjson.dumps(body), TIME, command_id=command_id)
        return self.decide(out.entry.key, out.entry.value or b"", out.command_id)

    def decide(self, key: str, value: bytes, command_id: str) -> Receipt:
        batch = self.batch([Record("commands", 0, self._offset, key, value, 0)])
        receipts = batch.receipts(range(len(batch.entries)))
        self.store.apply(batch.snapshots, receipts, {})
        for entry in batch.entries:
            self.stored += [entry.key.encode(), entry.value or b""]
        self.events += [entry.value or b"" for entry in batch.events]
        self.stored += [value, *(receipt or b"" for receipt in receipts.values())]
        self.receipts = {short_key(key): Receipt.from_json(receipt or b"") for key, receipt in receipts.items()}
        return self.receipts.get(command_id, next(iter(self.receipts.values())))

    def batch(self, records: Sequence[Record]) -> Batch:
        self._offset += 1
        return self.handler.decide(records, 1_800_000_000_000)

    def restarted(self) -> None:
        self.handler = Handler(REGISTRY, 0, 1, self.store)

    def state(self) -> Customer:
        snapshot = self.store.snapshot("customer/C1")
        assert snapshot is not None
        return read_snapshot(customer, snapshot)[0]

    def read(self, number: int) -> Any:
        return read_event(customer, decode(self.events[number]))


def test_rules_see_values_and_nothing_that_is_stored_has_one(
    keys: MemoryKeys, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    with caplog.at_level(logging.DEBUG):
        assert world.send("customer.register", ADA).outcome == "accepted"
        rejected = world.send("customer.register", {**ADA, "name": "Ada Canary"})
        pay = {"customer_id": "C1", "payee_id": "C3", "payee_name": "Grace Canary", "cents": 5}
        assert world.send("customer.pay", pay).outcome == "accepted"
        assert world.send("customer.mail", {"customer_id": "C1", "address": "canary-mail"}).outcome == "accepted"
        failed = world.send("customer.break", {"customer_id": "C1", "secret": "canary-mail"})
    assert (rejected.outcome, failed.outcome) == ("rejected", "failed")
    assert rejected.error is not None
    assert rejected.error.message == '"[personal]" cannot be registered: [personal] is there'
    assert world.state().email == "ada@canary.org"
    assert world.read(0) == Registered.model_validate(ADA)
    assert world.read(1).payer_name == "Ada Canary"
    logged = "\n".join(f"{record.getMessage()} {record.exc_text} {record.exc_info}" for record in caplog.records)
    assert "test_personal_handling" in logged or "personal_customers.py" in logged
    for canary in CANARIES:
        for stored in [*world.stored, logged.encode()]:
            assert canary.encode() not in stored, (canary, stored)
    assert len(world.events) == 3


def test_after_an_erasure_rules_and_events_have_what_is_left_and_others_are_untouched(keys: MemoryKeys) -> None:
    world = World()
    world.send("customer.register", ADA)
    pay = {"customer_id": "C1", "payee_id": "C3", "payee_name": "Grace Canary", "cents": 5}
    world.send("customer.pay", pay)
    keys.erase("C1")
    world.send("customer.pay", pay)
    registered, before, after = world.read(0), world.read(1), world.read(2)
    assert (registered.email, registered.name, registered.born) == (None, "(erased)", None)
    assert registered.contacts[0].phone == "+44-canary-1"
    assert registered.contacts[0].note is None
    assert (before.payer_name, before.payee_name) == (None, "Grace Canary")
    # the handler has opened the state anew, although it had it in memory
    assert (after.payer_name, after.payee_name) == ("(erased)", "Grace Canary")
    assert world.state().name == "(erased)"
    assert [key.erased is not None for key in keys.keys_of("C1")] == [True], "erased_as needs no new key"
    world.restarted()
    world.send("customer.mail", {"customer_id": "C1", "address": "canary-mail"})
    assert world.read(3).address == "canary-mail"
    assert [key.erased is not None for key in keys.keys_of("C1")] == [True, False]
    assert world.read(0).email is None


def test_a_command_that_comes_again_gets_its_first_receipt(keys: MemoryKeys) -> None:
    world = World()
    first = world.send("customer.register", ADA, "c-1")
    assert world.send("customer.register", ADA, "c-1") == first
    world.send("customer.register", {**ADA, "email": "other@canary.org"}, "c-1")
    assert [receipt.error and receipt.error.code for receipt in world.receipts.values()] == ["idempotency_key_reused"]
    assert len(world.events) == 1


def test_a_command_that_comes_again_after_an_erasure_gets_its_first_receipt(keys: MemoryKeys) -> None:
    world = World()
    first = world.send("customer.register", ADA, "c-1")
    keys.erase("C1")
    assert world.send("customer.register", ADA, "c-1") == first
    keys.erase("C1")
    keys.erase("C2")
    world.restarted()
    assert world.send("customer.register", ADA, "c-1") == first
    assert len(world.events) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"contacts": [{"person_id": "C3", "phone": "+44-canary-1"}]},
        {"contacts": [{"person_id": "C2", "phone": "+44-canary-2"}]},
        {"contacts": None},
        {"email": None},
    ],
)
def test_another_command_with_its_id_is_refused_as_far_as_keys_that_are_left_tell(
    keys: MemoryKeys, other: dict[str, Any]
) -> None:
    world = World()
    world.send("customer.register", ADA, "c-1")
    keys.erase("C1")
    world.send("customer.register", {**ADA, **other}, "c-1")
    assert [receipt.error and receipt.error.code for receipt in world.receipts.values()] == ["idempotency_key_reused"]
    assert b'"accepted"' in (world.store.receipts([receipt_key("customer/C1", CLIENT, "c-1")])[0] or b""), (
        "the first receipt is still there"
    )
    assert len(world.events) == 1


def test_without_keys_it_still_gets_its_first_receipt(keys: MemoryKeys) -> None:
    world = World()
    first = world.send("customer.register", ADA, "c-1")
    keys.erase("C1")
    keys.key_of("C1")
    again = prepare(REGISTRY.command("customer.register"), orjson.dumps(ADA), TIME, command_id="c-1")
    keys.is_away = True
    assert world.decide(again.entry.key, again.entry.value or b"", "c-1") == first


def test_a_command_that_only_asks_for_its_receipt_is_not_decided_and_hides_no_other(keys: MemoryKeys) -> None:
    world, body = World(), orjson.dumps({"customer_id": "C1", "address": "canary-mail"})
    keys.key_of("C1")
    keys.erase("C1")
    asks = prepare(REGISTRY.command("customer.mail"), body, TIME, command_id="c-1")
    assert asks.complete is not None
    away = world.decide(asks.entry.key, asks.entry.value or b"", "c-1")
    assert (away.error and away.error.code, world.events) == (KEYS_UNAVAILABLE, [])
    assert asks.is_answered_by(away)
    mails = asks.complete()
    assert (mails.complete, mails.command_id, mails.is_answered_by(away)) == (None, "c-1", False)
    # one process asks when another one sends, and the handler decides both at once
    both = [Record("commands", 0, 5 + at, event.stream, event.entry.value, 0) for at, event in enumerate((asks, mails))]
    batch = world.batch(both)
    (receipt,) = (Receipt.from_json(receipt or b"") for receipt in batch.receipts(range(len(batch.entries))).values())
    assert (receipt.outcome, len(batch.events)) == ("accepted", 1)
    assert mails.is_answered_by(receipt)
    assert asks.is_answered_by(receipt)


def test_a_command_of_a_process_that_is_decided_again_makes_no_key(keys: MemoryKeys) -> None:
    world, body = World(), orjson.dumps({"customer_id": "C1", "address": "canary-mail"})
    out = prepare(REGISTRY.command("customer.mail"), body, TIME)
    value = encode(replace(decode(out.entry.value), origin=PROCESS))
    world.batch([Record("commands", 0, 0, out.entry.key, value, 0)])  # the handler is killed before it commits
    keys.erase("C1")
    world.restarted()
    assert world.decide(out.entry.key, value, out.command_id).outcome == "accepted"
    assert world.read(0).address is None
    assert world.decide(out.entry.key, value, out.command_id).outcome == "accepted"
    assert (len(world.events), [key.erased is None for key in keys.keys_of("C1")]) == (1, [False])


def test_the_api_knows_a_receipt_of_the_same_command_and_receipts_of_earlier_releases(keys: MemoryKeys) -> None:
    def out(**changes: Any) -> PreparedCommand:
        body = orjson.dumps({**ADA, **changes})
        return prepare(REGISTRY.command("customer.register"), body, TIME, command_id="c-1")

    world = World()
    receipt = world.send("customer.register", ADA, "c-1")
    assert out().is_answered_by(receipt)
    assert not out(email="other@canary.org").is_answered_by(receipt)
    keys.erase("C1")
    assert out().is_answered_by(receipt)
    assert not out(contacts=None).is_answered_by(receipt)
    earlier = orjson.loads(receipt.to_json())
    assert b"anary" not in receipt.to_json()
    del earlier["sealed"]
    assert not out().is_answered_by(Receipt.from_json(orjson.dumps(earlier)))


def test_without_keys_commands_with_personal_fields_wait_for_a_retry_and_others_go_on(keys: MemoryKeys) -> None:
    world = World()
    out = prepare(REGISTRY.command("customer.register"), orjson.dumps(ADA), TIME, command_id="c-1")
    keys.is_away = True
    with pytest.raises(KeysUnavailable):
        prepare(REGISTRY.command("customer.register"), orjson.dumps(ADA), TIME)
    assert prepare(REGISTRY.command("customer.pay"), b'{"customer_id":"C1","payee_id":"C2","cents":1}', TIME)
    away = world.decide(out.entry.key, out.entry.value or b"", "c-1")
    assert (away.outcome, away.error and away.error.code) == ("failed", KEYS_UNAVAILABLE)
    assert world.events == []
    keys.is_away = False
    assert world.decide(out.entry.key, out.entry.value or b"", "c-1").outcome == "accepted"
    assert world.decide(out.entry.key, out.entry.value or b"", "c-1").outcome == "accepted"
    assert len(world.events) == 1


def test_without_keys_a_command_of_a_process_is_not_answered(keys: MemoryKeys) -> None:

    world = World()
    out = prepare(REGISTRY.command("customer.register"), orjson.dumps(ADA), TIME)
    envelope = decode(out.entry.value)
    value = encode(replace(envelope, origin=PROCESS))
    keys.is_away = True
    with pytest.raises(KeysUnavailable):
        world.decide(out.entry.key, value, out.command_id)


def test_a_person_that_is_not_named_is_a_fault_of_the_command(keys: MemoryKeys) -> None:
    body = {"customer_id": "C1", "payee_id": "", "payee_name": "Grace Canary", "cents": 5}
    with pytest.raises(MalformedCommand) as refused:
        read_command(REGISTRY.command("customer.pay"), body)
    assert "payee_name" in refused.value.details[0]["msg"]
    assert "Grace" not in str(refused.value.details)


def test_a_sealed_text_of_a_client_is_a_value_like_any_other(keys: MemoryKeys) -> None:
    world = World()
    world.send("customer.register", ADA)
    stolen = orjson.loads(world.events[0])["data"]["email"]
    world.send("customer.mail", {"customer_id": "C9", "address": stolen})
    assert world.read(1).address == stolen


PICKY, FOLDED, CRASHED = "picky@canary.org", "fold@canary.org", "crash@canary.org"


class Picky(Event, type="picky.seen"):
    picky_id: str
    email: Annotated[str | None, Personal()]

    @field_validator("email")
    @classmethod
    def _check(cls, email: str | None) -> str | None:
        if email == PICKY:
            raise ValueError(f"not {email}")
        return email


class See(Command, type="picky.see"):
    picky_id: str
    email: Annotated[str | None, Personal()]

    @field_validator("email")
    @classmethod
    def _check(cls, email: str | None) -> str | None:
        if email == CRASHED:
            raise ZeroDivisionError(f"not {email}")
        return email


class Looks(BaseModel):
    model_config = ConfigDict(frozen=True)


def see(command: See, state: Looks) -> Sequence[Event]:
    return [Picky.model_construct(picky_id=command.picky_id, email=command.email)]


def fails(state: Looks, event: Picky) -> Looks:
    raise ValueError(f"no {event.email}")


def test_texts_of_errors_of_users_code_are_not_repeated(keys: MemoryKeys, caplog: pytest.LogCaptureFixture) -> None:
    picky = Aggregate("picky", "picky_id", Looks(), see, fails)
    registry, fields = CommandRegistry([("here", picky)]), Picky.sealed_fields
    assert fields is not None
    texts = []
    for email in (PICKY, FOLDED):
        data = fields.sealed({"picky_id": "A", "email": email}, "A")
        envelope = Envelope("picky/A/1", "picky.seen", "picky/A", TIME, data, sequence=1)
        with pytest.raises((UnreadableEvent, RuntimeError)) as failed:
            fold(picky, [envelope])
        texts.append("".join(traceback.format_exception(failed.value)))
    with pytest.raises(RuntimeError) as crashed:
        prepare(registry.command("picky.see"), orjson.dumps({"picky_id": "A", "email": CRASHED}), TIME)
    texts.append("".join(traceback.format_exception(crashed.value)))
    handler = Handler(registry, 0, 1, MemoryStore())
    for email in (PICKY, FOLDED):
        out = prepare(registry.command("picky.see"), orjson.dumps({"picky_id": "A", "email": email}), TIME)
        batch = handler.decide([Record("commands", 0, 0, out.entry.key, out.entry.value, 0)], 1_800_000_000_000)
        texts += [(receipt or b"").decode() for receipt in batch.receipts(()).values()]
    texts += [f"{record.getMessage()} {record.exc_text}" for record in caplog.records]
    assert len(texts) >= 7
    assert not any("@canary.org" in text for text in texts), texts
    assert any("test_personal_handling" in text for text in texts)


def test_older_events_in_clear_stay_readable(keys: MemoryKeys) -> None:
    world = World()
    world.send("customer.register", ADA)
    document = orjson.loads(world.events[0])
    document["data"]["email"] = "in@clear.org"
    assert read_event(customer, decode(orjson.dumps(document))).email == "in@clear.org"  # type: ignore[attr-defined]
