"""Rankings in Valkey are the sorted queries of PostgreSQL and of memory, whatever happens to rows and to writers."""

from __future__ import annotations

import asyncio
import pickle
import random
import threading
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import orjson
import pytest
import valkey

from headwater import INTEGER, TEXT
from headwater.api.reading import Finder, Live, NotRanked, Page
from headwater.api.reads.postgres import Database, PostgresReader
from headwater.api.reads.valkey import ValkeyReader, ranking_for
from headwater.api.requests.filters import Filter
from headwater.api.requests.query import Query, read_query
from headwater.commands.declaring.filled_fields import Claim
from headwater.compose.settings import StackSettings
from headwater.eventlog.envelope import Envelope, Position, encode, partition_of, timestamp_ms
from headwater.projections.errors import Unloadable
from headwater.projections.reading.reader import fold, lift, states
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.declared import Cache, Postgres, Ranking
from headwater.projections.stores.names import cache_ranking, patch_key
from headwater.projections.stores.open import open_reader
from headwater.projections.stores.store import Batch, Target
from headwater.projections.stores.valkey.rankings import ValkeyRankings, ranked_of, row_of
from headwater.projections.stream.view import BATCH
from headwater.projections.table.expressions import Source
from headwater.projections.table.folds import add, average, last
from headwater.projections.table.layout import DELETED
from headwater.projections.table.patch import BATCHES, Patch, Place
from headwater.projections.table.view import TableView
from headwater.projections.testing.contracts import PARTITIONS, Emission, History, load
from headwater.projections.view import View
from headwater.replay.comparison import compare
from tests.contracts.opened_stores import OnPostgres, OnValkey
from tests.contracts.test_view_stores import START, arrow, crashed_at, order_of
from tests.contracts.view_histories import Put, Removed, Restored
from tests.support.observed import gate_view
from tests.unit.api.fake_service import MemoryReader

Answer = TypeVar("Answer")

RANKINGS = (
    Ranking("-number"),
    Ranking("number"),
    Ranking("-real"),
    Ranking("at"),
    Ranking("-at", within=("text",)),
    Ranking("-mean", within=("flag",)),
    Ranking("-total", within=("text", "flag")),
    Ranking("total", within=("at",)),
    Ranking("-total", within=("number",)),
)
VIEW = TableView(
    name="ranked",
    key="thing_id",
    columns={name: last({Put: name}) for name in ("number", "real", "at", "flag")}
    | {"text": last({Put: "text", Restored: "text"}), "total": add({Put: "small"}), "mean": average({Put: "small"})},
    deleted_by=(Removed,),
    restored_by=(Restored,),
    stores=(Postgres(), Cache(rankings=RANKINGS)),
)
LIVE = Live(VIEW, 1, VIEW.tag, {})
TARGET = Target(VIEW, 1)
NASTY = (
    "",
    "a",
    "A",
    "ab",
    "a/b",
    "a:b",
    "a%2Fb",
    "ä",
    "日本",
    "😀",
    "\uffff",
    'say "no"',
    "*?[a]",
    "x" * 600,
    "\t",
    "0",
)
KEYS = (*NASTY, *(f"k{number}" for number in range(24)))
VALUES: Mapping[str, Sequence[Any]] = {
    "number": (
        0,
        1,
        -1,
        2**53 - 1,
        2**53,
        2**53 + 1,
        -(2**53),
        -(2**53) - 1,
        2**63 - 1,
        2**63 - 2,
        -(2**63),
        -(2**63) + 1,
        None,
    ),
    "small": (0, 1, -1, 2**53, -(2**53)),
    "real": (0.0, -0.0, 1.5, -1.5, 1e300, -1e300, 5e-324, 2.0**53 + 2, None),
    "at": ("1969-12-31T23:59:59.999Z", "2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00.001Z", None),
    "flag": (True, False, None),
    "text": ("", "a", "a:b", 'a"]b', "ü", "*", "x" * 2_000, None),
}
BETWEEN = {"at": ("2025-06-01T00:00:00.500Z",), "real": (0.5, 1e301), "number": (5, 2**60)}
"""Values that no row has."""
MOMENTS = ("rows read", "rows written", "ledger written")


