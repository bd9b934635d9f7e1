"""`replay reseal` encrypts what is in plaintext, keeps every offset, and goes on after a kill between any two steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, cast

import orjson
import pytest
from pydantic import BaseModel, ConfigDict

from headwater import Aggregate, Command, Event, Personal, drop, rename, upcast
from headwater.commands.declaring.observation import ObservationRegistry
from headwater.commands.declaring.process import ProcessRegistry
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.owning.resume_offset import follow_copy, resume_offset
from headwater.eventlog import topics
from headwater.eventlog.envelope import Envelope, encode, timestamp_ms
from headwater.eventlog.errors import RecordsLost
from headwater.eventlog.heartbeats import is_heartbeat_key
from headwater.eventlog.kafka.copying import CopiedRecord
from headwater.eventlog.letters import Letter
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.personal.installed import installed
from headwater.eventlog.personal.memory import MemoryKeys
from headwater.eventlog.personal.vault import ERASED
from headwater.eventlog.ports import ROUTER, Entry
from headwater.eventlog.settings import LogSettings
from headwater.replay.clear_values import ClearValues, Found, Unfit
from headwater.replay.errors import CannotReseal
from headwater.replay.reseal import OtherCopies, Plan
from headwater.replay.resealing import HELD, LIMIT, Reseal
from tests.support.memory_vault import memory_vault
from tests.unit.replay.copied_topics import Kill, Killed, MemoryTopics

MODULES = ["tests.support.personal_customers", "tests.support.personal_visits"]
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CANARY = "canary"
ERASED_AT = 5
"""The offset of an event that nobody can read, and that a later tombstone erases."""
FIRST_ID = "id1"
"""Of the topic that is copied."""


@pytest.fixture
def keys() -> Iterator[MemoryKeys]:
    with memory_vault() as found:
        yield found


@pytest.fixture(scope="module")
def values() -> ClearValues:
    return ClearValues.load(MODULES)


def mailed(person: str, text: str | None, sequence: int = 1, time: datetime = NOW) -> bytes:
    stream = f"customer/{person}"
    data = {"customer_id": person, "address": text}
    return encode(Envelope(f"{stream}/{sequence}", "customer.mailed", stream, time, data, sequence=sequence))


def address(value: bytes | None) -> Any:
    return orjson.loads(value or b"")["data"]["address"]


class Followed:
    """The registry of generations, as far as it is asked."""

    def __init__(self) -> None:
        self.copies: list[tuple[str, str, str]] = []
        self.kill = Kill()

    def follow_copy(self, topic: str, made_from: str, copy: str) -> None:
        self.kill()
        self.copies.append((topic, made_from, copy))
        self.kill()


def resealing(values: ClearValues, kept: MemoryTopics, log: MemoryLog | None = None) -> tuple[Reseal, Followed]:
    followed = Followed()
    log = log or MemoryLog(partitions=2)
    return Reseal(cast("Any", kept), values, log, cast("Any", followed), topics.EVENTS), followed


def with_events() -> MemoryTopics:
    """Two partitions: one whose first records were deleted, with gaps, a heartbeat, a tombstone, a record in clear and
    one that nobody can read; the other is empty, and ends with the end of a transaction."""
    kept = MemoryTopics()
    kept.create(topics.EVENTS, 2, 1, {"cleanup.policy": "compact", "retention.ms": "-1", LIMIT: "4000000"})
    for offset, (key, value) in {
        3: (b"customer/C1/1", mailed("C1", f"{CANARY}-1")),
        4: (b"customer/C2/1", mailed("C2", f"{CANARY}-2")),
        5: (b"customer/C2/2", mailed("C2", f"{CANARY}-erased").replace(b'"dataversion":1', b'"dataversion":9')),
        7: (b"heartbeat/0", b"{}"),
        8: (b"customer/C2/2", None),
        12: (b"customer/C1/2", mailed("C1", None, 2)),
        13: (b"x", b"\xff"),
        14: (b"customer/C1/3", mailed("C1", f"{CANARY}-3", 3)),
    }.items():
        at = kept.topics[topics.EVENTS].partitions[0].end
        record = CopiedRecord(0, key, value, [("h", b"1")] if offset == 4 else None, 1_000 + offset)
        kept.put(topics.EVENTS, 0, record, offset - at)
    kept.cut(topics.EVENTS, {0: 2})
    for partition, end in ((0, 17), (1, 3)):
        place = kept.topics[topics.EVENTS].partitions[partition]
        place.end = end
    return kept


def is_resealed(kept: MemoryTopics) -> None:
    """Assert that every record is in its place, and what was in clear is sealed."""
    assert list(kept.topics) == [topics.EVENTS]
    topic, original = kept.topics[topics.EVENTS], with_events().topics[topics.EVENTS]
    assert (topic.id != original.id, topic.settings) == (True, original.settings)
    for place, was in zip(topic.partitions, original.partitions, strict=True):
        assert place.first == was.first
        assert place.end >= was.end
        own = [record for record in place.records if record.offset < was.end]
        assert [record.offset for record in own] == list(range(was.first, was.end))
        expected = {record.offset: record for record in was.records}
        for each in own:
            if (record := expected.get(each.offset)) is None:
                assert is_heartbeat_key((each.key or b"").decode())
                continue
            assert each._replace(value=None) == record._replace(value=None)
            if each.offset == ERASED_AT:
                assert each.value is None
            elif CANARY.encode() in (record.value or b""):
                assert installed().open(address(each.value)) == address(record.value)
            else:
                assert each.value == record.value
        assert not any(CANARY.encode() in (record.value or b"") for record in place.records)


def finish(kept: MemoryTopics, values: ClearValues, log: MemoryLog) -> list[tuple[str, str, str]]:
    """Call it again, as an operator does while it is unfinished, or something is in plaintext; returns what follows."""
    kept.step = Kill()
    reseal, followed = resealing(values, kept, log)
    if reseal.is_unfinished or kept.topics[topics.EVENTS].id == FIRST_ID:
        reseal.run()
    return followed.copies


def test_it_goes_on_after_a_kill_between_any_two_steps(keys: MemoryKeys, values: ClearValues) -> None:
    at, was_killed = 0, True
    while was_killed:
        kept, log = with_events(), MemoryLog(partitions=2)
        log.submit(Entry(topics.STARTS, "reads/router/0", FIRST_ID.encode(), 1), 0)
        reseal, followed = resealing(values, kept, log)
        kept.step = followed.kill = Kill(at)
        try:
            reseal.run()
            was_killed = False
        except Killed:
            followed.copies += finish(kept, values, log)
        is_resealed(kept)
        new = kept.topics[topics.EVENTS].id
        assert set(followed.copies) == {(topics.EVENTS, FIRST_ID, new)}
        assert [record.value for record in log.read(topics.STARTS, 0, 0)] == [FIRST_ID.encode(), new.encode()]
        at += 1
    assert at > 30
    assert [len(keys.keys_of(each)) for each in ("C1", "C2")] == [1, 1], "a repeated call makes no keys"


def test_kills_of_calls_that_go_on(keys: MemoryKeys, values: ClearValues) -> None:
    for first in range(0, 60, 7):
        for second in range(0, 60, 9):
            kept, log = with_events(), MemoryLog(partitions=2)
            for at in (first, second):
                reseal, _ = resealing(values, kept, log)
                kept.step = Kill(at)
                with suppress(Killed):
                    if reseal.is_unfinished or at == first:
                        reseal.run()
            finish(kept, values, log)
            is_resealed(kept)


def test_a_record_that_came_meanwhile_is_never_lost(keys: MemoryKeys, values: ClearValues) -> None:
    kept = with_events()
    reseal, _ = resealing(values, kept)

    def write(name: str, partition: int) -> None:
        """Somebody writes before all brokers know that the topic is held."""
        if name.endswith(".resealing") and not partition:
            place = kept.topics[topics.EVENTS].partitions[1]
            late = CopiedRecord(place.end, b"customer/C9/1", mailed("C9", "late"), None, 5)
            place.records, place.end = [*place.records, late], place.end + 1

    kept.during_append = write
    with pytest.raises(CannotReseal, match="it changed while it was copied"):
        reseal.run()
    kept.during_append = lambda *_: None
    reseal.run()
    found = [record for record in kept.topics[topics.EVENTS].partitions[1].records if record.key == b"customer/C9/1"]
    assert [(record.offset, installed().open(address(record.value))) for record in found] == [(3, "late")]


def test_it_can_be_cancelled_until_the_topic_is_deleted(keys: MemoryKeys, values: ClearValues) -> None:
    at, outcomes = 0, []
    while True:
        kept, before = with_events(), with_events().topics[topics.EVENTS]
        kept.step = Kill(at)
        reseal, _ = resealing(values, kept)
        try:
            reseal.run()
            break
        except Killed:
            kept.step = Kill()
        try:
            cancelled = reseal.cancel()
        except CannotReseal:
            outcomes.append("too late")
        else:
            topic = kept.topics[topics.EVENTS]
            if topic.id == before.id:
                outcomes.append("cancelled")
                assert (list(kept.topics), topic.settings) == ([topics.EVENTS], before.settings)
                assert [record for record in topic.partitions[0].records if record.offset < 17] == before.partitions[
                    0
                ].records
            else:
                assert not cancelled
        at += 1
    assert outcomes == sorted(outcomes)
    assert len(set(outcomes)) == 2


def test_a_held_topic_without_its_copy_is_not_taken_for_one_that_was_always_so(
    keys: MemoryKeys, values: ClearValues
) -> None:
    kept = with_events()
    kept.alter(topics.EVENTS, HELD)
    with pytest.raises(CannotReseal, match="its copy is gone"):
        resealing(values, kept)[0].run()


def test_nothing_is_deleted_by_a_call_that_may_not_be_alone(
    keys: MemoryKeys, values: ClearValues, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = topics.EVENTS + topics.RESEALING
    for allowed in range(4):
        kept, deleted = with_events(), list[str]()
        delete = kept.delete
        monkeypatch.setattr(kept, "delete", lambda name, delete=delete, to=deleted: (to.append(name), delete(name)))
        log, generations = MemoryLog(partitions=2), cast("Any", Followed())
        with suppress(Killed):
            Reseal(cast("Any", kept), values, log, generations, topics.EVENTS, check_alone=Kill(allowed)).run()
        assert deleted == [copy, topics.EVENTS, copy][:allowed]


def test_a_wrong_copy_is_found(keys: MemoryKeys, values: ClearValues) -> None:
    for problem in ("value", "timestamp_ms", "missing"):
        kept = with_events()

        def spoil(name: str, partition: int, kept: MemoryTopics = kept, problem: str = problem) -> None:
            records = kept.topics[name].partitions[partition].records
            if name == topics.EVENTS and kept.topics[name].id != FIRST_ID and not partition:
                if problem == "missing":
                    kept.topics[name].partitions[partition].end += 1
                else:
                    changed: dict[str, Any] = {"value": mailed("C1", "other"), "timestamp_ms": 7}
                    records[-1] = records[-1]._replace(**{problem: changed[problem]})

        kept.during_append = spoil
        reseal, _ = resealing(values, kept)
        with pytest.raises(CannotReseal, match="copy of its record"):
            reseal.run()
        kept.during_append = lambda *_: None
        reseal.run()
        is_resealed(kept)


def test_values_of_erased_persons_get_no_key_and_later_ones_do(keys: MemoryKeys, values: ClearValues) -> None:
    keys.key_of("C1")
    keys.erase("C1")
    before, later = datetime.now(UTC) - timedelta(days=1), datetime.now(UTC) + timedelta(days=1)
    sealed = values.sealed(mailed("C1", "before", time=before))
    assert installed().open(address(sealed)) is ERASED
    assert values.difference(mailed("C1", "before", time=before), sealed) == ""
    assert all(key.erased for key in keys.keys_of("C1"))
    assert installed().open(address(values.sealed(mailed("C1", "after", time=later)))) == "after"
    assert values.difference(mailed("C1", "a"), mailed("C1", "a")) == "a value is in plaintext"
    assert values.difference(mailed("C2", "a"), values.sealed(mailed("C2", "b"))) == "a value is another one"
    assert "differs" in values.difference(mailed("C2", "a"), values.sealed(mailed("C2", "a", 2)))


def test_nested_values_of_several_persons_and_observations(keys: MemoryKeys, values: ClearValues) -> None:
    contacts = [{"person_id": "P1", "phone": f"{CANARY}-p", "note": f"{CANARY}-n"}]
    data = {"customer_id": "C1", "email": None, "name": f"{CANARY}-c", "born": 1815, "contacts": contacts}
    event = encode(Envelope("customer/C1/1", "customer.registered", "customer/C1", NOW, data, sequence=1))
    visit = {"visitor_id": "V1", "room": "R", "name": f"{CANARY}-v", "age": None, "companions": None}
    observed = encode(Envelope("visited/door/1", "visited", "visited/door", NOW, visit, recorded_time=NOW))
    found = Found()
    for number, value in enumerate([event, observed, None, b"{}"]):
        values.look(f"k{number}", value, found)
    assert (found.records, found.clear, found.persons) == (
        4, {"customer.registered": 1, "visited": 1}, {"C1", "P1", "V1"}
    )  # fmt: skip
    for value in (event, observed):
        sealed = values.sealed(value)
        assert CANARY.encode() not in (sealed or b"")
        assert values.difference(value, sealed) == ""
        assert values.sealed(sealed) == sealed
        assert not values.has_clear(sealed)


class Named(Event, type="renamed.named", version=2, history=(upcast(1, rename("who", "person_name")),)):
    renamed_id: str
    person_name: Annotated[str | None, Personal()]


class Nothing(BaseModel):
    model_config = ConfigDict(frozen=True)


def evolve(state: Nothing, event: Named) -> Nothing:
    return state


class Name(Command, type="renamed.name"):
    renamed_id: str


def decide(command: Name, state: Nothing) -> list[Event]:
    return []


def test_an_older_version_becomes_the_current_one_when_it_is_sealed(keys: MemoryKeys) -> None:
    renamed = Aggregate(name="renamed", id_field="renamed_id", initial=Nothing(), decide=decide, evolve=evolve)
    values = ClearValues(CommandRegistry([("m", renamed)]), ObservationRegistry([]), ProcessRegistry([]))

    def record(version: int, data: dict[str, Any]) -> bytes:
        return encode(
            Envelope("renamed/R/1", "renamed.named", "renamed/R", NOW, data, data_version=version, sequence=1)
        )

    value = record(1, {"renamed_id": "R", "who": CANARY})
    sealed = values.sealed(value)
    document = orjson.loads(sealed or b"")
    assert (document["dataversion"], list(document["data"])) == (2, ["renamed_id", "person_name"])
    assert installed().open(document["data"]["person_name"]) == CANARY
    assert values.difference(value, sealed) == ""
    assert values.difference(value, record(2, {"renamed_id": "R", "person_name": CANARY})) == "a value is in plaintext"
    kept = record(1, {"renamed_id": "R", "who": installed().seal("R", "renamed.named", "who", CANARY)})
    assert values.sealed(kept) == kept, "what has nothing in clear stays as it is"
    found = Found()
    values.look("renamed/R/1", record(3, {"renamed_id": "R", "later": CANARY}), found)
    values.look("renamed/R/2", record(2, {"person_name": CANARY, "renamed_id": "R"}), found)
    assert (found.clear, list(found.unfit)) == ({"renamed.named": 1}, ["renamed/R/1"])
    assert CANARY not in str(found.unfit)


class Moved(Event, type="moved.moved", version=2, history=(upcast(1, drop("phone")),)):
    renamed_id: str
    email: Annotated[str | None, Personal()]


def evolve_moved(state: Nothing, event: Moved) -> Nothing:
    return state


class Move(Command, type="moved.move"):
    renamed_id: str


def decide_moved(command: Move, state: Nothing) -> list[Event]:
    return []


def test_what_an_older_version_has_in_clear_and_the_current_one_drops_is_left_out(keys: MemoryKeys) -> None:
    moved = Aggregate(name="moved", id_field="renamed_id", initial=Nothing(), decide=decide_moved, evolve=evolve_moved)
    values = ClearValues(CommandRegistry([("m", moved)]), ObservationRegistry([]), ProcessRegistry([]))
    sealed_email = installed().seal("R", "moved.moved", "email", "x")
    data = {"renamed_id": "R", "email": sealed_email, "phone": CANARY}
    value = encode(Envelope("moved/R/1", "moved.moved", "moved/R", NOW, data, data_version=1, sequence=1))
    assert values.has_clear(value)
    assert values.difference(value, value) == "a value is in plaintext"
    found = Found()
    values.look("moved/R/1", value, found)
    assert (found.clear, found.unfit) == ({"moved.moved": 1}, {})
    sealed = values.sealed(value)
    assert orjson.loads(sealed or b"")["data"] == {"renamed_id": "R", "email": sealed_email}
    assert (values.difference(value, sealed), values.has_clear(sealed)) == ("", False)


def test_an_observation_of_another_version_is_named_because_its_fields_may_have_other_names(
    keys: MemoryKeys, values: ClearValues
) -> None:
    visit = {"visitor_id": "V1", "room": "R", "visitor_name": CANARY}
    observed = encode(
        Envelope("visited/door/1", "visited", "visited/door", NOW, visit, data_version=7, recorded_time=NOW)
    )
    found = Found()
    values.look("visited/door/1@1", observed, found)
    assert found.undeclared == {"visited of version 7": 1}


def test_records_of_nobody_are_refused_before_anything_is_done(keys: MemoryKeys, values: ClearValues) -> None:
    visit = {"visitor_id": "", "room": "R", "name": CANARY}
    found = Found()
    values.look("visited/d/1@1", encode(Envelope("visited/d/1", "visited", "visited/d", NOW, visit)), found)
    assert found.unfit == {"visited/d/1@1": '"name" belongs to no data subject: its field with the person is empty'}
    log = MemoryLog(partitions=1)
    plan = Plan(LogSettings(), [], OtherCopies(values, log), found={topics.OBSERVATIONS: found})
    with pytest.raises(CannotReseal, match="erase 1 records first, which cannot be encrypted: visited/d/1@1: "):
        plan.check()
    values.look("visited/d/1@1", None, found)
    plan.check()


@pytest.mark.parametrize(
    "value",
    [
        mailed("C1", CANARY).replace(b'"time":"2', b'"time":2,"x":"2'),
        mailed("C1", CANARY).replace(b'"data":{', b'"data":[{').replace(b"}}", b"}]}"),
        mailed("C1", CANARY).replace(b'"dataversion":1', b'"dataversion":9'),
        mailed("C1", CANARY).replace(b'"dataversion":1,', b""),
    ],
    ids=["time", "data", "version", "no version"],
)
def test_a_record_that_cannot_be_read_is_not_taken_for_sealed(
    keys: MemoryKeys, values: ClearValues, value: bytes
) -> None:
    found = Found()
    values.look("customer/C1/1", value, found)
    assert (list(found.unfit), CANARY in str(found.unfit)) == (["customer/C1/1"], False)
    with pytest.raises(Unfit):
        values.sealed(value)


def test_a_text_that_begins_as_a_sealed_one_is_in_clear(keys: MemoryKeys, values: ClearValues) -> None:
    value = mailed("C1", f"sealed:{CANARY}")
    sealed = values.sealed(value)
    assert installed().open(address(sealed)) == f"sealed:{CANARY}"
    assert values.difference(value, sealed) == ""


def test_process_instances_and_dead_letters_are_sealed_under_their_keys(keys: MemoryKeys, values: ClearValues) -> None:
    log = MemoryLog(partitions=2)
    state = orjson.dumps({"shape": "s", "timers": {}, "state": {"email": CANARY}})
    log.submit(Entry(topics.PROCESSES, "greeting/C1", state, timestamp_ms(NOW)), 1).result(1)
    log.submit(Entry(topics.PROCESSES, "parked:greeting/C1/7", mailed("C1", CANARY), 1), 1).result(1)
    letter = Letter("why", "2026-03-01T12:00:00Z", b"customer/C1/1", mailed("C1", CANARY))
    log.submit(Entry(topics.DEAD_LETTERS, "events/0/3", letter.to_json(topic="events", offset=3), 1), 0).result(1)
    others = OtherCopies(values, log)
    others.look()
    assert others.to_json() == {"instances": 1, "letters": 1, "waiting": 1}
    others.seal()
    sealed = orjson.loads(log.last(topics.PROCESSES, 1, "greeting/C1") or b"")
    assert installed().open(sealed["state"]["email"]) == CANARY
    written = log.last(topics.DEAD_LETTERS, 0, "events/0/3") or b""
    assert orjson.loads(written)["offset"] == 3
    assert installed().open(address(Letter.from_json(written).value)) == CANARY
    again = OtherCopies(values, log)
    again.look()
    assert again.to_json() == {"instances": 0, "letters": 0, "waiting": 1}


def test_the_router_goes_on_in_the_copy_and_in_no_other_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    log = MemoryLog(partitions=1)
    for number in range(9):
        log.submit(Entry(topics.EVENTS, f"k{number}", b"{}", 0), 0)
    with closing(log.own(0, ROUTER)) as writer:
        writer.begin().commit(7)
        assert resume_offset(log, ROUTER, writer) == 7
        first = log.incarnation(topics.EVENTS)
        monkeypatch.setattr(log, "incarnation", lambda _: "copy")
        for made_from in ("a topic before", first):
            follow_copy(log, ROUTER, made_from, "copy")
        assert resume_offset(log, ROUTER, writer) == 7
        monkeypatch.setattr(log, "incarnation", lambda _: "made by somebody")
        with pytest.raises(RecordsLost, match="another topic"):
            resume_offset(log, ROUTER, writer)
