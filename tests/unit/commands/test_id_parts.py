"""Aggregates with several id fields: their ids, their declarations, and whoever sends commands to them."""

# mypy: disable-error-code="arg-type, misc"

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Annotated, Any

import orjson
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from headwater import Aggregate, Claim, Command, Event
from headwater.commands.codec import read_command
from headwater.commands.declaring.ids import Identity
from headwater.commands.declaring.process import AnyProcess, ProcessRegistry
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import DeclarationError, MalformedCommand, UnfitClaim, UnreadableEvent
from headwater.commands.reacting.erasing import instances_of
from headwater.commands.reacting.router import Router
from headwater.commands.sending.client import BlockingCommandClient
from headwater.commands.sending.prepared_command import prepare
from headwater.commands.testing.contracts import contracts_of
from headwater.eventlog.envelope import Envelope, decode, encode, partition_of
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.topics import COMMANDS, EVENTS, SNAPSHOTS
from headwater.replay.erasing import Eraser, find
from headwater.testing import given, rows_of
from tests.support import tenants
from tests.support.tenants import Open, Opened, account, accounts, counting, tally
from tests.unit.commands.test_client import handled
from tests.unit.commands.test_outbox import Outbox, message

MODULE = "tests.support.tenants"
REGISTRY = CommandRegistry.load([MODULE])
TWO = Identity(("tenant", "account_id"))
PARTS = [
    ("acme", "A1", "acme/A1"),
    ("a/b", "c", "a%2Fb/c"),
    ("a", "b/c", "a/b%2Fc"),
    ("a%2Fb", "c", "a%252Fb/c"),
    ("..", ".", "../."),
    ("ü", "日本", "%C3%BC/%E6%97%A5%E6%9C%AC"),
    (" ", "a+b", "%20/a%2Bb"),
    ("A-._~z", "9", "A-._~z/9"),
]


def of(*values: object, identity: Identity = TWO) -> str:
    return identity.of_data(dict(zip(identity.names, values, strict=True)))


@pytest.mark.parametrize(("tenant", "account_id", "text"), PARTS)
def test_each_part_is_encoded(tenant: str, account_id: str, text: str) -> None:
    assert of(tenant, account_id) == text
    assert TWO.parts(text) == (tenant, account_id)
    typed = read_command(REGISTRY.command("account.open"), {"tenant": tenant, "account_id": account_id})
    assert typed.stream == f"account/{text}"


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@drawn(TEXT, TEXT, TEXT, TEXT)
def test_no_two_pairs_have_one_id(a: str, b: str, c: str, d: str) -> None:
    assert (of(a, b) == of(c, d)) == ((a, b) == (c, d))
    assert TWO.parts(of(a, b)) == (a, b)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "acme",
        "acme/",
        "/A1",
        "/",
        "acme/A1/",
        "acme/A1/7",
        "ac%6De/A1",
        "acme/%2f",
        "acme/%FF",
        "acme/%",
        "é/A1",
        "a b/c",
    ],
)
def test_a_text_that_no_message_has_as_its_id_has_no_parts(text: str) -> None:
    assert TWO.parts(text) is None


@drawn(TEXT)
def test_the_only_field_is_not_encoded(text: str) -> None:
    one = Identity(("account_id",))
    assert (one.of_data({"account_id": text}), one.parts(text)) == (text, (text,))


@pytest.mark.parametrize("body", [{"tenant": "", "account_id": "A1"}, {"tenant": "acme", "account_id": ""}])
def test_an_empty_part_is_refused(body: dict[str, str]) -> None:
    with pytest.raises(MalformedCommand) as refused:
        read_command(REGISTRY.command("account.open"), body)
    (detail,) = refused.value.details
    assert detail["loc"] == (next(name for name, value in body.items() if not value),)
    assert "part of the id" in detail["msg"]


def test_an_empty_claim_is_no_fault_of_the_body() -> None:
    with pytest.raises(UnfitClaim, match="tenant"):
        prepare(REGISTRY.command("account.open"), b'{"account_id": "A1"}', datetime.now(UTC), claims={"tenant": ""})


class Thing(BaseModel):
    model_config = ConfigDict(frozen=True)


class Kind(Enum):
    A = "a"


def declare(id_field: object, *fields: dict[str, Any]) -> Aggregate[Thing]:
    """An aggregate with a command for each of these fields, and an event with those of the first."""

    def made(base: type, name: str, annotations: dict[str, Any]) -> type:
        kind = f"thing.{name}"
        return type(name, (base,), {"__annotations__": annotations, "__module__": __name__}, type=kind)

    commands: Any = tuple(made(Command, f"do{number}", field) for number, field in enumerate(fields))
    event: Any = made(Event, "done", {name: str if name in ("a", "b") else kind for name, kind in fields[0].items()})
    if fields[0].get("a") is int:
        event = made(Event, "done", {"a": int, "b": str})

    def decide(command: Any, state: Thing) -> Sequence[Event]:
        return []

    def evolve(state: Thing, event: Any) -> Thing:
        return state

    union = commands[0]
    for each in commands[1:]:
        union = union | each
    decide.__annotations__["command"] = union
    evolve.__annotations__["event"] = event
    return Aggregate(name="thing", id_field=id_field, initial=Thing(), decide=decide, evolve=evolve)


