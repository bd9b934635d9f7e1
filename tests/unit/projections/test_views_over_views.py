"""Views over rows of other views: they have what a plain model has of these rows, whatever happens to their topic."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import orjson
import pytest

from headwater import (
    EVERY,
    Captured,
    Deleted,
    Postgres,
    Source,
    TableView,
    Topic,
    ViewRow,
    add,
    by_key,
    count,
    current,
    last,
    maximum,
)
from headwater.commands.declaring.row_inputs import RowDeleted
from headwater.commands.reacting.row_changes import PublishedRows
from headwater.eventlog.envelope import partition_of
from headwater.eventlog.heartbeats import heartbeat_key
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry, Record
from headwater.eventlog.settings import LogSettings
from headwater.projections.errors import RebuildFailed, Unloadable, ViewDeclarationError
from headwater.projections.folding import tasks
from headwater.projections.generations.registry.sources import Ends, ends_of, rows_topic, sources
from headwater.projections.generations.upkeep.lag import Lag
from headwater.projections.reading.compiled import compiled
from headwater.projections.reading.fold_records import FoldedView, Folder
from headwater.projections.reading.program import decoders
from headwater.projections.reading.reader import finish, fold, is_deleted, lift
from headwater.projections.registry import ViewRegistry
from headwater.projections.stores.documents import DocumentForm
from headwater.projections.stores.memory import Memory, MemoryStore
from headwater.projections.stores.store import Batch, Target
from headwater.projections.stores.topic.records import PublicRows, check_key, read_public
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import Patch
from headwater.projections.testing.contracts import history
from headwater.projections.testing.rows import rows_of, with_rows
from tests.contracts.view_histories import Put, Removed, Restored, Taken
from tests.contracts.views_over_views import COPIED, FOLLOWED, OVER_VIEWS, PER_DUE, PER_NUMBER, PER_PRICE, Followed
from tests.support.observed import gate_view
from tests.support.personal_visits import visits_at_once
from tests.support.seeds import seed_of, sweep
from tests.support.shares import share_of
from tests.support.topic_records import TopicRecord, patches_in
from tests.unit.projections.test_captured_rows import never
from tests.unit.projections.test_rows_on_disk import Kept

PARTITIONS = 3
TOPIC = Followed.topic()
WHEN = datetime(2026, 1, 1, tzinfo=UTC)
Rows = dict[str, dict[str, Any]]


class PublicTopic:
    """The public topic of FOLLOWED, as its writers make it. known: the last state of each row that it shows."""

    def __init__(self) -> None:
        self.records: list[TopicRecord] = []
        self.known: dict[str, State] = {}
        self._ends = dict.fromkeys(range(PARTITIONS), 0)
        self._public = PublicRows(Target(FOLLOWED, 1))

    def bring_to(self, rows: Mapping[str, State], chance: random.Random) -> None:
        """Write the rows that differ in any order, as after a swap."""
        shown = {key: row for key, row in rows.items() if not is_deleted(row)}
        for key in chance.sample(sorted({*shown, *self.known}), len({*shown, *self.known})):
            if shown.get(key) != self.known.get(key):
                self.write(key, shown.get(key))

    def write(self, key: str, row: State | None) -> None:
        data = None if row is None else self._public.data(key, row)
        value = None if data is None else self._public.value(key, data, 1, WHEN)
        self._append(partition_of(key, PARTITIONS), key, value)
        if row is None:
            self.known.pop(key, None)
        else:
            self.known[key] = row

    def beat(self, partition: int) -> None:
        self._append(partition, heartbeat_key(partition, TOPIC), b"{}")

    def _append(self, partition: int, key: str, value: bytes | None) -> None:
        at = self._ends[partition]
        self.records.append(TopicRecord(f"{TOPIC}/{partition}", at, 0, key.encode(), value))
        self._ends[partition] = at + 1


def random_topic(number: int, length: int = 250) -> tuple[PublicTopic, Rows]:
    """A topic after a random history of the view, and the rows that the view has then: at least four.

    Other generations are shown for a while, rows come again unchanged, and there are heartbeats.
    """
    seed = seed_of(number)
    chance, topic = random.Random(seed), PublicTopic()
    sources = history(FOLLOWED, [Put, Taken, Removed, Restored], seed, length).sources
    found: list[dict[str, State]] = [{}]
    for source in sources:
        rows = {key: dict(row) for key, row in found[-1].items()}
        for patch in lift(FOLLOWED, source):
            FOLLOWED.layout.combine(rows.setdefault(patch.key, {}), patch.fields)
        found.append(rows)
    while sum(not is_deleted(row) for row in found[-1].values()) < 4:
        found.pop()
    for at in range(1, len(found), chance.choice((1, 2, 5))):
        topic.bring_to(found[at], chance)
        match chance.randrange(12):
            case 0:
                topic.bring_to(found[chance.randrange(at)], chance)
            case 1:
                for key in chance.sample(sorted(topic.known), min(3, len(topic.known))):
                    topic.write(key, topic.known[key])
            case 2:
                topic.beat(chance.randrange(PARTITIONS))
    topic.bring_to(found[-1], chance)
    return topic, fold(FOLLOWED, sources[: len(found) - 1])


def compacted(records: Sequence[TopicRecord], chance: random.Random, *, are_read: bool = True) -> list[TopicRecord]:
    """What compaction leaves: the last record of each key, perhaps no tombstones that are read, and some others."""
    last_of = {(record.source, record.key): record for record in records}
    return [
        record
        for record in records
        if (
            last_of[record.source, record.key] is record
            and (record.value is not None or not are_read or chance.random() < 0.5)
        )
        or (last_of[record.source, record.key].value is not None and chance.random() < 0.1)
    ]


def is_beat(record: TopicRecord) -> bool:
    return record.key is not None and record.key.startswith(b"\x1f")


def patches_of(view: TableView, records: Sequence[TopicRecord]) -> list[Patch]:
    return [patch for record in records if not is_beat(record) for patch in patches_in(view, record)]


def model(rows: Rows) -> dict[str, Rows]:
    """What the views over these rows have, in plain Python."""
    due, prices = {}, {}
    for day in {row["due"] for row in rows.values()} - {None}:
        some = [row for row in rows.values() if row["due"] == day]
        of_prices = [Decimal(row["price"]) for row in some if row["price"] is not None]
        totals = [row["total"] or 0 for row in some]
        known = [row["total"] for row in some if row["total"] is not None]
        lefts = [row["total"] - row["highest"] for row in some if None not in (row["total"], row["highest"])]
        times = [row["latest"] for row in some if row["latest"] is not None]
        due[day] = {
            "due": day,
            "things": len(some),
            "total": sum(totals),
            "left": sum(lefts),
            "prices": f"{sum(of_prices, Decimal(0)):.2f}",
            "mean": float(sum(of_prices) / len(of_prices)) if of_prices else None,
            "dearest": f"{max(of_prices):.2f}" if of_prices else None,
            "cheapest": f"{min(of_prices):.2f}" if of_prices else None,
            "latest": max(times, default=None),
            "least": min(known, default=None),
        }
    counted = [row for row in rows.values() if (row["total"] or 0) > 0 and row["price"] is not None]
    for price in {row["price"] for row in counted}:
        things = sum(row["price"] == price for row in counted)
        prices[price] = {"price": price, "things": things, "paid": f"{things * Decimal(price):.2f}"}
    names = ("thing_id", *Followed.columns)
    copied = {key: {name: row[name] for name in names} for key, row in rows.items()}
    for row in copied.values():  # a place is an object of JSON
        row["place"] = None if row["place"] is None else orjson.dumps(row["place"]).decode()
    return {"per_due": due, "per_price": prices, "copied": copied}


def same(found: Rows, expected: Rows) -> bool:
    """Means are quotients of floats, which Decimal rounds otherwise."""

    def plain(rows: Rows) -> Rows:
        return {
            key: row | ({"mean": pytest.approx(row["mean"])} if row.get("mean") else {}) for key, row in rows.items()
        }

    assert found == plain(expected)
    return True


of_views = pytest.mark.parametrize("view", OVER_VIEWS.values(), ids=list(OVER_VIEWS))


@of_views
@pytest.mark.parametrize("number", sweep(4, 2))
def test_live_rows_are_those_of_the_model_although_the_topic_is_compacted_and_read_again(
    number: int, view: TableView
) -> None:
    topic, rows = random_topic(number)
    chance, target, memory = random.Random(seed_of(number)), Target(view, 1), Memory()
    store = MemoryStore(memory)
    store.create(target, {}, {0: 0})
    at, sent = 0, 0
    while at < len(topic.records):
        end = min(len(topic.records), at + chance.randrange(1, 80))
        # whoever reads on begins at an earlier place, of which compaction has left less
        again = compacted(topic.records[:at], chance)[-chance.choice((1, 40)) :] if chance.random() < 0.4 else []
        new = topic.records[at:end]
        left = [*again, *(new if chance.random() < 0.5 else compacted(new, chance, are_read=False))]
        sent += 1
        in_order = sorted(left, key=lambda record: (record.source, record.offset))
        store.apply([target], {0: Batch(sent, {target.tag: patches_of(view, in_order)})})
        at = end
    same(store.rows(target), model(rows)[view.name])


@of_views
@pytest.mark.parametrize("number", sweep(3, 1))
def test_bulk_has_the_rows_of_the_model(number: int, view: TableView) -> None:
    topic, rows = random_topic(number)
    left, program = compacted(topic.records, random.Random(seed_of(number))), compiled(view)
    shares = []
    for partition in range(PARTITIONS):
        folder = Folder(FoldedView, decoders([view]), [program])
        for record in left:
            if record.source == f"{TOPIC}/{partition}":
                folder.add(record.source, [record.message])
        shares.append(share_of([folder.views[0].drain()], 4))
        read = sum(record.source == f"{TOPIC}/{partition}" and not is_beat(record) for record in left)
        assert folder.events[f"{TOPIC}/{partition}"] == read, "heartbeats are no rows"
    (pieces,) = tasks.groups(shares, 0, program, 1)
    writer = Kept(DocumentForm.of(view))
    tasks.write(program, [writer], pieces)
    same({key: finish(view, key, row) for key, row in writer.rows if not is_deleted(row)}, model(rows)[view.name])


def test_rows_that_are_as_declared_are_not_read_by_the_slow_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Folder, "_read_alone", never)
    topic, _ = random_topic(0)
    folder = Folder(FoldedView, decoders([PER_DUE]), [compiled(PER_DUE)])
    for record in topic.records:
        if record.value is not None:
            folder.add(record.source, [record.message])
    assert folder.views[0].made


def test_a_chain_of_three_is_that_of_the_model() -> None:
    sources = history(FOLLOWED, [Put, Taken, Removed, Restored], seed_of(1), 600).sources
    views = {view.name: view for view in (FOLLOWED, PER_DUE)}
    several = False
    for end in range(20, len(sources), 20):
        expected: dict[str, list[Any]] = {}
        for row in model(fold(FOLLOWED, sources[:end]))["per_due"].values():
            held = expected.setdefault(str(row["things"]), [0, Decimal(0)])
            held[0], held[1] = held[0] + 1, held[1] + Decimal(row["prices"])
        found = fold(PER_NUMBER, with_rows(PER_NUMBER, views, sources[:end]))
        assert {key: [row["days"], Decimal(row["prices"])] for key, row in found.items()} == expected
        several = several or len(expected) > 1
    assert several


def test_the_test_kit_has_rows_of_other_views() -> None:
    usual = {name: None for name in Put.model_fields} | {"thing_id": "1", "group": "g", "small": 4}
    given = (
        Put.model_validate({**usual, "price": Decimal("1.50"), "due": "2026-03-01"}, strict=False),
        Put.model_validate({**usual, "thing_id": "2", "price": Decimal("2.50"), "due": "2026-03-01"}, strict=False),
        Put.model_validate({**usual, "price": Decimal(7), "due": "2026-03-02"}, strict=False),
    )
    rows = rows_of(PER_DUE, *given, others=(FOLLOWED,))
    assert {key: (row["things"], row["prices"]) for key, row in rows.items()} == {
        "2026-03-01": (1, "2.50"),
        "2026-03-02": (1, "7.00"),
    }
    assert rows_of(PER_NUMBER, *given, others=(FOLLOWED, PER_DUE))["1"]["days"] == 2
    with pytest.raises(ValueError, match=r'reads rows of the view "followed": give it too, in others='):
        rows_of(PER_DUE, *given)
    with pytest.raises(ValueError, match="instead of its rows"):
        rows_of(PER_DUE, RowDeleted(Followed, "1"), others=(FOLLOWED,))


STORES = (Postgres(),)


class City(ViewRow, view="followed"):
    text: str


class Client(Captured, table="public.clients_of_views", key="id"):
    id: int
    text: str


Source(name="clients_of_views", tables=(Client,))


def declared(**changes: Any) -> TableView:
    return TableView(**{"name": "wrong", "key": "due", "columns": {"a": count(Followed)}, "stores": STORES, **changes})


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"columns": {"a": count(Followed), "b": current(Followed, "text")}}, "rows of the view Followed, and also"),
        ({"columns": {"a": count(Followed), "b": count(EVERY)}}, "declare two views"),
        ({"columns": {"a": last({Followed: "text"})}}, "is a class of rows of a view"),  # type: ignore[dict-item]
        ({"columns": {"a": count(Followed), "b": count(City)}, "key": "text"}, "by the classes City and Followed"),
        ({"columns": {"a": current(Followed, "owner")}}, 'the view "followed" has no column "owner"'),
        ({"columns": {"a": count(EVERY), "b": current(Followed, "text")}}, "EVERY beside rows of the view Followed"),
        ({"key": "latest"}, "group by a column of texts, integers, booleans, decimals or days"),
        ({"key": {Followed: "due"}}, "have their own key"),
        ({"columns": {"a": add({Followed: "text"})}}, "only sums of integers and decimals"),
        ({"columns": {"a": count(ViewRow)}}, "is no class of events with a type"),
        ({"columns": {"a": current(ViewRow, "text")}}, "is no ViewRow and no captured table"),
        ({"deleted_by": (Deleted(Followed),)}, "leave out deleted_by"),
        ({"columns": {"a": count(by_key(Followed, "due"))}}, "a change of a row of a view changes one row only"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_made_of_rows_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ViewDeclarationError, match=problem):
        declared(**changes)


def registry(*views: Any) -> ViewRegistry:
    return ViewRegistry([("somewhere", view) for view in views])


class Looping(ViewRow, view="loop_a"):
    a: int


class LoopingBack(ViewRow, view="loop_b"):
    a: int


class OwnRows(ViewRow, view="own"):
    a: int


class Total(ViewRow, view="followed"):
    total: int
    text: bool


class Visit(ViewRow, view="visits_at_once"):
    name: str


def over(name: str, table: type[ViewRow], key: str = "a") -> TableView:
    return TableView(name, "x", {"a": current(table, key)}, (Postgres(), Topic()))


def wrong_registries() -> Iterator[tuple[list[Any], str]]:
    yield [PER_DUE], 'view "per_due": reads rows of the view "followed", which this deployment does not have'
    yield [PER_DUE, replace(FOLLOWED, stores=STORES)], r"has no topic: add Topic\(\) to its stores"
    yield [replace(over("x", Total, "total")), FOLLOWED], 'column "text" is TEXT: declare it'
    yield [PER_DUE, FOLLOWED, over("x", City, "text")], 'by the class "City", and "per_due" by "Followed"'
    yield [over("x", Visit, "name"), visits_at_once], 'column "name" has ciphertexts, which would be taken for values'
    yield [over("own", OwnRows)], 'view "own": reads rows of "own": a view cannot be made from its own rows'
    yield (
        [over("loop_a", LoopingBack), over("loop_b", Looping)],
        'reads rows of "loop_b", which reads those of "loop_a"',
    )


@pytest.mark.parametrize(("views", "problem"), list(wrong_registries()))
def test_a_deployment_does_not_start_with_views_over_what_is_not_there(views: list[Any], problem: str) -> None:
    with pytest.raises(ViewDeclarationError, match=problem):
        registry(*views)


def test_a_deployment_with_chains_knows_their_topics() -> None:
    found = registry(PER_NUMBER, PER_DUE, PER_PRICE, COPIED, FOLLOWED)
    assert sorted(found.row_views) == ["views.followed", "views.per_due"]
    assert found.tables == []


def test_a_row_that_looks_like_a_heartbeat_is_refused_and_one_that_does_not_is_a_row() -> None:
    with pytest.raises(Unloadable, match="heartbeats"):
        check_key(heartbeat_key(1, TOPIC))
    check_key(heartbeat_key(1))


def lag(view: str, standing: Any, freshness_s: float | None) -> Lag:
    return Lag(view, "topic", 1, 1, standing, {}, freshness_s=freshness_s)


def test_a_view_is_as_old_as_the_rows_that_it_reads() -> None:
    outer = lag("per_due", "caught up", 0.0)
    assert outer.over([]) == outer
    assert outer.over([lag("followed", "behind", 4.0)]).freshness_s == 4.0
    assert lag("per_due", "behind", 9.0).over([lag("followed", "behind", 4.0)]).freshness_s == 9.0
    paused = outer.over([lag("followed", "paused", 70.0)])
    assert (paused.freshness_s, paused.problem) == (70.0, 'it reads rows of "followed", which is paused in its topic')
    unknown = outer.over([lag("followed", "not built", None)])
    assert unknown.freshness_s is None, "nobody knows"
    assert [each.read_freshness_s for each in (outer, paused, unknown)] == [0.0] * 3, "it has read all deletions"
    assert paused.to_json().keys() == outer.to_json().keys()
    assert "topic_freshness_s" not in paused.to_json()


def test_the_topic_of_a_view_has_as_many_partitions_as_patches() -> None:
    settings = LogSettings(partitions=2, patch_partitions=3)
    assert sources([PER_DUE], settings) == ["0", "1", *(f"views.followed/{number}" for number in range(3))]
    assert [rows_topic(each, settings).partitions for each in (Followed, Client)] == [3, 2]


def test_a_topic_that_is_not_there_yet_is_named_and_no_end_of_it_is_asked_for() -> None:
    settings, log = LogSettings(partitions=2, patch_partitions=3), MemoryLog(2)
    with pytest.raises(RebuildFailed, match=r'there is no topic "views.followed": start `headwater projections`'):
        Ends(log, settings).noted(PER_DUE)
    assert ends_of(log, sources([PER_DUE], settings)) == {
        "0": 0, "1": 0, "views.followed/0": 0, "views.followed/1": 0, "views.followed/2": 0,
    }  # fmt: skip
    for partition in range(3):
        log.submit(Entry(TOPIC, "a", b"{}", 0), partition).result()
    assert Ends(log, settings).noted(PER_DUE).bulk_ends["views.followed/2"] == 1


def test_heartbeats_are_no_rows_to_processes() -> None:
    beat = Record(TOPIC, 1, 0, heartbeat_key(1, TOPIC), b"{}", 0)
    assert PublishedRows().read(beat) is None
    value = PublicRows(Target(FOLLOWED, 1)).value("heartbeat/1", {"total": 1}, 1, WHEN)
    row = PublishedRows().read(Record(TOPIC, 1, 1, "heartbeat/1", value, 0))
    assert row is not None
    assert row.key == "heartbeat/1"


def test_a_swap_leaves_heartbeats_alone() -> None:
    """The writer deletes what is in the public topic and is no row of the new generation."""
    log = MemoryLog(PARTITIONS)
    for key in ("a", heartbeat_key(1, TOPIC), heartbeat_key(1)):
        log.submit(Entry(TOPIC, key, b"{}", 0), 1).result()
    assert [key for key, _ in read_public(log, FOLLOWED.name, 1)] == ["a", "heartbeat/1"]


class Minute(ViewRow, view="gates"):
    gate: str
    minute: datetime
    number: int | None


def test_rows_of_stream_views_are_counted_likewise() -> None:
    gates = gate_view(stores=(Postgres(), Topic()))
    per_gate = TableView(
        "per_gate",
        "gate",
        {"minutes": count(Minute), "number": add({Minute: "number"}), "last": maximum({Minute: "minute"})},
        (Postgres(),),
    )
    assert registry(per_gate, gates).row_views == ["views.gates"]
    rows: dict[str, State] = {}
    public = PublicRows(Target(gates, 1))
    given = [("a", 1, 5), ("a", 2, 7), ("b/c", 1, None), ("a", 2, 9), ("a", 1, None)]
    for at, (gate, minute, number) in enumerate(given):
        time = f"2026-03-01T12:{minute:02}:00.000Z"
        key = f"{gate.replace('/', '%2F')}/{time}"
        data = public.data(key, {"gate": gate, "minute": time, "number": number, "weight": 1})
        assert data is not None
        value = public.value(key, data, at, WHEN) if at < 4 else None  # the last one is a deletion
        record = TopicRecord("views.gates/0", at, 0, key.encode(), value)
        for patch in per_gate.layout.with_groups(patches_in(per_gate, record), rows):
            per_gate.layout.combine(rows.setdefault(patch.key, {}), patch.fields)
    assert {key: finish(per_gate, key, row) for key, row in rows.items() if not is_deleted(row)} == {
        "a": {"gate": "a", "minutes": 1, "number": 9, "last": "2026-03-01T12:02:00.000Z"},
        "b/c": {"gate": "b/c", "minutes": 1, "number": 0, "last": "2026-03-01T12:01:00.000Z"},
    }
