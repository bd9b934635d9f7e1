"""What a loader measures."""

from __future__ import annotations

from headwater.eventlog.programs.metrics import REGISTRY
from headwater.projections.loading.loader import count_rows
from headwater.projections.stores.store import Batch
from headwater.projections.table.patch import Patch, Place


def test_a_row_counts_once_per_batch_whatever_its_partition_or_patches() -> None:
    def rows(view: str) -> float:
        return REGISTRY.get_sample_value("headwater_loader_rows_total", {"store": "counted", "view": view}) or 0.0

    def patches(*keys: str) -> list[Patch]:
        return [Patch(key, "0", Place(1, 0), {}) for key in keys]

    first = Batch(1, {"listings@1": patches("a", "a", "b"), "hourly@2.g3": patches("a")})
    count_rows("counted", [first, Batch(1, {"listings@1": patches("c")})])
    assert (rows("listings"), rows("hourly")) == (3, 1)