T, U = Annotated[str, Claim("tenant")], Annotated[str, Claim("org")]
FINE = {"a": str, "b": str}
WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: declare((), FINE), 'aggregate "thing": id_field is a tuple with no name: write id_field="thing_id"'),
    (lambda: declare(("a",), FINE), 'aggregate "thing": id_field is a tuple with one name: write id_field="a"'),
    (lambda: declare(["a", "b"], FINE), "id_field is ['a', 'b'], which is no tuple: write id_field=('a', 'b')"),
    (lambda: declare(("a", "a"), FINE), 'aggregate "thing": id_field has "a" twice: remove one'),
    (
        lambda: declare(("a", 5), FINE),
        'a name in id_field is 5, which is no text: write id_field=("tenant", "thing_id")',
    ),
    (lambda: declare(("a", ""), FINE), 'a name in id_field is empty: write id_field=("tenant", "thing_id")'),
    (lambda: declare({"a", "b"}, FINE), 'which is no text: write id_field="thing_id"'),
    (lambda: declare(("a", "c"), FINE), '"thing.do0" has no field "c", part of the id of "thing"'),
    (lambda: declare(("a", "b"), FINE, {"a": str}), '"thing.do1" has no field "b", part of the id of "thing"'),
    (
        lambda: declare(("a", "b"), {"a": str, "b": float}),
        'field "b" of "thing.do0" is part of the id of "thing", and is no text and no integer: write b: str or b: int',
    ),
    (lambda: declare(("a", "b"), {"a": str, "b": bool}), "is no text and no integer"),
    (lambda: declare(("a", "b"), {"a": str, "b": list[str]}), "is no text and no integer"),
    (lambda: declare(("a", "b"), {"a": str, "b": str | None}), "may be null, which names no stream: write b: str"),
    (
        lambda: declare(("a", "b"), {"a": str, "b": Annotated[str, Field(alias="c")]}),
        "has an alias, but records have its own name: remove it",
    ),
    (
        lambda: declare(("a", "b"), {"a": T, "b": str}, FINE),
        'field "a" is part of the id of "thing": "thing.do0" fills it with Claim("tenant"), and "thing.do1" leaves it '
        'to its sender: write the same Claim in all commands of "thing"',
    ),
    (
        lambda: declare(("a", "b"), FINE, {"a": T, "b": str}),
        '"thing.do1" fills it with Claim("tenant"), and "thing.do0" leaves it to its sender',
    ),
    (lambda: declare(("a", "b"), {"a": T, "b": str}, {"a": U, "b": str}), 'and "thing.do1" fills it with Claim("org")'),
    (lambda: declare("a", {"a": T}, {"a": str}), 'and "thing.do1" leaves it to its sender'),
]


