"""Waiting for positions in a captured database's log over HTTP, with the log and the stores in memory."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace
from typing import Any

import jsonschema_rs
import pytest
from msgspec import structs

from headwater.api.app import create_app
from headwater.api.errors import BadParameter, NotCaughtUp
from headwater.api.reads.log import TopicLedgers
from headwater.api.service import Service
from headwater.api.waiting import captured as captured_waiting
from headwater.api.waiting.awaited import After
from headwater.api.waiting.captured import CapturedReader, CapturedWaiter
from headwater.api.waiting.waiter import Waiter
from headwater.eventlog.capturing import Captured, Source
from headwater.eventlog.capturing.capture_progress import Commit, Progress
from headwater.eventlog.capturing.control_topics import Snapshot
from headwater.eventlog.envelope import partition_of
from headwater.eventlog.heartbeats import heartbeat_key
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry
from headwater.projections.stores.store import LAST_NUMBER
from headwater.projections.table.patch import Place, contribution_key
from headwater.samples.shop.source import Customer, Order, shop
from headwater.samples.shop.views import customer_360
from tests.support.seeds import examples, seed_of
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import PARTITIONS, FakeEvents, FakeGenerations, FakeService, MemoryReader, fake_service

CUSTOMERS = Customer.topic()
TRANSACTIONS = "cdc.shop.transaction"
VIEW = "customer_360"


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(PARTITIONS)


@pytest.fixture
def service(log: MemoryLog) -> FakeService:
    made = fake_service(log=log, modules=("listings", "shop"))
    for reader in made.readers.values():
        reader.rows[VIEW] = {"1": {"customer_id": "1"}}
    return made


@pytest.fixture
def stored(service: FakeService) -> MemoryReader:
    """The store that is asked for a row of VIEW: the cache, whose rows have guards."""
    return service.readers["valkey"]


def changed(log: MemoryLog, row: int, partition: int = 0) -> int:
    """A change of a customer that is captured; returns its offset."""
    return log.submit(Entry(CUSTOMERS, json.dumps({"id": row}), b"{}", 0), partition).result()


def beaten(log: MemoryLog, partition: int = 0) -> int:
    return log.submit(Entry(CUSTOMERS, heartbeat_key(partition), b"{}", 0), partition).result()


def boundary(status: str, lsn: int, time_ms: int = 0) -> Entry:
    value = {"status": status, "id": f"7:{lsn}", "ts_ms": time_ms, "event_count": None, "data_collections": None}
    return Entry(TRANSACTIONS, json.dumps({"id": f"7:{lsn}"}), json.dumps(value).encode(), 0)


def committed(log: MemoryLog, lsn: int, time_ms: int = 0) -> None:
    """A transaction of the database whose end is captured."""
    log.submit(boundary("BEGIN", lsn - 1), 0)
    log.submit(boundary("END", lsn, time_ms), 0)


def patches_partition(row: int) -> int:
    return partition_of(f"{customer_360.tag}/{row}", PARTITIONS)


def ask(client: AppClient, after: str, wait_ms: int = 0) -> tuple[int, str]:
    answer = client.get(f"/views/{VIEW}/1?after={after}&wait_ms={wait_ms}")
    return answer.status_code, answer.json().get("type", "").rpartition(":")[2]


FRESH, BEHIND, NOT_CAPTURED = (200, ""), (503, "not_caught_up"), (503, "source_not_caught_up")


def test_it_waits_until_the_database_is_captured_so_far(client: AppClient, log: MemoryLog) -> None:
    problem = client.get(f"/views/{VIEW}/1?after=shop@0/20&wait_ms=30")
    assert problem.headers["retry-after"] == "1"
    assert problem.json() | {"detail": ""} == {
        "type": "urn:headwater:problem:source_not_caught_up",
        "title": "The source has not caught up",
        "status": 503,
        "detail": "",
        "instance": f"/views/{VIEW}/1",
        "source": "shop",
        "after": "shop@0/20",
        "reached": None,
        "waited_ms": 30,
    }
    assert "is not captured yet" in problem.json()["detail"]
    committed(log, 0x1F)
    behind = client.get(f"/views/{VIEW}/1?after=shop@0/20&wait_ms=0").json()
    assert behind["reached"] == "0/1F"
    assert "headwater sources status shop" in behind["detail"]
    committed(log, 0x20)
    assert ask(client, "shop@0/20") == FRESH
    assert ask(client, "shop@0/21") == NOT_CAPTURED
    assert ask(client, "shop@FFFFFFFF/FFFFFFFF") == NOT_CAPTURED


def test_a_change_is_awaited_in_the_ledger_of_its_row(client: AppClient, log: MemoryLog, stored: MemoryReader) -> None:
    offset = changed(log, 1)
    committed(log, 0x20)
    assert ask(client, "shop@0/20") == BEHIND
    other = next(number for number in range(PARTITIONS) if number != patches_partition(1))
    stored.applied = {other: {f"{CUSTOMERS}/0": Place(offset + 9, LAST_NUMBER)}}
    assert ask(client, "shop@0/20") == BEHIND
    stored.applied[patches_partition(1)] = {f"{CUSTOMERS}/0": offset}
    assert ask(client, "shop@0/20") == FRESH


def test_the_guard_of_each_row_is_enough(client: AppClient, log: MemoryLog, stored: MemoryReader) -> None:
    first, second = changed(log, 1), changed(log, 2, partition=1)
    committed(log, 0x20)
    stored.guards_of["1"] = {f"{CUSTOMERS}/0": first}
    assert ask(client, "shop@0/20") == BEHIND
    stored.guards_of["2"] = {f"{CUSTOMERS}/1": second - 1}
    assert ask(client, "shop@0/20") == BEHIND
    stored.guards_of["2"] = {f"{CUSTOMERS}/1": second}
    assert ask(client, "shop@0/20") == FRESH
    changed(log, 1)  # later, but stored before the ends are read
    assert ask(client, "shop@0/20") == BEHIND


def test_where_nothing_but_heartbeats_came_nothing_is_awaited(client: AppClient, log: MemoryLog) -> None:
    for partition in range(PARTITIONS):
        beaten(log, partition)
    committed(log, 0x20)
    assert ask(client, "shop@0/20") == FRESH


def test_records_that_are_stored_but_not_committed_are_awaited(
    client: AppClient, log: MemoryLog, stored: MemoryReader
) -> None:
    """The end of a transaction of Kafka may be visible in one partition and not in another yet."""
    transaction = log.own(2).begin()
    (offset,) = transaction.append([Entry(CUSTOMERS, '{"id":1}', b"{}", 0)])
    committed(log, 0x20)
    stored.applied = {number: {f"{CUSTOMERS}/2": Place(offset - 1, LAST_NUMBER)} for number in range(PARTITIONS)}
    assert ask(client, "shop@0/20") == BEHIND
    transaction.commit()
    assert ask(client, "shop@0/20") == BEHIND
    stored.guards_of["1"] = {f"{CUSTOMERS}/2": offset}
    assert ask(client, "shop@0/20") == FRESH


@pytest.fixture
def offsets(log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Of the last changes of eight rows, up to the commit 0x20; they are more rows than are awaited one by one."""
    monkeypatch.setattr(captured_waiting, "MAX_ROWS", 3)
    changes = {row: changed(log, row) for row in range(1, 9)}
    committed(log, 0x20)
    return changes


