"""Rows whose key has the day by which they expire are removed from every store, and nobody sees that they were."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
import pytest

from headwater.api.reading import Live
from headwater.compose.settings import StackSettings
from headwater.eventlog.envelope import Envelope, Position, encode, partition_of, timestamp_ms
from headwater.projections.errors import GenerationMissing, StoreUnavailable
from headwater.projections.generations.upkeep import expired_rows
from headwater.projections.generations.upkeep.expired_rows import keep_removing, remove_rows
from headwater.projections.reading.reader import fold, lift, states
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.declared import Cache, Elasticsearch, Postgres
from headwater.projections.stores.names import patch_key, table_name
from headwater.projections.stores.open import backend, open_reader
from headwater.projections.stores.store import Batch, Target
from headwater.projections.table.computations import envelope
from headwater.projections.table.expressions import Source
from headwater.projections.table.folds import add, count, last
from headwater.projections.table.view import TableView
from headwater.replay.comparison import compare
from tests.contracts.opened_readers import PARTITIONS, READ, opened_reader
from tests.contracts.opened_stores import OnElasticsearch, OnPostgres, OnValkey, RealServer
from tests.contracts.test_expired_rows import ask
from tests.contracts.test_view_stores import arrow
from tests.contracts.view_histories import Put
from tests.support.seeds import seed_of

VIEW = TableView(
    name="by_day",
    key=("group", "due"),
    columns={
        "puts": count(Put),
        "total": add({Put: "small"}),
        "text": last({Put: "text"}),
        "put_at": last({Put: envelope("time")}),
    },
    stores=(Postgres(indexes=(("due",),)), Elasticsearch(), Cache()),
    expires={"due": "30d"},
)
FIRST = date(2026, 1, 1)
LIVE, REBUILT = Target(VIEW, 1), Target(VIEW, 2)


def put(number: int, group: str, due: date, small: int = 1) -> Source:
    nothing = dict.fromkeys(("number", "real", "flag", "at", "tags", "latitude", "longitude", "price", "reference"))
    body = nothing | {"thing_id": f"t{number}", "group": group, "text": f"n{number}", "small": small}
    time = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=number)
    what = Envelope(f"thing/t{number}/1", "thing.put", f"thing/t{number}", time, body | {"due": str(due)}, sequence=1)
    return Source(what, Position(0, number), timestamp_ms(time), encode(what).decode())


class World:
    """A generation in all stores, and the events that it has."""

    def __init__(self, settings: StoreSettings, servers: Mapping[str, RealServer]) -> None:
        self.settings, self.events = settings, list[Source]()
        self.stores = {name: server.open() for name, server in servers.items()}
        for store in self.stores.values():
            store.create(LIVE, {}, dict.fromkeys(range(PARTITIONS), 0))
            store.finish(LIVE)

    def apply(self, events: Sequence[Source], *, only: Sequence[str] = tuple(READ)) -> None:
        self.events += events
        batches = {partition: Batch(next_offset=len(self.events)) for partition in range(PARTITIONS)}
        for source in events:
            for patch in lift(VIEW, source):
                batch = batches[partition_of(patch_key(VIEW.tag, patch.key), PARTITIONS)]
                batch.patches.setdefault(VIEW.tag, []).append(patch)
        for name in only:
            self.stores[name].apply([LIVE], batches)
            self.stores[name].settle(now=True)

    def rebuild(self) -> None:
        for store in self.stores.values():
            store.create(REBUILT, {}, dict.fromkeys(range(PARTITIONS), 0))
            store.bulk_writer(REBUILT).write(iter([arrow(VIEW, states(VIEW, self.events))]))
            store.finish(REBUILT)

    def remove(self, last_day: date) -> int:
        return remove_rows(self.settings, LIVE, last_day, threading.Event())

    def stored(self, store: str) -> set[str]:
        """The keys of the rows that a store has."""
        return {key for key, _ in open_reader(store, self.settings).rows(LIVE)}

    def shown(self, store: str, now: datetime) -> dict[str, Any]:
        """What a reader finds."""
        live = Live(VIEW, LIVE.generation, VIEW.tag, {}, read_at=now)
        keys = list(fold(VIEW, self.events))

        async def read(reader: Any) -> dict[str, Any]:
            return dict(await reader.get_many(live, keys))

        found: dict[str, Any] = ask(lambda: opened_reader(store, self.settings, VIEW), read)
        return found


@pytest.fixture
def world(stack: StackSettings) -> Iterator[World]:
    endpoints, name = stack.endpoints, f"t_{uuid.uuid4().hex[:12]}"
    settings = StoreSettings(name, endpoints.postgres, endpoints.elasticsearch, endpoints.valkey, PARTITIONS)
    with OnPostgres(settings) as postgres, OnElasticsearch(settings) as elasticsearch, OnValkey(settings) as valkey:
        yield World(settings, {"postgres": postgres, "elasticsearch": elasticsearch, "valkey": valkey})


def at(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, 12, tzinfo=UTC)


def key(group: str, day: date) -> str:
    return f"{group}/{day}"


def test_they_go_from_all_stores_in_portions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expired_rows, "ROWS_AT_ONCE", 3)
    days = [FIRST + timedelta(days=number) for number in range(10)]
    world.apply([put(number, group, day) for number, (day, group) in enumerate((d, g) for d in days for g in "ab")])
    assert world.remove(FIRST - timedelta(days=1)) == 0
    assert world.remove(days[6]) == 14
    left = {key(group, day) for day in days[7:] for group in "ab"}
    assert {name: world.stored(name) for name in READ} == dict.fromkeys(READ, left)
    assert world.remove(days[6]) == 0


def test_an_event_that_comes_late_brings_back_nothing(world: World) -> None:
    new = datetime.now(UTC).date()
    old = new - timedelta(days=60)
    world.apply([put(0, "a", old, 5), put(1, "a", new)])
    world.remove(old)
    world.apply([put(2, "a", old, 7), put(3, "a", new)])
    now = datetime.now(UTC)
    for name in READ:
        assert key("a", old) in world.stored(name), "a part of the row is there"
        assert set(world.shown(name, now)) == {key("a", new)}, "which nobody sees"
    world.rebuild()
    for name in READ:
        found = compare(open_reader(name, world.settings), name, LIVE, REBUILT, lambda: frozenset)
        assert (found.rows, found.differences) == (1, 0), name
    assert world.remove(old) == 1
    assert all(world.stored(name) == {key("a", new)} for name in READ)


def test_a_row_that_has_not_expired_and_differs_is_still_found() -> None:
    """By a comparison that leaves out the others: said here with a reader, without a store."""
    today = datetime.now(UTC).date()
    rows = {1: {"a": today, "b": today - timedelta(days=31)}, 2: {"c": today, "d": today - timedelta(days=99)}}

    class Reader:
        def rows(self, target: Target) -> Iterator[tuple[str, dict[str, Any]]]:
            yield from ((name, {"due": str(day)}) for name, day in rows[target.generation].items())

        def rows_of(self, target: Target, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
            return {name: row for name, row in self.rows(target) if name in keys}

        def size(self, target: Target) -> Any:
            raise NotImplementedError

    found = compare(Reader(), "memory", LIVE, REBUILT, lambda: frozenset)
    assert sorted(record.key for record in found.sample) == ["a", "c"]
    ours, theirs = (replace(each, view=VIEW.without_expiry()) for each in (LIVE, REBUILT))
    assert compare(Reader(), "memory", ours, theirs, lambda: frozenset).differences == 4


def test_what_was_killed_in_between_is_done_the_next_time(world: World) -> None:
    world.apply([put(0, "a", FIRST), put(1, "b", FIRST)])
    made = backend("valkey").single_rows
    assert made is not None and made(world.settings).remove(LIVE, [key("a", FIRST), key("x", FIRST)]) == 1
    assert world.remove(FIRST) == 2
    assert not any(world.stored(name) for name in READ)


def test_a_row_that_a_loader_holds_is_left_for_the_next_time(world: World) -> None:
    world.apply([put(0, "a", FIRST), put(1, "b", FIRST)])
    table = f'"{world.settings.environment}"."{table_name(*LIVE.id)}"'
    with psycopg.connect(world.settings.postgres) as connection:
        connection.execute(f"SELECT FROM {table} WHERE key = %s FOR UPDATE", [key("a", FIRST)])
        assert world.remove(FIRST) == 1
        assert world.stored("postgres") == {key("a", FIRST)}
    assert world.remove(FIRST) == 1
    assert world.stored("postgres") == set()


def test_a_store_that_is_away_or_lost_its_rows_is_named(world: World) -> None:
    away = replace(world.settings, valkey="redis://127.0.0.1:1")
    world.apply([put(0, "a", FIRST)])
    with pytest.raises(StoreUnavailable):
        remove_rows(away, LIVE, FIRST, threading.Event())
    assert world.stored("postgres") == {key("a", FIRST)}, "it is found again"
    with pytest.raises(GenerationMissing):
        remove_rows(world.settings, replace(LIVE, generation=9), FIRST, threading.Event())
    only_search = replace(LIVE, view=replace(VIEW, stores=(Elasticsearch(),)), generation=9)
    with pytest.raises(GenerationMissing):
        remove_rows(world.settings, only_search, FIRST, threading.Event())


def test_the_read_side_removes_what_expired_a_day_ago(world: World) -> None:
    today = datetime.now(UTC).date()
    days = {name: today - timedelta(days=each) for name, each in (("a", 29), ("b", 30), ("c", 31), ("d", 32))}
    world.apply([put(number, name, day) for number, (name, day) in enumerate(days.items())])
    stop, turns = threading.Event(), 0

    def targets() -> Sequence[Target]:
        nonlocal turns
        turns += 1
        if turns == 1:
            raise StoreUnavailable("PostgreSQL", "it goes on after this")
        if turns > 2:
            stop.set()
        return [] if stop.is_set() else [replace(LIVE, generation=9), LIVE]

    keep_removing(world.settings, targets, stop, every_s=0.01)
    removed = {name for name, day in days.items() if day <= datetime.now(UTC).date() - timedelta(days=31)}
    assert removed >= {"c", "d"}
    left = {key(name, days[name]) for name in days.keys() - removed}
    assert {name: world.stored(name) for name in READ} == dict.fromkeys(READ, left)
    assert set(world.shown("postgres", datetime.now(UTC))) <= {key("a", days["a"])}


def test_live_rows_are_those_of_a_rebuild_and_of_the_reference_whatever_was_removed(world: World) -> None:
    chance = random.Random(seed_of(0))
    number, day = 0, FIRST
    for _ in range(8):
        events = []
        for _ in range(chance.randrange(1, 30)):
            due = day + timedelta(days=chance.choice([-45, *range(-32, -26), 0, 1]))
            events.append(put(number, chance.choice("abc"), due, chance.randrange(5)))
            number += 1
        world.apply(events)
        day += timedelta(days=chance.choice([0, 1, 2, 15]))
        if chance.random() < 0.8:
            world.remove(day - timedelta(days=30))  # the last day at which it may
        bound = day - timedelta(days=30)
        whole = {name: row for name, row in fold(VIEW, world.events).items() if date.fromisoformat(row["due"]) > bound}
        for name in READ:
            assert world.shown(name, at(day)) == whole, (name, day)
    world.rebuild()
    for name in READ:
        ours, theirs = (dict(open_reader(name, world.settings).rows(each)) for each in (LIVE, REBUILT))
        assert {k: row for k, row in ours.items() if k in whole} == {k: row for k, row in theirs.items() if k in whole}


def test_when_rows_are_removed_is_a_part_of_the_fingerprint() -> None:
    longer, plain = replace(VIEW, expires={"due": "90d"}), replace(VIEW, expires={})
    assert len({each.fingerprint for each in (VIEW, longer, plain)}) == 3
    assert VIEW.fingerprint == replace(VIEW, expires={"due": "720h"}).fingerprint
    by_time = replace(VIEW, expires={"put_at": "30d"})
    assert by_time.fingerprint == plain.fingerprint
    assert by_time.expiry is not None and by_time.expiry.last_removed(datetime.now(UTC)) is None
