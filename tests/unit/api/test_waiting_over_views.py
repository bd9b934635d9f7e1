"""Waiting for events in views over other views, with the log and the stores in memory."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime
from typing import Any

import pytest

from headwater.api.errors import NotCaughtUp, ViewPaused
from headwater.api.reads.log import TopicLedgers
from headwater.api.waiting import captured as captured_waiting
from headwater.api.waiting.awaited import After
from headwater.api.waiting.captured import CapturedReader
from headwater.api.waiting.waiter import Waiter
from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.view_rows import ViewRow
from headwater.eventlog.envelope import Position
from headwater.eventlog.heartbeats import heartbeat_key
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry
from headwater.projections.stores.declared import Postgres, Topic
from headwater.projections.stores.names import patch_partition
from headwater.projections.stores.store import LAST_NUMBER, Ledger
from headwater.projections.stores.topic.records import LEDGER, PUBLISHED, Progress, progress_to_json
from headwater.projections.stream.sources import INTEGER, TEXT, events
from headwater.projections.stream.view import StreamView
from headwater.projections.table.folds import add, count, current, last
from headwater.projections.table.patch import Place, contribution_key
from headwater.projections.table.rows import Deleted
from headwater.projections.table.view import TableView
from headwater.projections.view import View
from tests.support.seeds import examples, seed_of
from tests.unit.api.fake_service import PARTITIONS, FakeEvents, FakeGenerations, MemoryReader, event


class Opened(Event, type="account.opened"):
    account_id: str
    owner: str


class Renamed(Event, type="owner.renamed"):
    owner: str
    name: str


class AccountRow(ViewRow, view="accounts"):
    owner: str | None


class OwnerRow(ViewRow, view="owners"):
    accounts: int | None


accounts = TableView(
    name="accounts", key="account_id", columns={"owner": last({Opened: "owner"})}, stores=(Postgres(), Topic())
)
copied = TableView(
    name="copied",
    key="account_id",
    columns={"owner": current(AccountRow, "owner")},
    deleted_by=(Deleted(AccountRow),),
    stores=(Postgres(),),
)
owners = TableView(name="owners", key="owner", columns={"accounts": count(AccountRow)}, stores=(Postgres(), Topic()))
sizes = TableView(name="sizes", key="accounts", columns={"owners": add({OwnerRow: 1})}, stores=(Postgres(),))


def opened_per_owner(opened: Any) -> Any:
    return opened.groupBy("owner").count()


hours = StreamView(
    name="hours",
    key="owner",
    columns={"owner": TEXT, "opened": INTEGER},
    sources={"opened": events(Opened, late_after="1h")},
    query=opened_per_owner,
    stores=(Postgres(), Topic()),
)


class HourRow(ViewRow, view="hours"):
    opened: int | None


busiest = TableView(name="busiest", key="opened", columns={"owners": count(HourRow)}, stores=(Postgres(),))
renames = TableView(
    name="renames", key="owner", columns={"name": last({Renamed: "name"})}, stores=(Postgres(), Topic())
)


class NameRow(ViewRow, view="renames"):
    owner: str | None


known = TableView(
    name="known", key="owner", columns={"rows": count(AccountRow, NameRow)}, stores=(Postgres(),), key_name="owner"
)
VIEWS: dict[str, View] = {view.name: view for view in (accounts, copied, owners, sizes, hours, busiest, renames, known)}


class World:
    """A log, and a store whose ledgers a test sets."""

    def __init__(self) -> None:
        self.log, self.reader = MemoryLog(PARTITIONS), MemoryReader("postgres")
        self.events, self.generations = FakeEvents(), FakeGenerations()
        self.publications: dict[str, int] = {}

    def lacks(self, view: View, token: str) -> str | None:
        """The view that a request for rows of `view` would wait for; None if it is answered at once."""

        async def wait() -> None:
            captured, topics = CapturedReader(self.log, {}, threads=1), TopicLedgers(self.log, PARTITIONS, threads=1)
            waiter = Waiter(self.events, captured, self.generations, topics, VIEWS, PARTITIONS, PARTITIONS)
            try:
                await waiter.wait(view, self.reader, After(token, 0))
            finally:
                captured.close()
                topics.close()

        try:
            asyncio.run(wait())
        except NotCaughtUp as error:
            return error.view
        return None

    def opened(self, account: str, position: Position) -> str:
        self.events.events[position] = event(f"account/{account}", 1, "account.opened", account_id=account, owner="Ada")
        return str(position)

    def publish(self, view: View, generation: int = 1) -> None:
        entry = Entry(PUBLISHED, view.name, str(generation).encode(), 0)
        self.publications[view.name] = self.log.submit(entry, 0).result()

    def note(self, view: View, partition: int, applied: dict[str, int], *, shown: bool = True) -> None:
        """The ledger in the topic of the view's generation; shown: whether its public topic has these rows."""
        places = {source: Place(offset, LAST_NUMBER) for source, offset in applied.items()}
        progress = Progress(Ledger(0, places), 0, self.publications[view.name] if shown else -1)
        self.log.submit(Entry(f"views.{view.name}.g1", LEDGER, progress_to_json(progress), 0), partition)

    def show(self, view: View, key: str) -> tuple[str, int]:
        """A row in the public topic; returns its source and offset."""
        partition = partition_of(view, key)
        topic = f"views.{view.name}"
        return f"{topic}/{partition}", self.log.submit(Entry(topic, key, b"{}", 0), partition).result()

    def beat(self, view: View, partition: int) -> int:
        topic = f"views.{view.name}"
        return self.log.submit(Entry(topic, heartbeat_key(partition, topic), b"{}", 0), partition).result()


