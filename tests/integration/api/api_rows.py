"""Seeded events with strange ids, and generations of views that the stores themselves write from them."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from elasticsearch import Elasticsearch

from headwater.eventlog.envelope import Envelope, Position, encode, partition_of, timestamp_ms
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.reading import reader
from headwater.projections.registry import ViewRegistry
from headwater.projections.stores.names import index_name, patch_key
from headwater.projections.stores.open import open_store
from headwater.projections.stores.store import Batch, Target
from headwater.projections.stream.view import BATCH
from headwater.projections.table.expressions import Source
from headwater.projections.table.patch import BATCHES, Patch, Place
from headwater.projections.table.view import TableView
from headwater.projections.testing.rows import answered_rows
from tests.integration.api.api_deployment import Deployment
from tests.support.table_views import table_views
from tests.support.waiting import eventually

CITIES = ("SACRAMENTO", "GALT", "ELK GROVE", "Zürich/West 100%", "o'hara")
PARTITIONS = range(4)


def sources(number: int) -> list[Source]:
    """Listings with strange ids, some repriced, some withdrawn; seeded."""
    chance = random.Random(7)
    found: list[Source] = []
    offsets = dict.fromkeys(PARTITIONS, 0)
    start = datetime(2026, 1, 1, tzinfo=UTC)

    def happened(listing_id: str, version: int, kind: str, **data: Any) -> None:
        stream = f"listing/{listing_id}"
        time = start + timedelta(seconds=len(found), milliseconds=chance.randrange(1000))
        body = {"listing_id": listing_id} | data
        envelope = Envelope(f"{stream}/{version}", kind, stream, time, body, sequence=version)
        partition = partition_of(stream, 4)
        offsets[partition] += 2
        position = Position(partition, offsets[partition])
        found.append(Source(envelope, position, timestamp_ms(time), encode(envelope).decode()))

    for n in range(number):
        listing_id = f"L{n}" if n % 3 else f"ü/{n} %2F'\"\\"
        city, price = chance.choice(CITIES), chance.choice((100, 200, 300, 400))
        details = {"zip": "z95815", "property_type": "Condo", "beds": n % 5, "baths": 1.5, "square_feet": 500 + n}
        place = {"latitude": 38.5, "longitude": -121.25, "description": f"number {n}"}
        happened(listing_id, 1, "listing.listed", city=city, price=price, **details, **place)
        if n % 2:
            happened(listing_id, 2, "listing.price_changed", city=city, price=price + 50, previous_price=price)
        if n % 7 == 3:
            square_feet = 500 + n
            withdrawn = {"price": price + 50 if n % 2 else price, "square_feet": square_feet, "under_offer": False}
            happened(listing_id, 3 if n % 2 else 2, "listing.withdrawn", city=city, **withdrawn)
    return found


SOURCES = sources(60)


def load(deployment: Deployment, name: str, found: list[Source]) -> Target:
    """Make a new generation of a shipped view, apply every event to it, and make it live."""
    return load_view(deployment, table_views()[name], found)


def load_view(
    deployment: Deployment,
    view: TableView,
    found: list[Source],
    source: str | None = None,
    selection: str | None = None,
) -> Target:
    """Make a new generation of a view, apply every event to it, and make it live; source, selection: as of `--as`."""
    registry = Generations(deployment.stores.postgres, deployment.stores.environment)
    registry.prepare()
    base = {} if source is None else dict.fromkeys(map(str, PARTITIONS), 1042)
    begun = registry.begin(view, base, dict.fromkeys(PARTITIONS, 0), {}, source, selection)
    target = Target(view, begun.generation)
    batches = batches_of(view, found, len(found))
    for declared in view.stores:
        store = open_store(declared.name, deployment.stores)
        store.create(target, {}, dict.fromkeys(PARTITIONS, 0))
        store.finish(target)
        store.apply([target], batches)
        store.publish(target)
        store.close()
    registry.swap(view.name, begun.generation)
    return target


def load_sellers(deployment: Deployment, cents: dict[str, int]) -> Target:
    """Make a new generation of `top_sellers` with these rows, in its stores, and make it live."""
    view = ViewRegistry.load(["shop_floor"]).views["top_sellers"]
    registry = Generations(deployment.stores.postgres, deployment.stores.environment)
    registry.prepare()
    target = Target(view, registry.begin(view, {}, {0: 0}, {}).generation)
    rows = {key: {BATCH: 1, "pieces": 1, "cents": number} for key, number in cents.items()}
    patches = [Patch(key, BATCHES, Place(1, 0), fields) for key, fields in rows.items()]
    for declared in view.stores:
        store = open_store(declared.name, deployment.stores)
        store.create(target, {}, {0: 0})
        store.finish(target)
        store.apply([target], {0: Batch(1, {target.tag: patches})})
        store.close()
    registry.swap(view.name, target.generation)
    return target


def batches_of(view: TableView, found: list[Source], end: int) -> dict[int, Batch]:
    """The patches of events, as a loader gives them to a store; each partition of `patches` ends at `end`."""
    batches = {partition: Batch(next_offset=end) for partition in PARTITIONS}
    for source in found:
        for patch in reader.lift(view, source):
            batches[partition_of(patch_key(view.tag, patch.key), 4)].patches.setdefault(view.tag, []).append(patch)
    return batches


def expected(name: str) -> dict[str, dict[str, Any]]:
    """The rows of a view as the reference folds them, and the API answers them."""
    view = table_views()[name]
    return answered_rows(view, reader.fold(view, SOURCES))


def wait_for_generation(api: httpx.Client, name: str, target: Target) -> None:
    """Until this generation answers: the API asks the registry at most every 250 ms."""

    def answers() -> bool:
        found = api.get(f"/views/{name}?limit=1").headers.get("headwater-generation")
        return bool(found == str(target.generation))

    eventually(answers, "the new generation answers")


def make_visible(deployment: Deployment, target: Target) -> None:
    """Let searches find everything that was written to Elasticsearch."""
    with Elasticsearch(deployment.stores.elasticsearch) as client:
        client.indices.refresh(index=index_name(deployment.stores.environment, *target.id))


def every_row(api: httpx.Client, path: str) -> list[dict[str, Any]]:
    """The rows of all pages from `path` on."""
    rows: list[dict[str, Any]] = []
    following: str | None = path
    while following:
        answer = api.get(following)
        assert answer.status_code == 200, answer.text
        rows += answer.json()["rows"]
        following = answer.json()["links"].get("next")
    return rows