def happened(seed: int, length: int = 200) -> History:
    """A random history of rows with equal values and extreme ones, that come, move and go; and its patches."""
    chance, found = random.Random(seed), History(VIEW, [])
    for offset in range(length):
        key, time = chance.choice(KEYS), datetime(2026, 1, 1, tzinfo=UTC)
        kind = chance.choices((Put, Removed, Restored), (8, 1, 1))[0]
        drawn = {name: chance.choice(values) for name, values in VALUES.items()}
        drawn["text"] = drawn["text"] if kind is Put else "back"
        data = {name: drawn.get(name) for name in kind.model_fields} | {"thing_id": key, "group": "g"}
        event = Envelope(f"thing/{offset}", kind.type, f"thing/{key}", time, data, sequence=offset + 1)
        source = Source(event, Position(0, offset), timestamp_ms(time), encode(event).decode())
        found.sources.append(source)
        for patch in lift(VIEW, source):
            sent = Emission(VIEW.tag, patch._replace(fields=orjson.loads(orjson.dumps(patch.fields))))
            found.patches[partition_of(patch_key(VIEW.tag, patch.key), PARTITIONS)].append(sent)
    return found


@pytest.fixture
def settings(stack: StackSettings) -> StoreSettings:
    at = stack.endpoints
    return StoreSettings(f"t_{uuid.uuid4().hex[:12]}", at.postgres, at.elasticsearch, at.valkey, PARTITIONS)


@pytest.fixture
def cache(settings: StoreSettings) -> Iterator[OnValkey]:
    with OnValkey(settings) as server:
        store = server.open()
        store.create(TARGET, {}, START)
        store.finish(TARGET)
        yield server


@pytest.fixture
def database(settings: StoreSettings) -> Iterator[OnPostgres]:
    with OnPostgres(settings) as server:
        store = server.open()
        store.create(TARGET, {}, START)
        store.finish(TARGET)
        yield server


def in_memory(rows: Mapping[str, Mapping[str, Any]]) -> MemoryReader:
    return MemoryReader("memory", rows={VIEW.name: {key: dict(row) for key, row in rows.items()}})


def reading(settings: StoreSettings, ask: Callable[[ValkeyReader, PostgresReader], Awaitable[Answer]]) -> Answer:
    """The answer of something that reads both stores."""

    async def asking() -> Answer:
        async with AsyncExitStack() as stack:
            database = Database(settings.postgres, settings.environment)
            await database.open()
            stack.push_async_callback(database.close)
            cached = ValkeyReader(settings.valkey, settings.environment)
            stack.push_async_callback(cached.close)
            return await ask(cached, PostgresReader(database, settings.environment))

    return asyncio.run(asking())


def test_a_ranking_answers_a_reader_only_if_it_is_of_the_readers_rows(settings: StoreSettings, cache: OnValkey) -> None:
    texts = {"a": "x", "b": "y", "c": "x"}
    sources = []
    for number, (key, text) in enumerate(texts.items()):
        nothing = dict.fromkeys(("real", "tags", "latitude", "longitude", "flag"))
        body = {"thing_id": key, "group": "g", "small": 1, "text": text, "number": number, "at": None, **nothing}
        body["at"] = "2026-01-01T00:00:00Z"
        time = datetime(2026, 1, 1, tzinfo=UTC)
        event = Envelope(f"thing/{key}/1", "thing.put", f"thing/{key}", time, body, sequence=1)
        sources.append(Source(event, Position(0, number), timestamp_ms(time), encode(event).decode()))
    batches = {partition: Batch(next_offset=len(sources)) for partition in range(PARTITIONS)}
    for source in sources:
        for patch in lift(VIEW, source):
            batch = batches[partition_of(patch_key(VIEW.tag, patch.key), PARTITIONS)]
            batch.patches.setdefault(VIEW.tag, []).append(patch)
    cache.open().apply([TARGET], batches)
    own = replace(LIVE, view=replace(VIEW, readable_by={"text": Claim("sub")}))

    async def read(cached: ValkeyReader, _: PostgresReader) -> None:
        live = own.readable_by((Filter("text", "in", ("x",)),))
        query = read_query(VIEW, [("sort", "-at"), ("count", "true")])
        page = await cached.find(live, query)
        assert ([row["thing_id"] for row in page.rows], page.total) == (["a", "c"], 2)
        for other in ([("sort", "-number")], [("sort", "-at"), ("text", "y")], [("sort", "at")]):
            with pytest.raises(NotRanked):
                await cached.find(live, read_query(VIEW, other))
        with pytest.raises(NotRanked):
            await cached.find(own, query)

    reading(settings, read)


