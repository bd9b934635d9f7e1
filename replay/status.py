"""Where each view stands in each of its stores: its generation, its position in the log, and how far it is behind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from eventlog.topics import EVENTS
from projections.errors import StoreUnavailable
from projections.stores.open import open_store
from projections.stores.store import Ledger, Target
from replay.deployment import Deployment

COUNTED_RECORDS = 20_000
"""Up to here, what lies between a position and the end is read and counted; beyond, offsets are subtracted."""


@dataclass(frozen=True)
class Status:
    """One view in one store.

    position: the next event offset that is not known to be applied, by partition. lag_events: events after it.
    freshness_s: the age of the oldest of these; 0 when there is none. problem: why the store could not tell.
    """

    view: str
    store: str
    version: int
    generation: int | None
    position: dict[int, int]
    lag_events: int | None
    freshness_s: float | None
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """The fields, for `--json`."""
        return asdict(self)


def statuses(deployment: Deployment) -> Iterator[Status]:
    """The status of every registered view in every store that it lives in."""
    live = deployment.generations.live()
    ends = {each: deployment.log.end(EVENTS, each) for each in range(deployment.settings.partitions)}
    for view in deployment.views.views.values():
        for declared in view.stores:
            generation = live.get(view.name)
            if generation is None:
                problem = "not built yet: start `python -m projections`, or rebuild it"
                yield Status(view.name, declared.name, view.version, None, {}, None, None, problem)
                continue
            store = open_store(declared.name, deployment.stores)
            try:
                ledgers = store.ledgers(Target(view, generation.generation))
            except StoreUnavailable as error:
                number = generation.generation
                yield Status(view.name, declared.name, generation.version, number, {}, None, None, str(error))
                continue
            finally:
                store.close()
            position = {each: _applied(ledgers, each) for each in ends}
            lag, freshness_s = _lag(deployment, position, ends)
            yield Status(
                view.name, declared.name, generation.version, generation.generation, position, lag, freshness_s
            )


def _applied(ledgers: dict[int, Ledger], source: int) -> int:
    """The event offset below which everything of `source` is applied: what every patches partition has reached."""
    reached = [ledger.applied[source].offset + 1 if source in ledger.applied else 0 for ledger in ledgers.values()]
    return min(reached, default=0)


def _lag(deployment: Deployment, position: dict[int, int], ends: dict[int, int]) -> tuple[int, float]:
    lag, oldest_ms = 0, time.time() * 1000
    now_ms = oldest_ms
    for source, end in ends.items():
        start = position[source]
        far = end - start > COUNTED_RECORDS
        for record in deployment.log.read(EVENTS, source, start, min(end, start + COUNTED_RECORDS)):
            if not record.key.startswith("heartbeat/"):
                lag += 0 if far else 1
                oldest_ms = min(oldest_ms, record.timestamp_ms)
        lag += end - start if far else 0
    return lag, round(max(0.0, now_ms - oldest_ms) / 1000, 3)
