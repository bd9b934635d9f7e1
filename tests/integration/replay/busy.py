"""A view that lives in every store, and events for it that all lie in one partition of the log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count as numbers

from headwater.eventlog.envelope import Envelope, Position, encode, partition_of, timestamp_ms
from headwater.projections.stores.declared import Cache, Elasticsearch, Postgres
from headwater.projections.table.expressions import Source
from headwater.projections.table.folds import count, last
from headwater.projections.table.view import TableView
from headwater.samples.listings.domain import PriceChanged

BUSY = 0
"""The partition."""

busy_prices = TableView(
    name="busy_prices",
    key="listing_id",
    columns={"price": last({PriceChanged: "price"}), "changes": count(PriceChanged)},
    stores=(Postgres(), Elasticsearch(), Cache()),
)


def changes(partitions: int) -> Iterator[Source]:
    """Price changes without end, of 500 listings of one partition."""
    listings = [f"L{n}" for n in range(500 * 2 * partitions) if partition_of(f"listing/L{n}", partitions) == BUSY][:500]
    for number in numbers():
        name, sequence = listings[number % len(listings)], number // len(listings) + 1
        now, data = datetime.now(UTC), {"listing_id": name, "city": f"C{number % 20}", "price": number}
        changed = Envelope(
            f"listing/{name}/{sequence}",
            PriceChanged.type,
            f"listing/{name}",
            now,
            data | {"previous_price": number // 2},
            data_version=1,
            sequence=sequence,
        )
        yield Source(changed, Position(BUSY, 0), timestamp_ms(now), encode(changed).decode())