def partition_of(view: View, key: str) -> int:
    return patch_partition(view, view.tag, key, PARTITIONS)


@pytest.fixture
def world() -> World:
    made = World()
    for view in (accounts, owners):
        made.publish(view)
    return made


def test_the_inner_topic_is_awaited_and_then_what_it_has(world: World) -> None:
    token, partition = world.opened("A", Position(2, 7)), partition_of(accounts, "A")
    assert world.lacks(copied, token) == "accounts", "nobody has written a ledger"
    world.note(accounts, partition, {"2": 6})
    assert world.lacks(copied, token) == "accounts"
    source, offset = world.show(accounts, "A")
    world.note(accounts, partition, {"2": 7})
    assert world.lacks(copied, token) == "copied"
    world.reader.applied = {partition_of(copied, "A"): {source: offset}}
    assert world.lacks(copied, token) is None


def test_a_row_that_did_not_change_is_not_waited_for(world: World) -> None:
    token = world.opened("A", Position(2, 7))
    world.note(accounts, partition_of(accounts, "A"), {"2": 7})
    assert world.lacks(copied, token) is None, "nothing was written to the public topic"


def test_only_the_generation_that_is_shown_counts(world: World) -> None:
    token, partition = world.opened("A", Position(2, 7)), partition_of(accounts, "A")
    world.note(accounts, partition, {"2": 7}, shown=False)
    assert world.lacks(copied, token) == "accounts", "it is built, and its rows are not in the public topic yet"
    world.note(accounts, partition, {"2": 7})
    assert world.lacks(copied, token) is None
    world.publish(accounts, 2)
    assert world.lacks(copied, token) == "accounts", "another one is shown than the live one"
    world.publish(accounts, 1)
    assert world.lacks(copied, token) == "accounts", "it is shown again, from a later moment on"
    world.note(accounts, partition, {"2": 7})
    assert world.lacks(copied, token) is None


def test_what_bulk_has_read_is_not_in_the_public_topic_yet(world: World) -> None:
    world.generations.base = {"2": 100}
    token = world.opened("A", Position(2, 7))
    assert world.lacks(copied, token) == "accounts"


def test_every_view_of_a_chain_is_awaited(world: World) -> None:
    token = world.opened("A", Position(2, 7))
    rows, offset = world.show(accounts, "A")
    world.note(accounts, partition_of(accounts, "A"), {"2": 7})
    assert world.lacks(sizes, token) == "owners"
    counted = partition_of(owners, contribution_key("views.accounts", "A"))
    groups, change = world.show(owners, "Ada")
    world.note(owners, counted, {rows: offset})
    assert world.lacks(sizes, token) == "sizes"
    world.reader.applied = {partition_of(sizes, contribution_key("views.owners", "Ada")): {groups: change}}
    assert world.lacks(sizes, token) is None