def sets(server: OnValkey) -> dict[str, list[tuple[bytes, float]]]:
    """All that is in sorted sets, by ranking and group."""
    prefix = f"{server.settings.environment}:{VIEW.name}:g1.ranking:"
    with valkey.Valkey.from_url(server.settings.valkey) as client:
        names: Any = client.scan_iter(match=f"{prefix}*", count=1000)
        entries: dict[str, Any] = {
            name.decode().removeprefix(prefix): client.zrange(name, 0, -1, withscores=True) for name in set(names)
        }
    return entries


def queries(rows: Mapping[str, Mapping[str, Any]], limit: int) -> list[Query]:
    """A query for each ranking and each group that has rows, and for a group that has none."""
    found = []
    for ranking in RANKINGS:
        groups = {tuple(row[name] for name in ranking.within) for row in rows.values()}
        groups = {group for group in groups if None not in group}
        if ranking.within == ("text",):
            groups.add(("nobody has this",))
        for group in groups:
            filters = [(name, _text(value)) for name, value in zip(ranking.within, group, strict=True)]
            found.append(read_query(VIEW, [*filters, ("sort", ranking.sort), ("limit", str(limit)), ("count", "true")]))
            assert ranking_for(VIEW, found[-1]) is not None
    return found


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


async def every_page(reader: Finder, query: Query) -> list[tuple[Any, ...]]:
    pages = [await reader.find(LIVE, query)]
    while (place := pages[-1].last) is not None:
        pages.append(await reader.find(LIVE, replace(query, beyond=tuple(place))))
        assert len(pages) <= len(KEYS) + 1, "a page does not begin where the one before it ended"
    return [(page.rows, page.total) for page in pages]


def check(
    server: OnValkey, expected: Mapping[str, Mapping[str, Any]], *, postgres: bool = False, limit: int = 3
) -> int:
    """Every ranking has exactly the expected rows, in the order of a sorted query, and nothing else is in any set."""
    wanted = queries(expected, limit)
    memory = in_memory(expected)

    async def compare(cached: ValkeyReader, database: PostgresReader) -> None:
        for query in wanted:
            pages = await every_page(cached, query)
            assert pages == await every_page(memory, query), query
            if postgres:
                assert pages == await every_page(database, query), query

    reading(server.settings, compare)
    members: dict[str, int] = {}
    for name, entries in sets(server).items():
        ranking = name.partition(":")[0]
        members[ranking] = members.get(ranking, 0) + len(entries)
    for each in RANKINGS:
        rows = sum(all(row[name] is not None for name in each.within) for row in expected.values())
        assert members.get(each.declaration, 0) == rows, each
    return len(wanted)


@pytest.mark.parametrize("seed", range(3))
def test_a_ranking_is_the_sorted_query_after_every_crash(cache: OnValkey, database: OnPostgres, seed: int) -> None:
    told, chance = happened(seed), random.Random(seed)
    load(database.open(), TARGET, told, random.Random(seed))
    assert crashed_at(cache, TARGET, told, chance) == set(MOMENTS)
    rows = fold(VIEW, told.sources)
    assert len(rows) > 10
    assert check(cache, rows, postgres=True, limit=1 + seed * 3) > 20


