"""A row that expired is as one that is missing, in every store and every kind of read, up to the millisecond."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest

from headwater.api.reading import Live
from headwater.api.requests.filters import Filter
from headwater.api.requests.query import read_query
from headwater.commands.declaring.filled_fields import Claim
from headwater.eventlog.envelope import Envelope, Position, encode, partition_of, timestamp_ms
from headwater.projections.reading.reader import fold, lift
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.declared import Cache, Elasticsearch, Postgres
from headwater.projections.stores.names import patch_key
from headwater.projections.stores.store import Batch, Target
from headwater.projections.table.expressions import Source
from headwater.projections.table.folds import last
from headwater.projections.table.view import TableView
from tests.contracts.opened_readers import PARTITIONS, READ, opened_reader
from tests.contracts.view_histories import Put, Removed
from tests.unit.api.fake_service import MemoryReader

VIEW = TableView(
    name="expiring",
    key="thing_id",
    columns={name: last({Put: name}) for name in ("text", "flag", "at", "due")},
    deleted_by=(Removed,),
    stores=(Postgres(indexes=(("at",),)), Elasticsearch(text=("text",), facets=("flag",)), Cache()),
)
TIMES = (
    *("1926-01-01T00:00:00.000Z", "1969-12-31T23:59:59.999Z", "2026-02-28T23:59:59.999Z", "2026-03-01T00:00:00.000Z"),
    *("2026-03-01T00:00:00.001Z", "2026-03-29T01:30:00.000Z", "9999-12-31T23:59:59.999Z", None),
)
DAYS = ("1926-01-01", "2026-02-28", "2026-03-01", "2026-03-02", "9999-12-31", None)
MOMENTS = tuple(
    moment + timedelta(microseconds=each)
    for moment in (
        datetime(2026, 3, 31, tzinfo=UTC),
        datetime(2026, 3, 31, tzinfo=UTC) - timedelta(hours=1),
        datetime(2026, 4, 28, 1, 30, tzinfo=UTC),
    )
    for each in (-1001, -1000, -1, 0, 1, 999, 1000, 1001)
)
EXPIRES = ({"at": "30d"}, {"at": "999999s"}, {"due": "30d"}, {"due": "719h"}, {"at": "36500d"})


def sources() -> list[Source]:
    """Rows with every time and day, and one that is deleted."""
    found = list[Source]()

    def happened(key: str, kind: str, **data: Any) -> None:
        stream, now = f"thing/{key}", datetime(2026, 1, 1, tzinfo=UTC)
        version = sum(source.envelope.stream == stream for source in found) + 1
        event = Envelope(
            f"{stream}/{version}", kind, stream, now, {"thing_id": key, "group": "g"} | data, sequence=version
        )
        found.append(Source(event, Position(0, len(found)), timestamp_ms(now), encode(event).decode()))

    nothing = dict.fromkeys(("number", "real", "tags", "latitude", "longitude", "price", "reference"))
    for number, (at, due) in enumerate((at, due) for at in TIMES for due in DAYS):
        words = {"text": "x" if number % 3 else "x y", "flag": number % 2 == 0, "small": 1}
        happened(f"{number:02}", "thing.put", **nothing | words, at=at, due=due)
    happened("00", "thing.removed")
    return found


SOURCES = sources()
ROWS = fold(VIEW, SOURCES)


def lives(row: Mapping[str, Any], expires: Mapping[str, str], now: datetime) -> bool:
    """Whether a row is there at a time: said once more, without the code that is tested."""
    ((column, after),) = expires.items()
    unit = {"s": "seconds", "h": "hours", "d": "days"}[after[-1]]
    if row[column] is None:
        return True
    if column == "due":
        begins = datetime.combine(datetime.fromisoformat(row["due"]).date(), time(), UTC)
    else:
        begins = datetime.fromisoformat(row["at"])
    return now - begins < timedelta(**{unit: int(after[:-1])})


@pytest.fixture(scope="module", params=["memory", *READ])
def opened(request: pytest.FixtureRequest) -> Iterator[Callable[[], Any]]:
    """Opens a reader of a store that has the rows."""
    if request.param == "memory":
        yield memory
        return
    endpoints, name = request.getfixturevalue("stack").endpoints, f"t_{uuid.uuid4().hex[:12]}"
    settings = StoreSettings(name, endpoints.postgres, endpoints.elasticsearch, endpoints.valkey, PARTITIONS)
    batches = {partition: Batch(next_offset=len(SOURCES)) for partition in range(PARTITIONS)}
    for source in SOURCES:
        for patch in lift(VIEW, source):
            batch = batches[partition_of(patch_key(VIEW.tag, patch.key), PARTITIONS)]
            batch.patches.setdefault(VIEW.tag, []).append(patch)
    with READ[request.param](settings) as server:
        store, target = server.open(), Target(VIEW, 1)
        store.create(target, {}, dict.fromkeys(range(PARTITIONS), 0))
        store.finish(target)
        store.apply([target], batches)
        yield lambda: opened_reader(request.param, settings, VIEW)


@asynccontextmanager
async def memory() -> AsyncIterator[MemoryReader]:
    yield MemoryReader("memory", rows={VIEW.name: dict(ROWS)})


def ask(opened: Callable[[], Any], question: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
    async def asking() -> Any:
        async with opened() as reader:
            return await question(reader)

    return asyncio.run(asking())


def reads() -> Iterator[tuple[Live, dict[str, dict[str, Any]]]]:
    """The view at each moment, and the rows that it has then."""
    for expires in EXPIRES:
        view = replace(VIEW, expires=expires)
        for now in MOMENTS:
            rows = {key: row for key, row in ROWS.items() if lives(row, expires, now)}
            yield Live(view, 1, view.tag, {}, read_at=now), rows


def test_some_rows_are_expired_at_some_moments_only() -> None:
    sizes = [len(rows) for _, rows in reads()]
    assert len(ROWS) == len(TIMES) * len(DAYS) - 1 and len(set(sizes)) > 5 and 0 < min(sizes) < max(sizes) < len(ROWS)


def test_it_is_missing_by_its_key(opened: Callable[[], Any]) -> None:
    async def read() -> None:
        async with opened() as store:
            for live, rows in reads():
                keys = [*ROWS, "00", "nobody"]
                assert await store.get_many(live, keys) == rows, live
                some = await store.get_many(live, keys, ("text",))
                assert {key: row["text"] for key, row in some.items()} == {k: row["text"] for k, row in rows.items()}
            for live, rows in list(reads())[::9]:
                for key in ROWS:
                    assert (await store.get_many(live, [key])).get(key) == rows.get(key), (live, key)

    asyncio.run(read())


def test_it_is_in_no_list_count_search_or_facet(opened: Callable[[], Any], request: pytest.FixtureRequest) -> None:
    kind = request.node.callspec.params["opened"]
    if kind == "valkey":
        pytest.skip("it finds rows by their keys only")

    async def read() -> None:
        async with opened() as store:
            for live, rows in reads():
                page = await store.find(live, read_query(live.view, [("count", "true"), ("limit", "1000")]))
                assert [row["thing_id"] for row in page.rows] == sorted(rows), live
                assert page.total == len(rows)
                own = Filter("flag", "in", (True,))
                query = replace(read_query(live.view, [("sort", "-at"), ("limit", "1000")]), filters=(own,))
                found = {row["thing_id"] for row in (await store.find(live, query)).rows}
                assert found == {key for key, row in rows.items() if row["flag"]}
            for live, rows in reads() if kind == "elasticsearch" else ():
                page = await store.search(live, read_query(live.view, [("q", "y"), ("limit", "100")], searching=True))
                words = {key: row for key, row in rows.items() if row["text"] == "x y"}
                assert ({row["thing_id"] for row in page.rows}, page.total) == (set(words), len(words))
                counted = {flag: sum(row["flag"] is flag for row in words.values()) for flag in (True, False)}
                assert dict(page.facets["flag"]) == {flag: number for flag, number in counted.items() if number}

    asyncio.run(read())


def test_who_reads_decides_as_well(opened: Callable[[], Any]) -> None:
    view = replace(VIEW, expires={"at": "30d"}, readable_by={"text": Claim("sub")})
    live = Live(view, 1, view.tag, {}, (Filter("text", "in", ("x y",)),), MOMENTS[0])
    rows = {key for key, row in ROWS.items() if row["text"] == "x y" and lives(row, view.expires, MOMENTS[0])}

    async def read() -> None:
        async with opened() as store:
            assert set(await store.get_many(live, list(ROWS))) == rows
            assert not await store.get_many(replace(live, readable=None), list(ROWS))

    asyncio.run(read())


def test_a_copy_that_never_changes_does_not_expire() -> None:
    view = replace(VIEW, expires={"at": "30d"})
    assert view.named("then").expiry == view.expiry is not None
    assert view.without_expiry().expiry is None


def test_expiry_is_no_part_of_the_fingerprint() -> None:
    view = replace(VIEW, expires={"at": "30d"})
    assert (view.fingerprint, view.row_types) == (VIEW.fingerprint, VIEW.row_types)
