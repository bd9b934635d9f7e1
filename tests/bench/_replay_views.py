"""The view that the bench `replay_cli` rebuilds, as a user's module declares it."""

from __future__ import annotations

from projections.table.view import Postgres, TableView
from tests.bench.replay import PRICES

bench_prices = TableView(name="bench_prices", key="listing_id", columns=PRICES, stores=(Postgres(),))