def test_a_ranking_is_right_after_each_batch(cache: OnValkey) -> None:
    told, store, at = happened(7, length=40), cache.open(), 0
    for partition, records in told.patches.items():
        for start in range(0, len(records), 8):
            store.apply([TARGET], {partition: told.batch(partition, start, start + 8)})
            seen = {record.patch.place for record in records[: start + 8] if record.patch is not None}
            done = {p.place for n, more in told.patches.items() if n < partition for r in more if (p := r.patch)}
            check(
                cache,
                fold(VIEW, [source for source in told.sources if Place(source.position.offset, 0) in seen | done]),
            )
            at += 1
    assert at >= 5


def test_writers_that_race_leave_every_row_in_one_place(cache: OnValkey) -> None:
    told, begin = happened(11), threading.Barrier(3)

    def write(number: int) -> None:
        store = cache.open()
        begin.wait()
        load(store, TARGET, told, random.Random(number))

    with ThreadPoolExecutor(3) as threads:
        for done in [threads.submit(write, number) for number in range(3)]:
            done.result()
    check(cache, fold(VIEW, told.sources))


def entries(cache: OnValkey, target: Target) -> dict[str, dict[str, Any]]:
    """What `replay verify` compares; each entry is found again by its key."""
    reader = ValkeyRankings(cache.settings)
    found = dict(reader.rows(target))
    assert reader.rows_of(target, list(found)) == found
    return found


def test_the_entries_of_rankings_are_the_places_of_rows(cache: OnValkey) -> None:
    told, other = happened(31), Target(VIEW, 2)
    load(cache.open(), TARGET, told, random.Random(1))
    opened = cache.open()
    opened.create(other, {}, START)
    opened.finish(other)
    load(cache.open(), other, told, random.Random(2))
    found = entries(cache, TARGET)
    assert found == entries(cache, other)
    assert len(found) == sum(map(len, sets(cache).values()))
    rows = fold(VIEW, told.sources)
    assert {row_of(each) for each in found} == rows.keys()
    large = next(key for key, row in rows.items() if abs(row["number"] or 0) > 2**53)
    assert f'["-number",[],{orjson.dumps(large).decode()},"{-rows[large]["number"]}"]' in found


def test_a_ranking_that_differs_from_its_rows_differs_from_that_of_another_generation(cache: OnValkey) -> None:
    told, other = happened(37), Target(VIEW, 2)
    opened = cache.open()
    opened.create(other, {}, START)
    opened.finish(other)
    for target in (TARGET, other):
        load(cache.open(), target, told, random.Random(1))
    ranking = cache_ranking(cache.settings.environment, VIEW.name, 1, "-real", "")
    (best, score), (lost, _) = (each for each in sets(cache)["-real"][:2])
    with valkey.Valkey.from_url(cache.settings.valkey) as client:
        client.zrem(ranking, lost)
        client.zadd(ranking.replace("-real", "-number"), {b"huge": 1e30, b"y" * 20: -1e30})
        client.zadd(ranking, {b"nobody": 5, best: score / 2, b"\xff": 0})
    assert not compare(open_reader("valkey", cache.settings), "rows", TARGET, other, lambda: frozenset).differences
    found = compare(ValkeyRankings(cache.settings), "rankings", TARGET, other, lambda: frozenset, row_of)
    differing = {
        tuple(orjson.loads(difference.key)[::2]): (difference.left, difference.right) for difference in found.sample
    }
    changed = {("-real", key) for key in (best.decode(), lost.decode(), "nobody", "\\xff")}
    assert differing.keys() == changed | {("-number", "huge"), ("-number", "y" * 20)}
    assert differing["-real", best.decode()] == ({"score": score / 2}, {"score": score})
    assert differing["-real", lost.decode()][0] is differing["-real", "nobody"][1] is None


