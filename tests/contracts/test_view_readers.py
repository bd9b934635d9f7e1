"""The contract of the API's readers: on memory and on every real store, the same rows, pages and positions."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from headwater.api.reading import Finder, GenerationGone, Live, Page, ViewReader
from headwater.api.reads import elasticsearch
from headwater.api.requests.filters import Filter
from headwater.api.requests.query import read_query
from headwater.commands.declaring.filled_fields import Claim
from headwater.eventlog.envelope import Envelope, Position, encode, partition_of, timestamp_ms
from headwater.projections.reading.reader import fold, lift, states
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.declared import Cache, Elasticsearch, Postgres
from headwater.projections.stores.elasticsearch.schema import COMPLETE
from headwater.projections.stores.names import patch_key
from headwater.projections.stores.store import Batch, Target
from headwater.projections.table.computations import point
from headwater.projections.table.expressions import Source
from headwater.projections.table.folds import last
from headwater.projections.table.patch import Place
from headwater.projections.table.view import TableView
from tests.contracts.opened_readers import PARTITIONS, READ, opened_reader
from tests.contracts.test_view_stores import arrow
from tests.contracts.view_histories import Put, Removed
from tests.unit.api.fake_service import MemoryReader

VIEW = TableView(
    name="read",
    key="thing_id",
    columns={name: last({Put: name}) for name in ("text", "number", "real", "flag", "at", "tags")}
    | {"place": last({Put: point("latitude", "longitude")})},
    deleted_by=(Removed,),
    stores=(Postgres(), Elasticsearch(), Cache()),
)
LIVE = Live(VIEW, 1, VIEW.tag, {})
ORDERS = ("thing_id", "-thing_id", "text", "-text", "number,-text", "-number", "at,number", "-flag,real")


def sources() -> list[Source]:
    """Rows with equal values, nulls and strange keys; one is deleted."""
    found = list[Source]()

    def happened(key: str, kind: str, **data: Any) -> None:
        version = sum(source.envelope.stream == f"thing/{key}" for source in found) + 1
        time = datetime(2026, 1, 1, tzinfo=UTC)
        body = {"thing_id": key, "group": "g", **data}
        event = Envelope(f"thing/{key}/{version}", kind, f"thing/{key}", time, body, sequence=version)
        found.append(Source(event, Position(0, len(found)), timestamp_ms(time), encode(event).decode()))

    nothing = dict.fromkeys(("text", "number", "real", "flag", "at", "tags", "latitude", "longitude"))
    for number, key in enumerate(["a", "b", "A", "ü/1", "", "%2F", "rows", "gone", "c", "d"]):
        given = {
            "text": ("x", "y", None)[number % 3],
            "number": (2**53 + 1, 7, None, 7)[number % 4],
            "real": number / 4 or None,
            "flag": (True, None)[number % 2],
            "at": f"2026-01-0{number % 3 + 1}T00:00:00.00{number % 2}Z",
            "tags": ["t"] * (number % 3),
        }
        place = {"latitude": 38.5, "longitude": -121.0} if number % 2 else {}
        happened(key, "thing.put", **nothing | {"small": 1} | given | place)
    happened("gone", "thing.removed")
    return found


REBUILT = replace(LIVE, generation=LIVE.generation + 5)
"""A generation that a rebuild wrote, and no patch changed since."""
SOURCES = sources()
ROWS = fold(VIEW, SOURCES)


@pytest.fixture(scope="module", params=["memory", *READ])
def opened(request: pytest.FixtureRequest) -> Iterator[Callable[[], Any]]:
    """Opens a reader of a store that has the rows."""
    if request.param == "memory":
        yield memory
        return
    endpoints, name = request.getfixturevalue("stack").endpoints, f"t_{uuid.uuid4().hex[:12]}"
    settings = StoreSettings(name, endpoints.postgres, endpoints.elasticsearch, endpoints.valkey, PARTITIONS)
    with READ[request.param](settings) as server:
        store, target = server.open(), Target(VIEW, LIVE.generation)
        store.create(target, {}, dict.fromkeys(range(PARTITIONS), 0))
        store.finish(target)
        store.apply([target], batches())
        rebuilt = Target(VIEW, REBUILT.generation)
        store.create(rebuilt, {}, dict.fromkeys(range(PARTITIONS), 0))
        store.bulk_writer(rebuilt).write(iter([arrow(VIEW, states(VIEW, SOURCES))]))
        store.finish(rebuilt)
        yield lambda: opened_reader(request.param, settings, VIEW)


@pytest.fixture
def finding(opened: Callable[[], Any], request: pytest.FixtureRequest) -> Callable[[], Any]:
    """Opens a reader that finds rows by their columns."""
    if request.node.callspec.params["opened"] == "valkey":
        pytest.skip("it finds rows by their keys only")
    return opened


def batches() -> dict[int, Batch]:
    found = {partition: Batch(next_offset=len(SOURCES)) for partition in range(PARTITIONS)}
    for source in SOURCES:
        for patch in lift(VIEW, source):
            batch = found[partition_of(patch_key(VIEW.tag, patch.key), PARTITIONS)]
            batch.patches.setdefault(VIEW.tag, []).append(patch)
    return found


@asynccontextmanager
async def memory() -> AsyncIterator[MemoryReader]:
    reader = MemoryReader("memory", rows={VIEW.name: dict(ROWS)})
    for partition, batch in batches().items():
        reader.reached[partition] = batch.next_offset
        for patch in batch.patches.get(VIEW.tag, ()):
            reader.applied[partition] = {patch.source: patch.place}
    yield reader


def ask(opened: Callable[[], Any], question: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
    async def asking() -> Any:
        async with opened() as reader:
            return await question(reader)

    return asyncio.run(asking())


def test_each_row_by_its_key(opened: Callable[[], Any]) -> None:
    async def every(reader: ViewReader) -> dict[str, Any]:
        return {key: (await reader.get_many(LIVE, [key])).get(key) for key in (*ROWS, "gone", "nobody")}

    assert len(ROWS) == 9
    assert ask(opened, every) == {**ROWS, "gone": None, "nobody": None}


def test_rows_that_a_rebuild_wrote_have_no_guards_until_a_patch_changes_them(opened: Callable[[], Any]) -> None:
    assert ask(opened, lambda reader: reader.guards(REBUILT, [*ROWS, "nobody"])) in ({}, {key: {} for key in ROWS})


def test_a_generation_that_was_dropped_or_lost_is_not_taken_for_one_without_rows(opened: Callable[[], Any]) -> None:
    lost = replace(LIVE, generation=LIVE.generation + 1)

    async def both(reader: ViewReader) -> None:
        if isinstance(reader, MemoryReader):
            pytest.skip("memory loses nothing")
        with pytest.raises(GenerationGone):
            await reader.get_many(lost, ["c"])
        with pytest.raises(GenerationGone):
            await reader.get_many(lost, ["c", "nobody"])

    ask(opened, both)


def test_several_rows_without_those_that_are_not_there(opened: Callable[[], Any]) -> None:
    async def several(reader: ViewReader) -> tuple[Any, Any, Any]:
        keys = ["c", "gone", "", "ü/1", "nobody"]
        some = await reader.get_many(LIVE, keys, ("number", "place"))
        return await reader.get_many(LIVE, keys), some, await reader.get_many(LIVE, ["nobody"])

    whole, some, none = ask(opened, several)
    assert whole == {key: ROWS[key] for key in ("c", "", "ü/1")}
    shown = {key: {name: row[name] for name in ("number", "place")} for key, row in some.items()}
    assert shown == {key: {name: ROWS[key][name] for name in ("number", "place")} for key in ("c", "", "ü/1")}
    assert none == {}


def test_the_positions_that_are_applied(opened: Callable[[], Any]) -> None:
    async def positions(reader: ViewReader) -> tuple[Any, Any]:
        return await reader.next_offsets(LIVE), await reader.ledger(LIVE)

    offsets, ledger = ask(opened, positions)
    assert offsets == dict.fromkeys(range(PARTITIONS), len(SOURCES))
    highest = max(place for applied in ledger.values() for place in applied.values())
    assert highest == Place(len(SOURCES) - 1, 0)
    assert {source for applied in ledger.values() for source in applied} == {"0"}


@pytest.mark.parametrize("limit", [1, 4, 50])
def test_pages_in_any_order_are_the_same_rows_in_the_same_order(finding: Callable[[], Any], limit: int) -> None:
    async def paged(reader: Finder) -> list[list[Page]]:
        found = []
        for order in ORDERS:
            query = read_query(VIEW, [("sort", order), ("limit", str(limit)), ("count", "true")])
            pages = [await reader.find(LIVE, query)]
            while (place := pages[-1].last) is not None:
                pages.append(await reader.find(LIVE, replace(query, beyond=tuple(place))))
            found.append(pages)
        return found

    for order, pages in zip(ORDERS, ask(finding, paged), strict=True):
        rows = [row["thing_id"] for page in pages for row in page.rows]
        assert rows == in_order(order), order
        assert {page.total for page in pages} == {len(ROWS)}


READ_BY = replace(VIEW, readable_by={"text": Claim("sub"), "number": Claim("team")})
READERS: dict[str, tuple[tuple[Filter, ...] | None, Callable[[dict[str, Any]], bool]]] = {
    "one": ((Filter("text", "in", ("x",)),), lambda row: row["text"] == "x"),
    "several": ((Filter("number", "in", (7, 2**53 + 1)),), lambda row: row["number"] in (7, 2**53 + 1)),
    "of both": (
        (Filter("text", "in", ("y",)), Filter("number", "in", (7,))),
        lambda row: (row["text"], row["number"]) == ("y", 7),
    ),
    "the key": ((Filter("thing_id", "in", ("", "ü/1", "gone")),), lambda row: row["thing_id"] in ("", "ü/1")),
    "nothing that there is": ((Filter("text", "in", ("X", "x ", "")),), lambda row: False),
    "without the claim": ((Filter("text", "in", ()),), lambda row: False),
    "without the claim for numbers": ((Filter("number", "in", ()),), lambda row: False),
    "nobody": (None, lambda row: False),
    "an operator": ((), lambda row: True),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_row_that_is_not_the_readers_is_as_one_that_is_missing(opened: Callable[[], Any], reader: str) -> None:
    conditions, is_own = READERS[reader]
    live = replace(LIVE, view=READ_BY, readable=conditions)
    own = {key: row for key, row in ROWS.items() if is_own(row)}

    async def read(store: Any) -> None:
        keys = [*ROWS, "gone", "nobody"]
        assert {key: row for key in keys if (row := (await store.get_many(live, [key])).get(key)) is not None} == own
        assert await store.get_many(live, keys) == own
        some = await store.get_many(live, keys, ("real",))
        assert {key: row["real"] for key, row in some.items()} == {key: row["real"] for key, row in own.items()}

    ask(opened, read)


@pytest.mark.parametrize("reader", READERS)
def test_pages_and_counts_have_the_readers_rows_only(finding: Callable[[], Any], reader: str) -> None:
    conditions, is_own = READERS[reader]
    live = replace(LIVE, view=READ_BY, readable=conditions)

    async def read(store: Finder) -> None:
        for order in ORDERS:
            query = read_query(READ_BY, [("sort", order), ("limit", "2"), ("count", "true")])
            page = await store.find(live, query)
            rows, total = list(page.rows), page.total
            while page.last is not None:
                page = await store.find(live, replace(query, beyond=tuple(page.last)))
                rows += page.rows
            own = [key for key in in_order(order) if is_own(ROWS[key])]
            assert ([row["thing_id"] for row in rows], total) == (own, len(own)), order
        for filters in ([("text", "y")], [("or", "(text=y,text.is_null=true)")], [("text.is_null", "true")]):
            page = await store.find(live, read_query(READ_BY, filters))
            assert all(is_own(row) for row in page.rows)
        others = read_query(READ_BY, [("sort", "thing_id")])
        beyond = await store.find(live, replace(others, beyond=("b",)))  # from a place that is not the reader's
        assert all(is_own(row) for row in beyond.rows)

    ask(finding, read)


def in_order(order: str) -> list[str]:
    """The keys of all rows, nulls last."""
    rows = sorted(ROWS.values(), key=lambda row: str(row["thing_id"]))
    for step in reversed(order.split(",")):
        column, falling = step.removeprefix("-"), step.startswith("-")
        known = sorted((r for r in rows if r[column] is not None), key=lambda row: row[column], reverse=falling)
        rows = known + [row for row in rows if row[column] is None]
    return [str(row["thing_id"]) for row in rows]


@pytest.mark.parametrize("opened", ["elasticsearch"], indirect=True)
def test_an_index_that_is_restored_in_mid_bulk_does_not_answer(
    opened: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elasticsearch, "SURE_S", 0.0)

    async def read() -> None:
        async with opened() as reader:
            index = reader._index(LIVE)
            reads: list[Callable[[], Coroutine[Any, Any, Any]]] = [
                lambda: reader.get_many(LIVE, ["a"]),
                lambda: reader.get_many(LIVE, ["a"]),
                lambda: reader.find(LIVE, read_query(VIEW, [])),
                lambda: reader.guards(LIVE, ["a"]),
            ]
            for each in reads:
                assert await each()
            try:
                await reader._client.indices.put_mapping(index=index, meta={COMPLETE: False})
                for each in reads:
                    with pytest.raises(GenerationGone):
                        await each()
            finally:
                await reader._client.indices.put_mapping(index=index, meta={COMPLETE: True})

    asyncio.run(read())