def test_every_view_that_is_read_is_awaited_for_each_of_several_positions(world: World) -> None:
    tokens = [world.opened("A", Position(2, 7)), "1:4"]
    renamed = event("owner/Ada", 1, "owner.renamed", owner="Ada", name="B")
    world.events.events[Position(1, 4)] = renamed
    world.publish(renames)
    world.note(accounts, partition_of(accounts, "A"), {"2": 7})
    assert world.lacks(known, ",".join(tokens)) == "renames"
    source, offset = world.show(renames, "Ada")
    world.note(renames, partition_of(renames, "Ada"), {"1": 4})
    assert world.lacks(known, ",".join(tokens)) == "known"
    assert world.lacks(known, tokens[0]) is None, "which the other view does not read"
    world.reader.applied = {partition_of(known, contribution_key("views.renames", "Ada")): {source: offset}}
    assert world.lacks(known, ",".join(tokens)) is None


def test_a_stream_view_that_is_read_must_have_read_the_event_in_every_partition(world: World) -> None:
    """Which of its rows an event changes is known to its query only."""
    token = world.opened("A", Position(2, 7))
    world.publish(hours)
    for partition in range(PARTITIONS):
        assert world.lacks(busiest, token) == "hours"
        world.note(hours, partition, {"2": 7})
    assert world.lacks(busiest, token) is None
    source, offset = world.show(hours, "Ada")
    assert world.lacks(busiest, token) == "busiest"
    world.reader.applied = {partition_of(busiest, contribution_key("views.hours", "Ada")): {source: offset}}
    assert world.lacks(busiest, token) is None


def test_a_position_that_changes_no_row_below_counts_as_applied(world: World) -> None:
    world.show(accounts, "A")
    assert world.lacks(copied, "observations/0:1") is None
    position = Position(1, 1)
    world.events.events[position] = event("owner/Ada", 1, "owner.renamed", owner="Ada", name="B")
    assert world.lacks(copied, str(position)) is None


def test_an_event_that_cannot_be_read_is_awaited_in_all_partitions(world: World) -> None:
    for partition in range(PARTITIONS):
        assert world.lacks(copied, "1:1") == "accounts"
        world.note(accounts, partition, {"1": 1})
    world.reader.applied = {number: {"1": 1} for number in range(PARTITIONS)}
    assert world.lacks(copied, "1:1") is None
    world.show(accounts, "A")
    assert world.lacks(copied, "1:1") == "copied", "it may have been this row"


def test_a_paused_inner_view_is_answered_at_once(world: World) -> None:
    token = world.opened("A", Position(2, 7))
    world.generations.paused = {"accounts": datetime(2026, 1, 1, tzinfo=UTC)}
    with pytest.raises(ViewPaused, match='view "accounts" has been paused'):
        world.lacks(copied, token)


def test_it_waits_exactly_as_long_as_a_row_may_be_missing() -> None:
    """Random rows, heartbeats and ledgers, against what is plainly missing."""
    for seed in range(examples(60)):
        with pytest.MonkeyPatch.context() as patch:
            wait_for_rows(seed, patch)


def wait_for_rows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed_of(seed))
    if rng.random() < 0.2:
        monkeypatch.setattr(captured_waiting, "MAX_ROWS", 2)
    world, names = World(), [f"a{number}" for number in range(8)]
    name, offset = rng.choice(names), rng.randrange(3, 20)
    token = world.opened(name, Position(2, offset))
    shown, is_published = rng.random() < 0.8, rng.random() < 0.9
    world.publish(accounts, 1 if is_published else 2)
    ledgers = {number: rng.randrange(offset - 2, offset + 3) for number in range(PARTITIONS)}
    for partition, applied in ledgers.items():
        world.note(accounts, partition, {"2": applied}, shown=shown)
    is_shown = shown and is_published and ledgers[partition_of(accounts, name)] >= offset

    last_of: dict[tuple[str, str], int] = {}
    for _ in range(rng.randrange(20)):
        row = rng.choice(names)
        source, at = world.show(accounts, row)
        last_of[source, row] = at
        if rng.random() < 0.3:
            world.beat(accounts, rng.randrange(PARTITIONS))
    sources = {source for source, _ in last_of}
    ahead = rng.random() < 0.5  # what a store has is a part of each source, often all of it
    world.reader.applied = {
        partition: {source: 99 if ahead or rng.random() < 0.7 else rng.randrange(8) for source in sources}
        for partition in range(PARTITIONS)
    }
    lacks_rows = any(
        world.reader.applied[partition_of(copied, row)][source] < at  # type: ignore[operator]
        for (source, row), at in last_of.items()
    )
    assert world.lacks(copied, token) == ("accounts" if not is_shown else "copied" if lacks_rows else None)