def test_bulk_and_live_make_the_same_sets(cache: OnValkey) -> None:
    told = happened(13)
    load(cache.open(), TARGET, told, random.Random(1))
    live, store = sets(cache), cache.open()
    assert live
    store.create(TARGET, {}, START)
    assert sets(cache) == {}
    rows = list(states(VIEW, told.sources).items())
    writer = pickle.loads(pickle.dumps(store.bulk_writer(TARGET)))
    for part in (rows[::2], rows[1::2], rows[1::2]):  # the last partition's task is repeated
        writer.write(iter([arrow(VIEW, dict(part))]))
    assert sets(cache) == live
    check(cache, fold(VIEW, told.sources))


def test_live_goes_on_where_bulk_ended(cache: OnValkey) -> None:
    told, store = happened(17), cache.open()
    covered, base = told.sources[:90], {"0": 90}
    store.create(TARGET, base, START)
    store.bulk_writer(TARGET).write(iter([arrow(VIEW, states(VIEW, covered))]))
    store.finish(TARGET, len(states(VIEW, covered)))
    check(cache, fold(VIEW, covered))
    load(store, TARGET, told, random.Random(1))
    check(cache, fold(VIEW, told.sources))


def test_a_page_begins_after_any_row_also_one_that_is_gone(cache: OnValkey) -> None:
    told, chance = happened(19), random.Random(19)
    load(cache.open(), TARGET, told, random.Random(1))
    rows = fold(VIEW, told.sources)
    memory, wanted = in_memory(rows), queries(rows, limit=4)
    keys = (*KEYS, "b", "a0", "zz", "\U0010ffff")

    async def compare(cached: ValkeyReader, _: PostgresReader) -> None:
        for query in wanted:
            column = query.order[0].column
            values = [row[column] for row in rows.values()] + [*VALUES.get(column, (2, -2)), *BETWEEN.get(column, ())]
            for _attempt in range(10):
                later = replace(query, beyond=(chance.choice(values), chance.choice(keys)))
                found, expected = await cached.find(LIVE, later), await memory.find(LIVE, later)
                assert (found.rows, found.last) == (expected.rows, expected.last), later

    reading(cache.settings, compare)


def test_a_page_has_the_columns_that_a_query_names(cache: OnValkey) -> None:
    load(cache.open(), TARGET, happened(23), random.Random(1))
    query = read_query(VIEW, [("sort", "-number"), ("fields", "flag,text"), ("limit", "2")])

    async def find(cached: ValkeyReader, _: PostgresReader) -> Page:
        return await cached.find(LIVE, query)

    page = reading(cache.settings, find)
    assert [set(row) for row in page.rows] == [{"flag", "text"}] * 2
    assert page.total is None


def test_a_generation_that_is_dropped_leaves_nothing_and_ranks_nothing(cache: OnValkey) -> None:
    told, store = happened(29), cache.open()
    load(store, TARGET, told, random.Random(1))
    other = Target(VIEW, 11)  # its number begins like the other's
    store.create(other, {}, START)
    store.finish(other)
    load(store, other, told, random.Random(1))
    store.drop(TARGET)
    assert sets(cache) == {}
    assert not cache.remains(TARGET)
    query = read_query(VIEW, [("sort", "-number")])

    async def find(cached: ValkeyReader, _: PostgresReader) -> int:
        with pytest.raises(NotRanked):
            await cached.find(LIVE, query)
        return len((await cached.find(replace(LIVE, generation=11), query)).rows)

    assert reading(cache.settings, find) == len(fold(VIEW, told.sources))
    store.create(TARGET, {}, START)

    async def find_none(cached: ValkeyReader, _: PostgresReader) -> Page:
        return await cached.find(LIVE, replace(query, count=True))

    assert reading(cache.settings, find_none) == Page([], None, 0)