@pytest.mark.parametrize(("wrong", "problem"), WRONG)
def test_a_mistake_is_named_with_what_to_write(wrong: Callable[[], object], problem: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        wrong()
    assert problem in str(refused.value)


def test_parts_may_be_texts_integers_and_enums_with_claims() -> None:
    declare(("a", "b"), FINE)
    declare(("a", "b"), {"a": int, "b": T}, {"a": int, "b": T})
    declare(("a", "b"), {"a": Kind, "b": str})


TestContracts = contracts_of(MODULE)


def test_a_test_of_an_aggregate() -> None:
    opened = Opened(tenant="acme", account_id="A1", owner="nobody")
    given(account).when(Open(tenant="acme", account_id="A1")).then(opened)
    given(account, opened).when(Open(tenant="acme", account_id="A1")).then_rejected("already_open")
    with pytest.raises(ValueError, match="of several streams, account/acme/A1, account/other/A1"):
        given(account, opened, Opened(tenant="other", account_id="A1", owner="x"))


def test_an_event_of_another_tenant_is_refused() -> None:
    def decide(command: Open, state: tenants.Account) -> Sequence[Event]:
        return [Opened(tenant="other", account_id=command.account_id, owner="x")]

    wrong = Aggregate(
        name="account", id_field=("tenant", "account_id"), initial=account.initial, decide=decide, evolve=account.evolve
    )
    with pytest.raises(Exception, match=r'belongs to another "account" than "account/acme/A1"'):
        given(wrong).when(Open(tenant="acme", account_id="A1")).then()


def test_a_row_per_stream() -> None:
    rows = rows_of(accounts, *(Opened(tenant=each, account_id="A1", owner=each) for each in ("acme", "other")))
    assert rows == {
        f"account/{each}/A1": {"stream": f"account/{each}/A1", "tenant": each, "owner": each, "opened": 1}
        for each in ("acme", "other")
    }


def test_the_client_sends_and_two_tenants_may_have_one_account() -> None:
    log = MemoryLog(partitions=3)
    with handled(log, [MODULE]), BlockingCommandClient(log, REGISTRY) as client:
        for tenant in ("acme", "other", "a/b"):
            receipt = client.send(Open(tenant=tenant, account_id="A1"), command_id="same")
            stream = f"account/{tenant.replace('/', '%2F')}/A1"
            assert (receipt.stream, receipt.version, receipt.events[0].id) == (stream, 1, f"{stream}/1")
            assert client.send(Open(tenant=tenant, account_id="A1"), command_id="same") == receipt
            found = client.receipt("same", stream=stream)
            assert found is not None and found.stream == stream
            (stored,) = [e for p in range(3) for e in log.read(EVENTS, p, 0) if e.key == f"{stream}/1"]
            assert stored.partition == partition_of(stream, 3)
            assert log.last(SNAPSHOTS, stored.partition, stream) is not None


def test_a_process_sends_commands_to_such_an_aggregate() -> None:
    seen = given(counting).when(Opened(tenant="acme", account_id="A1", owner="me"))
    seen.then(tenants.Count(shelf=7, place="acme/A1"))
    assert [record.key for record in seen._play._sent] == ["tally/7/acme%2FA1"]


def test_the_outbox_of_a_database_sends_commands_to_such_an_aggregate() -> None:
    outbox = Outbox()
    outbox.task._commands = REGISTRY
    outbox.write(message({"type": "account.open", "body": {"tenant": "a/b", "account_id": "A1"}}))
    outbox.work()
    (sent,) = outbox.commands()
    assert (sent.key, decode(sent.value).stream) == ("account/a%2Fb/A1", "account/a%2Fb/A1")
    assert sent.partition == partition_of(sent.key, 3)


def test_an_integer_is_its_digits() -> None:
    body = orjson.dumps({"shelf": -7, "place": "p"})
    assert read_command(REGISTRY.command("tally.count"), body).stream == "tally/-7/p"
    assert tally.identity.parts("-7/p") == ("-7", "p")


def test_commands_stand_in_the_partition_of_their_stream() -> None:
    log = MemoryLog(partitions=5)
    with handled(log, [MODULE]), BlockingCommandClient(log, REGISTRY) as client:
        for number in range(20):
            client.send(tenants.Count(shelf=number, place="/"))
    for partition in range(5):
        for record in log.read(COMMANDS, partition, 0):
            assert record.key.endswith("/%2F") and partition_of(record.key, 5) == partition


@pytest.mark.parametrize("tenant", ["acme", "a/b"])
def test_the_stream_of_one_tenant_is_erased_and_that_of_another_stays(tenant: str) -> None:
    """Although its account has a number as its id, and so the name of its stream ends like that of an event."""
    log, mine = MemoryLog(partitions=2), f"account/{tenant.replace('/', '%2F')}/7"
    with handled(log, [MODULE]), BlockingCommandClient(log, REGISTRY) as client:
        for each in (tenant, "other"):
            client.send(Open(tenant=each, account_id="7"))
        eraser = Eraser(log, REGISTRY, ProcessRegistry([]))
        found = find(log, mine)
        assert (found.stream, found.version) == (mine, None)
        assert eraser.erase(found) == 1
        event = find(log, "account/other/7/1")
        assert (event.stream, event.version) == ("account/other/7", 1)
    tombstones = [number.key for p in range(2) for number in log.read(EVENTS, p, 0) if number.value is None]
    assert tombstones == [f"{mine}/1"]


def test_an_instance_of_a_process_is_of_one_tenant() -> None:
    opened = [Opened(tenant=tenant, account_id="A1", owner="me") for tenant in ("a", "a/A1", "other")]
    with pytest.raises(ValueError, match='what came before it is for "a/A1"'):
        given(counting, opened[0]).when(opened[2])
    routed = {key for each in opened for _, key in keys_of(each.model_dump())}
    assert routed == {"a/A1", "a%2FA1/A1", "other/A1"}


def test_so_is_that_of_an_event_that_cannot_be_read() -> None:
    assert keys_of({"tenant": "a/b", "account_id": "A1", "owner": 7}) == [(counting, "a%2Fb/A1")]
    with pytest.raises(UnreadableEvent):
        keys_of({"tenant": "a/b", "owner": "me"})


def keys_of(data: dict[str, Any]) -> list[tuple[AnyProcess, str]]:
    """The instances to which a router sends an event with these data."""
    event = Envelope("e", Opened.type, "account/x/y", datetime(2026, 1, 2, tzinfo=UTC), data)
    return Router(REGISTRY, ProcessRegistry([(MODULE, counting)])).instances(event)


def test_the_instance_of_an_erased_stream_is_found() -> None:
    data = {"tenant": "a/b", "account_id": "A1", "owner": "me"}
    event = Envelope("e", Opened.type, "account/a%2Fb/A1", datetime(2026, 1, 2, tzinfo=UTC), data)
    processes = ProcessRegistry([(MODULE, counting)])
    assert list(instances_of(REGISTRY, processes, [encode(event)])) == ["counting/a%2Fb/A1"]