def test_many_rows_are_awaited_by_their_ledgers(
    client: AppClient, stored: MemoryReader, offsets: dict[int, int]
) -> None:
    stored.guards_of = {str(row): {f"{CUSTOMERS}/0": offset} for row, offset in offsets.items()}
    assert ask(client, "shop@0/20") == BEHIND  # a guard says nothing about other rows
    stored.guards_of = {}
    stored.applied = {patches_partition(row): {f"{CUSTOMERS}/0": offset} for row, offset in offsets.items()}
    assert ask(client, "shop@0/20") == FRESH
    stored.applied[patches_partition(8)] = {f"{CUSTOMERS}/0": offsets[8] - 1}
    assert ask(client, "shop@0/20") == BEHIND


def test_of_many_rows_the_last_in_each_partition_of_patches_is_awaited(
    service: Service, stored: MemoryReader, offsets: dict[int, int]
) -> None:
    def applied_up_to(rows: int) -> dict[int, dict[str, int | Place]]:
        return {patches_partition(row): {f"{CUSTOMERS}/0": offsets[row]} for row in range(1, rows + 1)}

    async def race() -> None:
        waiting = asyncio.create_task(service.waiter.wait(service.views[VIEW], stored, After("shop@0/20", 240_000)))

        async def asked_again() -> None:
            before = stored.asked
            while stored.asked < before + 2 and not waiting.done():  # noqa: ASYNC110
                await asyncio.sleep(0.001)

        await asked_again()
        stored.applied = applied_up_to(7)
        await asked_again()
        assert not waiting.done()
        stored.applied = applied_up_to(8)
        await waiting

    asyncio.run(race())


