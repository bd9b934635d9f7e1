"""What a loader says of itself."""

from __future__ import annotations

from headwater.eventlog.programs.metrics import REGISTRY
from headwater.projections.loading.stats import KEPT_LOADS, LoaderStats
from headwater.projections.stores.store import Batch
from headwater.projections.table.patch import Patch, Place


def test_a_report_has_the_counts_and_the_times_of_the_last_batches() -> None:
    stats = LoaderStats(patches=12, batches=3, dead_letters=1, waits_for_store=2)
    assert stats.report("valkey") == (
        "valkey: 12 patches in 3 batches; recent batches took 0.0 ms (p50) and 0.0 ms (p99); 1 dead letters, "
        "2 waits for the store"
    )
    stats.load_s.extend([9.0] * KEPT_LOADS)
    stats.load_s.extend([0.002] * (KEPT_LOADS - 11) + [0.5] * 11)
    assert "2.0 ms (p50) and 500.0 ms (p99)" in stats.report("valkey")


def test_a_row_counts_once_per_batch_whatever_its_partition_or_patches() -> None:
    def rows(view: str) -> float:
        return REGISTRY.get_sample_value("headwater_loader_rows_total", {"store": "counted", "view": view}) or 0.0

    def patches(*keys: str) -> list[Patch]:
        return [Patch(key, "0", Place(1, 0), {}) for key in keys]

    first = Batch(1, {"listings@1": patches("a", "a", "b"), "hourly@2.g3": patches("a")})
    LoaderStats().add_rows("counted", [first, Batch(1, {"listings@1": patches("c")})])
    assert (rows("listings"), rows("hourly")) == (3, 1)


def test_a_report_is_not_due_right_after_the_start() -> None:
    assert not LoaderStats().due()