def test_a_generation_of_an_earlier_declaration_ranks_only_what_it_has(cache: OnValkey) -> None:
    before = replace(VIEW, stores=(Postgres(), Cache(rankings=(Ranking("-real"),))))
    store, target = cache.open(), Target(before, 5)
    store.create(target, {}, START)

    async def find(cached: ValkeyReader, _: PostgresReader) -> Page:
        live = replace(LIVE, generation=5)
        for text in ("-number", "real", "-real,text"):
            with pytest.raises(NotRanked):
                await cached.find(live, read_query(VIEW, [("sort", text)]))
        return await cached.find(live, read_query(VIEW, [("sort", "-real")]))

    assert reading(cache.settings, find) == Page([], None)


@pytest.mark.parametrize("fields", [{"number": "many"}, {"number": 1.5}, {"number": [1]}, {"at": "noon"}, {"at": 7}])
def test_a_value_that_has_no_place_is_a_patch_that_the_store_refuses(cache: OnValkey, fields: dict[str, Any]) -> None:
    store = cache.open()
    (name,) = fields
    fields = {**fields, **order_of(VIEW, name, "1")}
    with pytest.raises(Unloadable):
        store.apply([TARGET], {0: Batch(1, {VIEW.tag: [Patch("a", "0", Place(1, 0), fields)]})})
    assert sets(cache) == {}
    store.apply([TARGET], {0: Batch(2, {VIEW.tag: [Patch("b", "0", Place(2, 0), {"total": 1})]})})
    assert sets(cache)["-number"] == [(b"b", float("inf"))]


def stream_view() -> View:
    columns = {"gate": TEXT, "minute": TEXT, "number": INTEGER}
    cached = Cache(rankings=(Ranking("-number", within=("minute",)), Ranking("-number")))
    return gate_view(name=VIEW.name, key="gate", columns=columns, stores=(cached,), deleted_by="gone")


def whole(target: Target, key: str, batch: int, **row: Any) -> Batch:
    patch = Patch(key, BATCHES, Place(batch, 0), {BATCH: batch, **row})
    return Batch(batch, {target.tag: [patch]})


def test_a_row_of_a_stream_view_moves_between_groups_and_goes(cache: OnValkey) -> None:
    target, store = Target(stream_view(), 1), cache.open()
    store.create(target, {}, START)
    store.finish(target)
    store.apply([target], {0: whole(target, "a", 1, minute="10:00", number=5)})
    store.apply([target], {0: whole(target, "b", 2, minute="10:00", number=5)})
    assert sets(cache)['-number/minute:["10:00"]'] == [(b"a", -5), (b"b", -5)]
    store.apply([target], {0: whole(target, "a", 3, minute="10:01", number=5)})
    store.apply([target], {0: whole(target, "b", 4, minute=None, number=7)})
    assert sets(cache) == {'-number/minute:["10:01"]': [(b"a", -5)], "-number": [(b"b", -7), (b"a", -5)]}
    store.apply([target], {0: whole(target, "a", 5, **{DELETED: True})})
    assert sets(cache) == {"-number": [(b"b", -7)]}


def test_a_batch_that_is_repeated_with_another_row_while_it_is_written_leaves_one_place(cache: OnValkey) -> None:
    target, other = Target(stream_view(), 1), cache.open()
    other.create(target, {}, START)
    other.finish(target)
    other.apply([target], {0: whole(target, "a", 1, minute="10:00", number=1)})
    overtaken: list[str] = []

    def overtake(moment: str) -> None:
        if moment == "rows read" and not overtaken:
            overtaken.append(moment)
            other.apply([target], {0: whole(target, "a", 1, minute="10:01", number=2**60)})

    cache.open(overtake).apply([target], {0: whole(target, "a", 1, minute="10:02", number=3)})
    assert overtaken
    assert sets(cache) == {'-number/minute:["10:02"]': [(b"a", -3)], "-number": [(b"a", -3)]}
    assert [ranked.name for ranked in ranked_of(target.view)] == ["-number/minute", "-number"]