def test_too_many_records_to_read_are_awaited_by_every_ledger(
    client: AppClient, log: MemoryLog, stored: MemoryReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(captured_waiting, "MAX_OFFSETS", 3)
    offsets = [changed(log, 1) for _ in range(4)]
    committed(log, 0x20)
    source = f"{CUSTOMERS}/0"
    stored.guards_of["1"] = {source: offsets[-1]}
    stored.applied = {patches_partition(1): {source: offsets[-1]}}
    assert ask(client, "shop@0/20") == BEHIND
    stored.applied = {number: {source: Place(offsets[-1], LAST_NUMBER)} for number in range(PARTITIONS)}
    assert ask(client, "shop@0/20") == FRESH


def test_what_a_generation_had_from_the_start_is_not_awaited(
    client: AppClient, service: Service, log: MemoryLog
) -> None:
    offset = changed(log, 1)
    committed(log, 0x20)
    service.generations.base[f"{CUSTOMERS}/0"] = offset  # type: ignore[attr-defined]
    assert ask(client, "shop@0/20") == BEHIND
    service.generations.base[f"{CUSTOMERS}/0"] = offset + 1  # type: ignore[attr-defined]
    assert ask(client, "shop@0/20") == FRESH


def test_a_view_without_a_table_of_the_source_waits_for_nothing(client: AppClient, service: Service) -> None:
    reader: Any = service.readers["postgres"]
    reader.rows["listings"] = {"L1": {"listing_id": "L1"}}
    assert client.get("/views/listings/L1?after=shop@FF/0&wait_ms=0").status_code == 200
    assert client.get("/streams/listing/L1?after=shop@FF/0&wait_ms=0").status_code == 404  # it has no events


def test_several_positions_are_all_awaited(client: AppClient, log: MemoryLog, stored: MemoryReader) -> None:
    offset = changed(log, 1)
    committed(log, 0x20)
    stored.guards_of["1"] = {f"{CUSTOMERS}/0": offset}
    assert ask(client, "shop@0/20,shop@0/10,observations/0:1") == FRESH
    assert ask(client, f"shop@0/20,{CUSTOMERS}/1:7") == BEHIND
    assert ask(client, "shop@0/20,shop@0/21") == NOT_CAPTURED
    assert ask(client, "shop@0/20,0:5") == BEHIND
    stored.applied = {number: {"0": 5, f"{CUSTOMERS}/0": offset} for number in range(PARTITIONS)}
    assert ask(client, "shop@0/20,0:5") == FRESH


@pytest.mark.parametrize(
    ("token", "said"),
    [
        ("crm@0/20", '"crm" is not a source here; use one of shop'),
        ("@0/20", '"" is not a source here; use one of shop'),
        ("shop@", "write it like 0/16B3748"),
        ("shop@16B3748", "write it like 0/16B3748"),
        ("shop@0/G", "write it like 0/16B3748"),
        ("shop@0/123456789", "write it like 0/16B3748"),
        ("shop@0/1@2", "write it like 0/16B3748"),
        ("shop@-1/0", "write it like 0/16B3748"),
        ("0:1,shop@0/1,", 'write it like "3:1042"'),
        (f"{'x' * 9999}@0/1", "is not a source here"),
    ],
)
def test_a_position_of_no_database(client: AppClient, token: str, said: str) -> None:
    for path in (f"/views/{VIEW}/1", "/views/listings", "/streams/listing/L1"):
        problem = client.get(path, params={"after": token}).json()
        assert (problem["status"], problem["parameter"]) == (422, "after")
        assert said in problem["detail"]
        assert len(problem["detail"]) < 200


def test_a_deployment_that_captures_no_database_says_so() -> None:
    client = AppClient(create_app(fake_service(modules=("listings",))))
    problem = client.get("/views/listings/L1?after=shop@0/1").json()
    assert "this deployment captures no database" in problem["detail"]
    assert client.get("/positions/shop").json()["known"] == []


def test_positions_in_upper_and_lower_case_are_the_same(client: AppClient, log: MemoryLog) -> None:
    committed(log, 0x16_B374D848)
    assert ask(client, "shop@16/B374D848") == FRESH
    assert ask(client, "shop@16/b374d848") == FRESH
    assert ask(client, "shop@16/B374D849") == NOT_CAPTURED
    assert ask(client, "shop@17/0") == NOT_CAPTURED


def test_the_last_end_counts_and_nothing_else(log: MemoryLog) -> None:
    progress = Progress(log, shop)
    assert progress.last_commit() is None
    log.submit(boundary("BEGIN", 100), 0)
    assert progress.last_commit() is None
    committed(log, 50, time_ms=7)
    for entry in (boundary("BEGIN", 99), Entry(TRANSACTIONS, "x", b"\xff", 0), Entry(TRANSACTIONS, "x", None, 0)):
        log.submit(entry, 0)
    log.submit(replace_id(boundary("END", 99), "99"), 0)
    assert progress.last_commit() == Commit(50, 7)
    committed(log, 40)  # a restarted connector repeats ends; it may even have another database
    assert progress.last_commit() == Commit(40, 0)
    for lsn in range(1_000):
        log.submit(boundary("BEGIN", lsn), 0)
    assert progress.last_commit() == Commit(40, 0)
    log.delete(TRANSACTIONS, 0, log.end(TRANSACTIONS, 0))
    assert progress.last_commit() is None


def replace_id(entry: Entry, text: str) -> Entry:
    return structs.replace(entry, value=json.dumps({**json.loads(entry.value or b""), "id": f"7:{text}x"}).encode())


def test_an_end_that_is_not_committed_does_not_count(log: MemoryLog) -> None:
    committed(log, 50)
    transaction = log.own(0).begin()
    transaction.append([boundary("END", 60)])
    assert Progress(log, shop).last_commit() == Commit(50, 0)
    transaction.commit()
    assert Progress(log, shop).last_commit() == Commit(60, 0)


def test_requests_at_the_same_time_read_once(log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    committed(log, 50)
    reads = list[Progress]()

    def last_commit(progress: Progress) -> Commit:
        reads.append(progress)
        return Commit(50, 0)

    monkeypatch.setattr(Progress, "last_commit", last_commit)
    reader = CapturedReader(log, {"shop": shop})

    async def many() -> None:
        assert set(await asyncio.gather(*(reader.last_commit("shop") for _ in range(20)))) == {Commit(50, 0)}

    asyncio.run(many())
    assert len(reads) == 1


def test_where_a_source_stands(client: AppClient, log: MemoryLog) -> None:
    nothing = client.get("/positions/shop").json()
    tables = dict.fromkeys(("public.customers", "public.products", "public.orders", "public.order_lines"))
    assert nothing == {"source": "shop", "position": None, "time": None, "tables": tables, "snapshot": None}
    changed(log, 1, partition=1)
    committed(log, 0x1A2B3C8, time_ms=1_700_000_000_123)
    found = client.get("/positions/shop").json()
    assert found == {
        "source": "shop",
        "position": "shop@0/1A2B3C8",
        "time": "2023-11-14T22:13:20.123Z",
        "tables": {**tables, "public.customers": f"{CUSTOMERS}/1:0"},
        "snapshot": None,
    }
    document = client.get("/openapi.json").json()
    schema = document["components"]["schemas"]["CapturedPosition"] | {"components": document["components"]}
    for instance in (nothing, found, *schema["examples"]):
        jsonschema_rs.validate(schema, instance)
    assert ask(client, found["position"]) == BEHIND
    assert ask(client, found["tables"]["public.customers"]) == BEHIND


def test_a_source_that_is_not_declared(client: AppClient) -> None:
    answer = client.get("/positions/crm")
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:headwater:problem:unknown_source")
    assert (answer.json()["source"], answer.json()["known"]) == ("crm", ["shop"])
    assert client.get("/positions/shop?lsn=1").status_code == 422


def test_a_running_snapshot_is_named(log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    service = fake_service(log=log, modules=("listings", "shop"))
    running = Snapshot("initial", "IN_PROGRESS", "public.orders", 1200)
    monkeypatch.setattr(service.captured, "_snapshot_of", lambda source: running)
    client = AppClient(create_app(service))
    assert client.get("/positions/shop").json()["snapshot"] == {
        "kind": "initial",
        "state": "IN_PROGRESS",
        "table": "public.orders",
        "rows": 1200,
    }
    problem = client.get(f"/views/{VIEW}/1?after=shop@0/20&wait_ms=0").json()
    assert "its initial snapshot is reading public.orders" in problem["detail"]
    running = replace(running, state="COMPLETED")
    assert client.get("/positions/shop").json()["snapshot"] is None


def test_an_answer_never_lacks_a_change_that_was_committed_before() -> None:
    """Random logs and random states of a view: it waits if a row lacks its last change, and only then."""
    rng = random.Random(seed_of(1))
    outcomes = set()
    for _ in range(examples(150)):
        log, reader = MemoryLog(PARTITIONS), MemoryReader(rng.choice(["postgres", "valkey"]))
        lacks = randomly_applied(rng, log, reader)
        committed(log, 0x20)
        assert waits(log, reader) == lacks
        outcomes.add(lacks)
    assert outcomes == {True, False}


def waits(log: MemoryLog, reader: MemoryReader) -> bool:
    """Whether a query of VIEW after what is committed has to wait."""

    async def wait() -> None:
        captured = CapturedReader(log, {"shop": shop}, threads=1)
        try:
            topics = TopicLedgers(log, PARTITIONS)
            waiter = Waiter(FakeEvents(), captured, FakeGenerations(), topics, {}, PARTITIONS, PARTITIONS)
            await waiter.wait(customer_360, reader, After("shop@0/20", 0))
        finally:
            captured.close()

    try:
        asyncio.run(wait())
    except NotCaughtUp:
        return True
    return False


def randomly_applied(rng: random.Random, log: MemoryLog, reader: MemoryReader) -> bool:
    """Random records, of which ledgers have applied some; returns whether a row lacks its last change.

    A ledger has applied the changes of the rows in its partition of patches up to some offset, and any heartbeat.
    """
    lacks = False
    for source in range(PARTITIONS):
        records = [rng.choice([None, *range(1, 7)]) for _ in range(rng.randrange(8))]  # None: a heartbeat
        offsets = [changed(log, row, source) if row else beaten(log, source) for row in records]
        for partition in range(PARTITIONS):
            patches = [
                at for row, at in zip(records, offsets, strict=True) if not row or patches_partition(row) == partition
            ]
            applied = patches if rng.random() < 0.7 else patches[: rng.randrange(len(patches) + 1)]
            if applied:
                reader.applied.setdefault(partition, {})[f"{CUSTOMERS}/{source}"] = applied[-1]
            left = patches[len(applied) :]
            lacks = lacks or any(records[at] for at in left)
    return lacks


def test_positions_of_mariadb_are_refused_instead_of_awaited(log: MemoryLog) -> None:
    class Client(Captured, table="crm.clients", key="id"):
        id: int

    source = Source("crm", (Client,), engine="mariadb")
    waiter = CapturedWaiter(CapturedReader(log, {"crm": source}))
    with pytest.raises(BadParameter, match='positions of "crm" cannot be awaited, because it is mariadb'):
        waiter.read("crm@0/20")


def test_a_counted_row_is_awaited_as_its_contribution(log: MemoryLog) -> None:
    """The key of the table's row is no key of the view, whose patches are all in one partition."""
    service = fake_service(log=log, modules=("listings", "shop", "tests.integration.sources.mirrors"))
    for reader in service.readers.values():
        reader.rows["counted_orders"] = {"paid": {"status": "paid"}}
    stored, topic = service.readers["valkey"], Order.topic()
    offset = log.submit(Entry(topic, '{"id":7}', b"{}", 0), 0).result()
    committed(log, 0x20)

    def ask_counted() -> tuple[int, str]:
        answer = client.get("/views/counted_orders/paid?after=shop@0/20&wait_ms=0")
        return answer.status_code, answer.json().get("type", "").rpartition(":")[2]

    client = AppClient(create_app(service))
    assert ask_counted() == BEHIND
    stored.guards_of["7"] = {f"{topic}/0": offset}
    assert ask_counted() == BEHIND
    stored.guards_of = {contribution_key(topic, "7"): {f"{topic}/0": offset}}
    assert ask_counted() == FRESH
    stored.guards_of = {}
    stored.applied = {partition_of("counted_orders@1/", PARTITIONS): {f"{topic}/0": offset}}
    assert ask_counted() == FRESH
    followed = client.get("/views/counted_orders/changes")
    assert (followed.status_code, followed.json()["view"]) == (409, "counted_orders")
