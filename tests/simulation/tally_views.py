"""Views over tallies, in every store."""

from __future__ import annotations

from headwater.projections.stores.declared import Cache, Elasticsearch, Postgres
from headwater.projections.table.folds import count, distinct, last, maximum
from headwater.projections.table.view import TableView
from tests.simulation.tally import Added

EVERYWHERE = (Postgres(), Elasticsearch(), Cache())

tallies = TableView(
    name="tallies",
    key="tally_id",
    columns={"count": last({Added: "count"}), "added": count(Added), "highest": maximum({Added: "count"})},
    stores=EVERYWHERE,
)
marks = TableView(
    name="marks",
    key="mark",
    columns={"added": count(Added), "tally": last({Added: "tally_id"}), "tallies": distinct({Added: "tally_id"})},
    stores=EVERYWHERE,
)
