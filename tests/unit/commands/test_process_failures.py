"""What `react` may do worst: it stops its own instance, whose events wait in order, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import timedelta
from itertools import repeat
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from headwater.commands.codec import read_event
from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.process import Process, Reaction, TimedOut
from headwater.commands.declaring.registry import AnyAggregate
from headwater.commands.errors import UnreadableEvent
from headwater.commands.owning.resume_offset import resume_offset
from headwater.eventlog import topics
from headwater.eventlog.envelope import Envelope, decode, partition_of, timestamp_ms
from headwater.eventlog.letters import Letter
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import PROCESSES, ROUTER
from headwater.eventlog.settings import LogSettings
from headwater.replay.errors import CannotRetry, NothingToRetry
from headwater.replay.retry import Resender, is_resent
from headwater.samples.orders.domain import order
from tests.support.badly_behaved import Do
from tests.support.domains import SHIPPED
from tests.support.process_world import World
from tests.support.seeds import seed_of, sweep

LINES = [{"sku": "tea", "quantity": 1, "unit_cents": 5}]
SOON = timedelta(minutes=5)
HOUR = timedelta(hours=1)


class Counted(BaseModel):
    model_config = ConfigDict(frozen=True)
    order_id: str = ""
    seen: tuple[str, ...] = ()
    weight: str = ""


def history(order_id: str) -> list[tuple[str, dict[str, Any]]]:
    placed = {"order_id": order_id, "customer": "Ada", "lines": LINES}
    return [
        ("order.placed", {**placed, "total_cents": 5}),
        ("order.paid", {**placed, "paid_cents": 5}),
        ("order.shipped", placed),
    ]


KINDS = tuple(kind for kind, _ in history("O"))


def counting(
    worst: Callable[[Counted], Any] | None = None,
    at: type[Event | TimedOut] = order.Placed,
    only: str = "bad",
    **other: Any,
) -> Process[Counted]:
    """A process that notes what it sees, and does its `worst` when it sees `at` in the instance `only`."""

    def react(event: order.Placed | order.Paid | order.Shipped | TimedOut, state: Counted) -> Reaction[Counted]:
        kind = "timer" if isinstance(event, TimedOut) else event.type
        order_id = state.order_id if isinstance(event, TimedOut) else event.order_id
        after = Counted(order_id=order_id, seen=(*state.seen, kind))
        if worst is not None and isinstance(event, at) and order_id == only:
            found: Reaction[Counted] = worst(after)
            return found
        return Reaction(after, timers={"soon": SOON} if isinstance(event, order.Placed) else {})

    declared: dict[str, Any] = {"name": "counting", "key": "order_id", "initial": Counted(), "starts": (order.Placed,)}
    return Process(**{**declared, "react": react, **other})


def raises(error: BaseException) -> Callable[[Counted], Any]:
    def worst(state: Counted) -> Any:
        raise error

    return worst


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("not even this")


def generator(state: Counted) -> Iterator[Reaction[Counted]]:
    yield Reaction(state)


def endless(state: Counted) -> Any:
    return endless(state)


def cancels(order_id: str = "bad", reason: str = "why") -> order.Cancel:
    return order.Cancel.model_construct(order_id=order_id, reason=reason)


WORST: dict[str, Callable[[Counted], Any]] = {
    "an error": raises(ValueError("a bug")),
    "an error whose message fails": raises(Unspeakable()),
    "an error whose message is no text": raises(ValueError(b"\xff", "\ud83d")),
    "the end of Python": raises(SystemExit(3)),
    "the end of a generator": raises(GeneratorExit()),
    "an endless recursion": endless,
    "a generator": generator,
    "nothing": lambda state: None,
    "another state": lambda state: Reaction(order.Order()),
    "an invalid state": lambda state: Reaction(state.model_copy(update={"seen": 5})),
    "a state that is no JSON": lambda state: Reaction(state.model_copy(update={"weight": object()})),
    "half a surrogate pair": lambda state: Reaction(state.model_copy(update={"weight": "\ud83d"})),
    "a state larger than a record": lambda state: Reaction(state.model_copy(update={"weight": "x" * 5_000_000})),
    "an invalid command": lambda state: Reaction(state, [cancels(reason="")]),
    "a large command": lambda state: Reaction(state, [cancels(reason="x" * 1_100_000)]),
    "a command for half a surrogate pair": lambda state: Reaction(state, [cancels(order_id="\ud83d")]),
    "a command whose id is long": lambda state: Reaction(state, [Do(wild_id="x" * 120_000)]),
    "a command whose id has many bytes": lambda state: Reaction(state, [Do(wild_id="\U0001f600" * 30_000)]),
    "no command": lambda state: Reaction(state, ["order.cancel"]),  # type: ignore[list-item]
    "no commands": lambda state: Reaction(state, None),  # type: ignore[arg-type]
    "commands without an end": lambda state: Reaction(state, repeat(cancels())),  # type: ignore[arg-type]
    "a timer that is no time": lambda state: Reaction(state, timers={"t": 5}),  # type: ignore[dict-item]
    "a timer without a name": lambda state: Reaction(state, timers={None: SOON}),  # type: ignore[dict-item]
}


def seen(world: World, order_id: str = "bad") -> list[object] | None:
    instance = world.instance(f"counting/{order_id}")
    return None if instance is None else instance["state"]["seen"]


def retry_all(world: World) -> None:
    resender = Resender(LogSettings(modules=SHIPPED), world.log)
    for key, letter in world.letters().items():
        assert is_resent(key)
        with suppress(NothingToRetry):
            assert resender.resend(key, letter) is None
        world.settle()


@pytest.mark.parametrize("worst", WORST.values(), ids=WORST.keys())
def test_the_worst_reaction_stops_its_instance_only_and_what_comes_waits_in_order(
    worst: Callable[[Counted], Any],
) -> None:
    world = World(random.Random(1), partitions=1)
    world.deploy(counting(worst))
    world.record_events("order/bad", *history("bad"))
    world.record_events("order/good", *history("good"))
    world.settle()
    assert seen(world, "good") == [*KINDS]
    assert seen(world) == []
    (letter,) = world.letters().values()
    assert letter.reason.startswith('process "counting" failed, error ')
    world.deploy(counting(worst))  # the same again, after a restart
    world.settle()
    assert len(world.letters()) == 1

    world.deploy(counting())
    world.settle()
    assert seen(world) == [], "nothing is handled before what it waits for"
    retry_all(world)
    assert seen(world) == [*KINDS]
    assert waiting(world.log) == []


@pytest.mark.parametrize(
    ("worst", "says"),
    [
        ("nothing", "returned NoneType, not a Reaction"),
        ("a large command", "bytes, but at most 983040 are allowed"),
        ("a command whose id is long", '"wild.do" cannot be sent: the command\'s id, type and stream together'),
        ("a command whose id has many bytes", "together have more than 100000 bytes"),
        ("an invalid command", "does not match its own model"),
        ("commands without an end", "sends more than 10000 commands"),
        ("a state larger than a record", "bytes, but the limit is 4128768: keep less"),
    ],
)
def test_the_dead_letter_says_what_is_wrong_with_the_reaction(worst: str, says: str) -> None:
    world = World(random.Random(1), partitions=1)
    world.deploy(counting(WORST[worst]))
    world.record_events("order/bad", *history("bad"))
    world.settle()
    (letter,) = world.letters().values()
    assert says in letter.reason


def waiting(log: MemoryLog) -> list[str]:
    latest = {r.key: r.value for p in range(log.partitions) for r in log.read(topics.PROCESSES, p, 0)}
    return [key for key, value in latest.items() if key.startswith("parked:") and value is not None]


@pytest.mark.parametrize("at", [order.Placed, order.Paid, order.Shipped])
@pytest.mark.parametrize("number", sweep(4, 1))
def test_a_stopped_instance_sees_all_in_order_through_faults_restarts_and_redelivery(
    at: type[Event], number: int
) -> None:
    world = World(random.Random(seed_of(number)), partitions=2)
    world.deploy(counting(WORST["an error"], at))
    world.record_events("order/bad", *history("bad"))
    world.some_steps(40)
    world.settle()
    world.redeliver()
    world.some_steps(20)
    world.settle()
    world.deploy(counting())
    assert seen(world) == list(KINDS[: KINDS.index(at.type)])
    resender = Resender(LogSettings(modules=SHIPPED), world.log)
    for key, letter in world.letters().items():
        with suppress(NothingToRetry):  # an event that came again has another letter
            resender.resend(key, letter)
        world.some_steps(30)
    world.settle()
    assert seen(world) == [*KINDS]
    assert waiting(world.log) == []


class Grown(BaseModel):
    model_config = ConfigDict(frozen=True)
    total: int = 2**64 - 1
    anything: Any = None


@pytest.mark.parametrize("restarts", [True, False])
def test_a_state_is_the_same_after_a_restart_also_with_integers_of_more_than_64_bits(restarts: bool) -> None:
    def react(event: order.Placed | order.Paid | order.Shipped, state: Grown) -> Reaction[Grown]:
        found.append(state)
        return Reaction(Grown(total=state.total + 12_345, anything=(state.total, event.type)))

    found: list[Grown] = []
    grown = Process(name="grown", key="order_id", initial=Grown(), starts=(order.Placed,), react=react)
    world = World(random.Random(1), partitions=1)
    world.deploy(grown)
    for number, each in enumerate(history("O"), 1):
        world.record_events("order/O", each, first=number)
        world.settle()
        if restarts:
            world.deploy(grown)
    first = 2**64 - 1
    assert [state.total for state in found] == [first, first + 12_345, first + 24_690]
    assert found[2].anything == [first + 12_345, "order.paid"]
    assert world.letters() == {}


def test_what_comes_between_and_after_in_the_same_transaction_stays_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.commands.reacting.process_task.MAX_RELEASED", 1)
    world = World(random.Random(1), partitions=1)
    placed, paid, shipped = history("bad")
    world.deploy(counting(WORST["an error"]))
    world.record_events("order/bad", placed)
    world.settle()
    world.deploy(counting())
    world.record_events("order/bad", paid, first=2)
    world.step(ROUTER, 0, 100)
    ((key, letter),) = world.letters().items()
    Resender(LogSettings(modules=SHIPPED), world.log).resend(key, letter)
    for number, event in enumerate([shipped, paid], 3):
        world.record_events("order/bad", event, first=number)
        world.step(ROUTER, 0, 100)
    world.step(PROCESSES, 0, 100)
    assert seen(world) == ["order.placed"]
    world.record_events("order/bad", shipped, first=5)
    world.step(ROUTER, 0, 100)
    world.step(PROCESSES, 0, 100)
    assert seen(world) == ["order.placed", "order.paid"], "what came last waits behind what has waited"
    world.settle()
    assert seen(world) == [*KINDS, "order.paid", "order.shipped"]


def test_the_next_that_fails_stops_the_instance_again_and_only_the_rest_waits() -> None:
    world = World(random.Random(1))
    world.deploy(counting(WORST["an error"], order.Placed))
    world.record_events("order/bad", *history("bad"))
    world.settle()
    world.deploy(counting(WORST["nothing"], order.Paid))
    ((first, letter),) = world.letters().items()
    Resender(LogSettings(modules=SHIPPED), world.log).resend(first, letter)
    world.settle()
    assert seen(world) == ["order.placed"]
    assert len(waiting(world.log)) == 1
    world.deploy(counting())
    second = {key: letter for key, letter in world.letters().items() if key != first}
    ((key, letter),) = second.items()
    Resender(LogSettings(modules=SHIPPED), world.log).resend(key, letter)
    world.settle()
    assert seen(world) == [*KINDS]


def test_what_waits_behind_an_event_that_is_declared_no_more_goes_on() -> None:
    def without_paid(event: order.Placed | order.Shipped, state: Counted) -> Reaction[Counted]:
        return Reaction(Counted(order_id=event.order_id, seen=(*state.seen, event.type)))

    world = World(random.Random(1))
    world.deploy(counting(WORST["an error"], order.Paid))
    world.record_events("order/bad", *history("bad"))
    world.settle()
    world.deploy(counting(react=without_paid))
    retry_all(world)
    assert seen(world) == ["order.placed", "order.shipped"]


def test_what_waits_is_handled_though_the_first_of_it_ends_the_instance() -> None:
    def ends(event: order.Placed | order.Paid | order.Shipped, state: Counted) -> Reaction[Counted]:
        return Reaction(state, ended=isinstance(event, order.Paid))

    world = World(random.Random(1))
    world.deploy(counting(WORST["an error"], order.Placed))
    again = [("order.placed", history("bad")[0][1])]
    world.record_events("order/bad", *history("bad"), *again)
    world.settle()
    world.deploy(counting(react=ends))
    retry_all(world)
    assert world.instances() == ["counting/bad"], "the last event has started it anew"
    assert waiting(world.log) == []


def test_a_timer_that_fails_is_a_dead_letter_and_rings_when_that_is_retried() -> None:
    world = World(random.Random(1))
    world.deploy(counting(WORST["an error"], TimedOut))
    world.record_events("order/bad", *history("bad")[:1])
    world.settle()
    world.wait(SOON)
    world.settle()
    ((key, letter),) = world.letters().items()
    assert key.startswith(f"process-inbox/{partition_of('counting/bad', 3)}/timer/counting/bad/soon@")
    assert "a bug" in letter.reason
    world.deploy(counting())
    world.settle()
    assert seen(world) == ["order.placed"]
    for _ in range(2):
        retry_all(world)
        assert seen(world) == ["order.placed", "timer"]


@pytest.mark.parametrize(("within", "fires"), [(timedelta.max, False), (timedelta.min, True)])
def test_a_timer_beyond_all_times_stops_nothing(within: timedelta, fires: bool) -> None:
    world = World(random.Random(1))
    world.deploy(counting(lambda state: Reaction(state, timers={"soon": within})))
    world.record_events("order/bad", *history("bad"))
    world.settle()
    world.wait(timedelta(days=365 * 1_000))
    world.settle()
    assert world.letters() == {}
    instance = world.instance("counting/bad")
    assert instance is not None
    assert ("timer" in instance["state"]["seen"]) is fires
    assert [name for name in instance["timers"]] == ([] if fires else ["soon"])
    assert set(KINDS) <= set(instance["state"]["seen"])


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("partitions", [1, 3])
def test_an_event_that_cannot_be_read_stops_its_instance_and_is_handled_in_order_once_it_can(
    number: int, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(aggregate: AnyAggregate, envelope: Envelope) -> Event:
        if envelope.id == f"order/bad/{number}":
            raise UnreadableEvent("a bug in an upcaster")
        return read_event(aggregate, envelope)

    monkeypatch.setattr("headwater.commands.reacting.turn.read_event", read)
    world = World(random.Random(number), partitions)
    both = counting(), counting(name="other")
    world.deploy(*both)
    world.record_events("order/bad", *history("bad"))
    world.record_events("order/good", *history("good"))
    world.some_steps(30)
    world.settle()
    assert seen(world, "good") == [*KINDS]
    assert seen(world) == [*KINDS[: number - 1]]
    letters = world.letters()
    assert {key.partition("/")[0] for key in letters} == {"process-inbox"}
    assert len(letters) == 2, "one for each process"
    assert all("a bug in an upcaster" in letter.reason for letter in letters.values())

    monkeypatch.undo()
    world.deploy(*both)
    world.settle()
    assert seen(world) == [*KINDS[: number - 1]], "nothing is handled before it"
    resender = Resender(LogSettings(modules=SHIPPED), world.log)
    for key, letter in letters.items():
        assert resender.resend(key, letter) is None
    world.some_steps(30)
    world.settle()
    assert seen(world) == [*KINDS]
    assert waiting(world.log) == []


def test_timers_of_a_stopped_instance_run_out_after_what_has_waited() -> None:
    world = World(random.Random(1))
    world.deploy(counting(WORST["an error"], order.Paid))
    world.record_events("order/bad", *history("bad"))
    world.settle()
    world.wait(SOON)
    world.settle()
    assert seen(world) == ["order.placed"]
    world.deploy(counting())
    retry_all(world)
    assert seen(world) == [*KINDS, "timer"]


def test_many_due_timers_ring_in_several_transactions_and_events_are_handled_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headwater.commands.reacting.process_task.MAX_FIRED_TIMERS", 3)
    world = World(random.Random(1), partitions=1)
    world.deploy(counting())
    count = 7
    for number in range(count):
        world.record_events(f"order/O{number}", *history(f"O{number}")[:1])
    world.settle()
    world.wait(SOON)
    world.restart(PROCESSES, 0)
    world.record_events("order/late", *history("late")[:1])
    rung = []
    for _ in range(3):
        world.step(PROCESSES, 0, 100)
        rung.append(sum(seen(world, f"O{number}") == ["order.placed", "timer"] for number in range(count)))
        world.step_all_but(PROCESSES)
    assert rung == [3, 6, 7]
    assert seen(world, "late") == ["order.placed"]


class Narrow(BaseModel):
    model_config = ConfigDict(frozen=True)
    order_id: str = ""
    seen: tuple[int, ...] = ()


def test_an_instance_that_is_unreadable_waits_for_code_that_reads_it_and_the_others_go_on() -> None:
    world = World(random.Random(1), partitions=1)
    world.deploy(counting())
    world.record_events("order/bad", *history("bad")[:1])
    world.record_events("order/good", *history("good")[:1])
    world.settle()
    kept = world.instance("counting/bad")

    def counts(event: order.Placed | order.Paid | order.Shipped, state: Narrow) -> Reaction[Narrow]:
        return Reaction(Narrow(order_id=event.order_id, seen=(*state.seen, 1)))

    world.deploy(counting(initial=Narrow(), react=counts))
    world.record_events("order/new", *history("new"))
    world.record_events("order/bad", *history("bad")[1:], first=2)
    world.settle()
    assert seen(world, "new") == [1, 1, 1]
    assert world.instance("counting/bad") == kept, "what cannot be read is not written to"
    letters = world.letters()
    assert set(letters) == {"processes/0/counting/bad", "processes/0/counting/good"}
    world.deploy(counting(initial=Narrow(), react=counts))
    world.settle()
    assert set(world.letters()) == set(letters), "one letter an instance, however often it is restarted"

    world.deploy(counting())
    world.settle()
    assert seen(world) == [*KINDS]


@pytest.mark.parametrize("unreadable", [True, False], ids=["unreadable", "not declared"])
def test_an_event_that_is_retried_before_the_code_can_read_its_instance_is_a_letter_again(unreadable: bool) -> None:
    def counts(event: order.Placed | order.Paid | order.Shipped, state: Narrow) -> Reaction[Narrow]:
        return Reaction(state)

    world = World(random.Random(1), partitions=1)
    world.deploy(counting(WORST["an error"], order.Paid))
    world.record_events("order/bad", *history("bad"))
    world.settle()
    ((key, letter),) = world.letters().items()
    world.deploy(*([counting(initial=Narrow(), react=counts)] if unreadable else []))
    Resender(LogSettings(modules=SHIPPED), world.log).resend(key, letter)
    world.settle()
    again = {key: letter for key, letter in world.letters().items() if "deploy one that can" in letter.reason}
    ((key, letter),) = again.items()
    world.deploy(counting())
    world.settle()
    Resender(LogSettings(modules=SHIPPED), world.log).resend(key, letter)
    world.settle()
    assert seen(world) == [*KINDS]


def test_a_start_that_is_given_up_begins_nothing() -> None:
    def from_paid(event: order.Paid, state: Counted) -> Reaction[Counted]:
        return Reaction(state)

    world = World(random.Random(1))
    world.deploy(counting(WORST["an error"]))
    world.record_events("order/bad", *history("bad")[:1])
    world.settle()
    world.deploy(counting(react=from_paid, starts=(order.Paid,)))
    retry_all(world)
    assert world.instances() == []


def test_a_letter_of_an_unreadable_instance_is_taken_in_once_the_code_reads_it() -> None:
    world = World(random.Random(1), partitions=1)
    resender = Resender(LogSettings(modules=SHIPPED), world.log)
    world.send("order.place", order_id="O", customer="Ada", lines=LINES)
    world.settle()
    record = next(r for r in world.log.read(topics.PROCESSES, 0, 0) if r.key == "order_fulfilment/O")
    broken = Letter("", "", record.key.encode(), b'{"state":{"status":5}}')
    with pytest.raises(CannotRetry, match="give new fields a default"):
        resender.resend("processes/0/order_fulfilment/O", broken)
    readable = broken._replace(value=record.value)
    assert is_resent("processes/0/order_fulfilment/O")
    assert resender.resend("processes/0/order_fulfilment/O", readable) is None


def test_what_comes_for_a_process_of_newer_code_waits_for_that_code() -> None:
    world = World(random.Random(1), partitions=1)
    world.deploy(counting())
    world.record_events("order/bad", *history("bad"))
    world.step_all_but(PROCESSES)
    world.deploy()
    world.settle()
    assert world.instances() == []
    world.deploy(counting())
    world.settle()
    assert seen(world) == [*KINDS]


def test_commands_of_a_process_have_ids_that_tell_the_event() -> None:
    world = World(random.Random(1), partitions=1)
    world.deploy(counting(lambda state: Reaction(state, (cancels() for _ in range(2)))))  # type: ignore[arg-type]
    world.record_events("order/bad", *history("bad")[:1])
    world.settle()
    sent = [decode(record.value).id for record in world.log.read(topics.COMMANDS, 0, 0)]
    assert sent == ["counting:order/bad/1:0", "counting:order/bad/1:1"]


def test_a_command_whose_cause_is_ahead_of_the_clock_is_a_record_of_now() -> None:
    world = World(random.Random(1), partitions=1)
    world.deploy(counting(lambda state: Reaction(state, [cancels()])))
    world.wait(3 * HOUR)
    world.record_events("order/bad", *history("bad")[:1])
    world.wait(-3 * HOUR)
    world.settle()
    (record,) = world.log.read(topics.COMMANDS, 0, 0)
    assert record.timestamp_ms == timestamp_ms(world.now)
    assert decode(record.value).time == world.now + 3 * HOUR


def test_what_waits_is_not_replaced_by_what_comes_in_an_inbox_that_was_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The new inbox has the offsets of the earlier one again; its records come after those that wait."""
    world = World(random.Random(1), partitions=1)
    world.deploy(counting(WORST["an error"], order.Placed))
    resume(world)
    placed, paid, shipped = history("bad")
    world.record_events("order/bad", placed, paid)
    world.settle()
    assert len(waiting(world.log)) == 1
    del world.log._records[topics.INBOX, 0]
    before = world.log.incarnation
    monkeypatch.setattr(
        world.log, "incarnation", lambda topic: before(topic) + ("new" if topic == topics.INBOX else "")
    )
    resume(world)
    first, *rest = history("good")
    world.record_events("order/good", first)
    world.record_events("order/bad", shipped, first=3)  # it has the offset of what waits
    world.settle()
    world.record_events("order/good", *rest, first=2)
    world.settle()
    assert len(waiting(world.log)) == 2
    world.deploy(counting())
    retry_all(world)
    assert (seen(world), seen(world, "good")) == ([*KINDS], [*KINDS])
    assert waiting(world.log) == []


def resume(world: World) -> None:
    """What an owner does before it works: it notes which inbox it reads."""
    with closing(world.log.own(0, PROCESSES)) as writer:
        resume_offset(world.log, PROCESSES, writer)
    world.restart_all()
