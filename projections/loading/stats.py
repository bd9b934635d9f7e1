"""The statistics of a loader, logged once per minute."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from headwater.projections.metrics import BATCH_SECONDS, LETTERS, LOADED_ROWS, STORE_WAITS
from headwater.projections.stores.store import Batch

REPORT_S: Final = 60.0
KEPT_LOADS: Final = 1_000


@dataclass
class LoaderStats:
    """Counts since the loader started, for its log and for Prometheus; read from other threads.

    load_s: how long the store took for each of the latest batches.
    """

    patches: int = 0
    batches: int = 0
    dead_letters: int = 0
    waits_for_store: int = 0
    load_s: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT_LOADS))
    _reported: float = field(default_factory=time.monotonic)

    def add_batch(self, store: str, took_s: float) -> None:
        """Count a batch that the store has applied."""
        self.batches += 1
        self.load_s.append(took_s)
        BATCH_SECONDS.labels(store).observe(took_s)

    def add_rows(self, store: str, batches: Iterable[Batch]) -> None:
        """Count the rows that the patches of these batches are for."""
        keys: dict[str, set[str]] = {}
        for batch in batches:
            for tag, patches in batch.patches.items():
                keys.setdefault(tag, set()).update(patch.key for patch in patches)
        for tag, found in keys.items():
            LOADED_ROWS.labels(store, tag.partition("@")[0]).inc(len(found))

    def add_dead_letters(self, store: str, number: int) -> None:
        """Count patches that became dead letters."""
        self.dead_letters += number
        LETTERS.labels(store).inc(number)

    def add_wait(self, store: str) -> None:
        """Count a call that is repeated, because the store did not answer."""
        self.waits_for_store += 1
        STORE_WAITS.labels(store).inc()

    def due(self) -> bool:
        """Whether a report is due; true once each time."""
        if time.monotonic() - self._reported < REPORT_S:
            return False
        self._reported = time.monotonic()
        return True

    def report(self, store: str) -> str:
        """One line: what was loaded since the start, and how long the store took recently."""
        times = sorted(self.load_s) or [0.0]
        median, slow = statistics.median(times), times[int(len(times) * 0.99)]
        return (
            f"{store}: {self.patches} patches in {self.batches} batches; recent batches took {median * 1000:.1f} ms "
            f"(p50) and {slow * 1000:.1f} ms (p99); {self.dead_letters} dead letters, "
            f"{self.waits_for_store} waits for the store"
        )
