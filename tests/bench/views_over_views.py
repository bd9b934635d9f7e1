"""Bench `views_over_views`: changes of captured rows through one retraction, from `patches` into each store.

Each change moves a row to another group, so that it changes three stored rows: what the row contributes, the group that
it leaves, and the group that it joins. One loader has all patches of the view.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import orjson

from headwater.eventlog.capturing import Captured, Source
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import PATCHES
from headwater.projections.registry import ViewRegistry
from headwater.projections.service import Service
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.declared import Cache, Elasticsearch, Postgres
from headwater.projections.stores.names import patch_key, patch_partition
from headwater.projections.stores.open import open_store
from headwater.projections.table.declared_store import DeclaredStore
from headwater.projections.table.folds import add, average, count
from headwater.projections.table.layout import DELETED
from headwater.projections.table.patch import CHANGED, GROUP, contribution_key, own
from headwater.projections.table.view import TableView
from tests.bench._deployment import own_environment
from tests.bench._waiting import eventually
from tests.bench.replay import bulk_producer

NAMES = ("views_over_views",)
CHANGES, ROWS, GROUPS = 300_000, 50_000, 1_000


class Customer(Captured, table="public.customers", key="id"):
    """A customer in a city."""

    id: int
    city: str
    credit_cents: int


bench_customers = Source("bench", (Customer,))


def run(name: str) -> Iterator[dict[str, Any]]:
    """A line per store."""
    for store in (Postgres(), Elasticsearch(), Cache()):
        with own_environment() as (settings, stores):
            yield _loaded(store, settings, stores)


def _loaded(store: DeclaredStore, settings: LogSettings, stores: StoreSettings) -> dict[str, Any]:
    view = TableView(
        name="bench_customers_per_city",
        key="city",
        columns={
            "customers": count(Customer),
            "credit_cents": add({Customer: "credit_cents"}),
            "mean": average({Customer: "credit_cents"}),
        },
        stores=(store,),
    )
    read_side = Service(settings, stores, ViewRegistry([(__name__, view)]))
    read_side.prepare()
    read_side.build_missing()
    (target,) = read_side.targets([view])
    with closing(KafkaLog(settings)) as log:
        partition = _fill(view, settings, log)
    stop = threading.Event()
    loading = threading.Thread(target=read_side.run_loader, args=(store.name, stop))
    with closing(open_store(store.name, stores)) as opened:
        began = time.monotonic()
        loading.start()
        try:
            eventually(lambda: opened.ledgers(target)[partition].next_offset >= CHANGES, "all is applied", every_s=0.2)
            seconds = time.monotonic() - began
        finally:
            stop.set()
            loading.join()
    return {
        "store": store.name,
        "value": round(CHANGES / seconds),
        "unit": "changes/s",
        "conditions": f"{CHANGES:,} changes of {ROWS:,} rows, each into another of {GROUPS:,} groups with three sums; "
        f"one loader, from its start to the last ledger; {os.cpu_count()} cores shared with the servers",
    }


def _fill(view: TableView, settings: LogSettings, log: KafkaLog) -> int:
    """Append the patches that the live query makes of the changes; returns their partition."""
    chance, topic = random.Random(1), Customer.topic()
    partition = patch_partition(view, view.tag, "", settings.patch_partitions)
    producer = bulk_producer(log)
    for offset in range(CHANGES):
        row, cents = chance.randrange(ROWS), chance.randrange(10_000)
        numbers = (1, cents, cents, 1)
        fields = {DELETED: True, CHANGED: offset, GROUP: f"city {chance.randrange(GROUPS)}"}
        sums = view.layout.retraction.sums  # type: ignore[union-attr]
        fields |= {own(span.name): number for span, number in zip(sums, numbers, strict=True)}
        patch = {"p": f"{topic}/0", "o": offset, "i": 0, "t": 1_767_323_045_678 + offset, "c": fields}
        key = patch_key(view.tag, contribution_key(topic, str(row)))
        producer.produce(settings.topic(PATCHES), orjson.dumps(patch), key, partition)
        if offset % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise TimeoutError("the patches could not be produced")
    return partition
