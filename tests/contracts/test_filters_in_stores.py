"""Every store finds what a filter asks for: all operators on all types, nulls and nasty values among them."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from headwater.api.reading import Finder, Live, Page
from headwater.api.reads.elasticsearch import ElasticsearchReader
from headwater.api.reads.postgres import Database, PostgresReader
from headwater.api.requests.filters import RANGES, TEXTS, operators
from headwater.api.requests.query import read_query
from headwater.compose.settings import StackSettings
from headwater.eventlog.envelope import Envelope, Position, encode, timestamp_ms
from headwater.projections.reading.reader import fold, lift
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.declared import Elasticsearch, Postgres
from headwater.projections.stores.names import patch_partition
from headwater.projections.stores.store import Batch, Target
from headwater.projections.table.computations import point
from headwater.projections.table.expressions import Source
from headwater.projections.table.folds import last
from headwater.projections.table.types import ColumnType
from headwater.projections.table.view import TableView
from headwater.projections.testing.contracts import history
from tests.contracts.counted_views import EDGES_PER_TOWN
from tests.contracts.opened_stores import OnElasticsearch, OnPostgres
from tests.contracts.view_histories import Put, Removed
from tests.support.filtered import fulfils
from tests.support.seeds import examples

PARTITIONS = 2
AT_ONCE = 8
"""Queries that are asked together: one after the other, each would wait for the answer of the one before."""
VIEW = TableView(
    name="filtered",
    key="thing_id",
    columns={name: last({Put: name}) for name in ("text", "number", "real", "flag", "at", "price", "due", "reference")}
    | {"place": last({Put: point("latitude", "longitude")})},
    deleted_by=(Removed,),
    stores=(Postgres(), Elasticsearch(text=("text",))),
)
LONG = "x" * 9_000
"""Elasticsearch keeps it, but does not index it."""
VALUES: dict[str, list[Any]] = {
    "text": [
        *(
            "",
            "a",
            "A",
            "ab",
            "Ab",
            "a,b",
            '"',
            "(a)",
            "a.*",
            "[a]",
            "^a$",
            "a\\",
            "-_ ~#@&<>",
            "a\nb",
            "zürich",
            "ZÜRICH",
        ),
        *("Zurich", "straße", "STRASSE", "ΣΑΣ", "σας", "\u212a", "k", "🏠x", "🏠X", "null", "true", "NOT", "*", "?"),
    ],
    "number": [0, 1, -1, 2**53 + 1, 2**53, 2**63 - 1, -(2**63), -(2**63) + 1],
    "real": [0.0, -0.0, 1.5, -1.5, 1e300, 5e-324, 0.1],
    "flag": [True, False],
    "at": [
        *("1969-12-31T23:59:59.999Z", "2026-01-01T00:00:00.000Z"),
        *("2026-01-01T00:00:00.001Z", "2026-02-01T00:00:00.000Z"),
    ],
    "price": ["0.00", "-0.01", "0.10", "12.50", "9007199254.93", "9007199254.92", "9999999999.99", "-9999999999.99"],
    "due": ["0001-01-01", "1969-12-31", "1970-01-01", "2026-02-28", "2026-03-01", "9999-12-31"],
    "reference": [str(UUID(int=each)) for each in (0, 1, 2**64, 2**127, 2**128 - 1)],
}
EDGES = ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.9999Z")
ASKED = {
    **VALUES,
    "at": [
        *VALUES["at"],
        "2026-01-01T00:00:00.0005Z",
        "2026-01-01T02:00:00+02:00",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59.9999Z",
    ],
    "price": [*VALUES["price"], "12.505", "0.001", "-0.001", "12.5", "9999999999.991", f"-1{'0' * 50}", "1" + "0" * 50],
    "reference": [*VALUES["reference"], str(UUID(int=2**128 - 1)).upper()],
}


def sources() -> list[Source]:
    """A row for each value, one with nothing, and some of any values and nulls; some of them removed; seeded."""
    chance, found = random.Random(7), list[Source]()

    def happened(key: str, kind: str, **data: Any) -> None:
        stream, time = f"thing/{key}", datetime(2026, 1, 1, tzinfo=UTC)
        version = sum(source.envelope.stream == stream for source in found) + 1
        body = {"thing_id": key, "group": "g"} | data
        event = Envelope(f"{stream}/{version}", kind, stream, time, body, sequence=version)
        found.append(Source(event, Position(0, len(found)), timestamp_ms(time), encode(event).decode()))

    rows: list[dict[str, Any]] = [{name: value} for name, values in VALUES.items() for value in values]
    rows += [{name: chance.choice([None, *values]) for name, values in VALUES.items()} for _ in range(60)]
    rows += [{}, {"latitude": 38.5, "longitude": -121.0}, {"text": LONG}]
    nothing = dict.fromkeys((*VALUES, "tags", "latitude", "longitude"))
    for number, row in enumerate(rows):
        happened(f"{number:03}", "thing.put", **nothing | {"small": 1} | row)
        if number % 11 == 10:
            happened(f"{number:03}", "thing.removed")
    return found


def asked() -> list[list[tuple[str, str]]]:
    """Every operator with every value of its column, and any of them together; seeded."""
    chance = random.Random(11)
    single: list[tuple[str, str]] = []
    for name, kind in VIEW.types.items():
        for operator in operators(kind):
            if operator == "is_null":
                single += [(f"{name}.is_null", "true"), (f"{name}.is_null", "false")]
                continue
            for value in ASKED.get(name, ["000", "05", "nobody"]):
                text = str(value).lower() if kind is ColumnType.BOOLEAN else str(value)
                single.append((f"{name}.{operator}", quoted(text) if operator in ("in", "not_in") else text))
    one_each = [[each] for each in single]
    several = [pair for pair in single if pair[0].rpartition(".")[2] not in (*RANGES, "is_null")]
    together = [[pair, pair, (pair[0], chance.choice(of_same(several, pair)))] for pair in chance.sample(several, 60)]
    nots = [pair for pair in single if pair[0].endswith(("ne", "is_null"))]
    mixed = [
        [*(("or", alternatives(chance.sample(single, number))) for number in (3, 2)), chance.choice(nots)]
        for _ in range(examples(40))
    ]
    return one_each + together + mixed


def of_same(pairs: list[tuple[str, str]], wanted: tuple[str, str]) -> list[str]:
    return [value for name, value in pairs if name == wanted[0]]


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def alternatives(conditions: list[tuple[str, str]]) -> str:
    written = [
        f"{name}=({value})" if name.endswith(("in", "not_in")) else f"{name}={quoted(value)}"
        for name, value in conditions
    ]
    return f"({','.join(written)})"


SOURCES = sources()
ROWS = fold(VIEW, SOURCES)
LONG_KEY = next(key for key, row in ROWS.items() if row["text"] == LONG)


Loaded = tuple[str, StoreSettings, Target]


@contextmanager
def written(name: str, stack: StackSettings, view: TableView, some: Sequence[Source]) -> Iterator[Loaded]:
    """The rows of a view in a real store, written by itself."""
    endpoints, target = stack.endpoints, Target(view, 1)
    settings = StoreSettings(
        f"t_{uuid.uuid4().hex[:12]}", endpoints.postgres, endpoints.elasticsearch, endpoints.valkey, PARTITIONS
    )
    batches = {partition: Batch(next_offset=len(some)) for partition in range(PARTITIONS)}
    for source in some:
        for patch in lift(view, source):
            batch = batches[patch_partition(view, view.tag, patch.key, PARTITIONS)]
            batch.patches.setdefault(view.tag, []).append(patch)
    with {"postgres": OnPostgres, "elasticsearch": OnElasticsearch}[name](settings) as server:
        store = server.open()
        store.create(target, {}, dict.fromkeys(range(PARTITIONS), 0))
        store.finish(target)
        store.apply([target], batches)
        yield name, settings, target


@pytest.fixture(scope="module", params=["postgres", "elasticsearch"])
def loaded(request: pytest.FixtureRequest, stack: StackSettings) -> Iterator[Loaded]:
    """The rows of VIEW in a real store."""
    with written(request.param, stack, VIEW, SOURCES) as found:
        yield found


def pages(loaded: Loaded, wanted: list[list[tuple[str, str]]], limit: int = 1000, view: TableView = VIEW) -> list[Page]:
    """The first rows that each query finds, counted."""
    name, settings, target = loaded

    async def find(reader: Finder) -> list[Page]:
        live = Live(view, target.generation, view.tag, {})
        queries = [read_query(view, [*each, ("limit", str(limit)), ("count", "true")]) for each in wanted]
        return [
            page
            for at in range(0, len(queries), AT_ONCE)
            for page in await asyncio.gather(*(reader.find(live, query) for query in queries[at : at + AT_ONCE]))
        ]

    async def ask() -> list[Page]:
        if name == "postgres":
            database = Database(settings.postgres, settings.environment)
            await database.open()
            try:
                return await find(PostgresReader(database, settings.environment))
            finally:
                await database.close()
        index = ElasticsearchReader(settings.elasticsearch, settings.environment, PARTITIONS)
        await index.open()
        try:
            await index.refresh(Live(view, target.generation, view.tag, {}))
            return await find(index)
        finally:
            await index.close()

    return asyncio.run(ask())


def test_every_store_finds_the_same_rows(loaded: Loaded) -> None:
    wanted = asked()
    assert {operator for ((name, _), *_) in wanted for operator in [name.rpartition(".")[2]]} >= {*RANGES, *TEXTS, "or"}
    wrong: list[tuple[object, ...]] = []
    matched = 0
    for asks, page in zip(wanted, pages(loaded, wanted), strict=True):
        filters = read_query(VIEW, asks).filters
        expected = sorted(key for key, row in ROWS.items() if all(fulfils(row, filter_) for filter_ in filters))
        found = [row["thing_id"] for row in page.rows]
        if unindexed(asks):
            expected, found = [key for key in expected if key != LONG_KEY], [key for key in found if key != LONG_KEY]
        elif page.total != len(expected):
            wrong.append((asks, "total", page.total))
        if found != expected:
            wrong.append((asks, expected, found))
        matched += 0 < len(expected) < len(ROWS)
    assert not wrong, wrong[:5]
    assert matched > len(wanted) / 2


def unindexed(asks: list[tuple[str, str]]) -> bool:
    """Whether it is about text in a way that Elasticsearch cannot answer for one that is too long to be indexed."""
    words = " ".join(f"{name}={value}" for name, value in asks)
    return any(f"text.{operator}=" in words for operator in (*RANGES, *TEXTS))


def test_text_that_is_too_long_to_be_indexed_is_there_and_differs(loaded: Loaded) -> None:
    wanted = [("text.is_null", "false"), ("text.ne", "a"), ("text.not_in", "a,b"), ("text.prefix", "")]
    for asks, page in zip(wanted, pages(loaded, [[each] for each in wanted]), strict=True):
        assert LONG_KEY in {row["thing_id"] for row in page.rows}, asks


def test_a_count_is_of_all_pages(loaded: Loaded) -> None:
    some, none = pages(loaded, [[("number.is_null", "false")], [("text", "nobody has this")]], limit=3)
    assert (some.total, len(some.rows)) == (sum(row["number"] is not None for row in ROWS.values()), 3)
    assert (none.total, none.rows) == (0, [])


@pytest.mark.parametrize("name", ["postgres", "elasticsearch"])
def test_lowest_and_highest_values_are_found_and_sorted_by_value(name: str, stack: StackSettings) -> None:
    """They are computed from the values that a group keeps, so no state field has them."""
    view = EDGES_PER_TOWN
    made = history(view, list(view.plan.events.values()), 3).sources
    rows = fold(view, made)
    with written(name, stack, view, made) as loaded:
        for column in ("fewest", "dearest", "cheapest", "first_joined", "lightest", "last_seen"):
            known = [row for row in rows.values() if row[column] is not None]
            read: Any = Decimal if view.types[column].is_decimal else type(known[0][column])
            middle = sorted((row[column] for row in known), key=read)[len(known) // 2]
            asks = [(f"{column}.gte", str(middle)), ("sort", f"-{column}")]
            (page,) = pages(loaded, [asks], view=view)
            expected = [row for row in known if read(row[column]) >= read(middle)]
            assert sorted(row["town"] for row in page.rows) == sorted(row["town"] for row in expected), column
            found = [read(row[column]) for row in page.rows]
            assert found == sorted(found, reverse=True), column
