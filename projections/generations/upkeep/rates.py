"""How fast this deployment applies events, live and in bulk, and how fast its sources grow."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from headwater.projections.generations.registry.generation import Generation
from headwater.projections.generations.upkeep.lag import Lag
from headwater.projections.generations.upkeep.lag_reader import COUNTED_RECORDS


@dataclass
class Arrivals:
    """The ends of all sources as of the last look, and their growth since the one before."""

    _ends: Mapping[str, int] = field(default_factory=dict)
    _at: float = 0.0
    _per_s: dict[str, float] = field(default_factory=dict)

    def note(self, ends: Mapping[str, int], at: float) -> None:
        """Note the ends of all sources; at: seconds of one clock."""
        seconds = at - self._at
        if self._ends and seconds > 0:
            self._per_s = {source: max(0, end - self._ends.get(source, end)) / seconds for source, end in ends.items()}
        self._ends, self._at = ends, at

    def size(self, sources: Iterable[str]) -> int:
        """The number of offsets of these sources."""
        return sum(self._ends.get(source, 0) for source in sources)

    def per_s(self, sources: Iterable[str]) -> float:
        """Offsets per second that were added to these sources; 0 if they were looked at once."""
        return sum(self._per_s.get(source, 0.0) for source in sources)


log = logging.getLogger(__name__)

LIVE_EVENTS_PER_S: Final = 55_000.0
"""Measured on two cores shared with the servers: the benchmark `live_throughput`."""

BULK_MEASURED_EVENTS: Final = 100_000
"""The duration of a smaller bulk depends mostly on its start."""
BUSY_EVENTS: Final = COUNTED_RECORDS
"""A view that is still this far behind was busy all the time."""
WEIGHT: Final = 0.5
"""Of the latest measured rates."""
WORTHWHILE: Final = 0.1
"""A replay is of use if less than this share of a view's lag arrives in the time that it is expected to last. Beside so
much that arrives it lasts longer: four times in the snapshot of a captured table, in which it delayed all the rest."""


class Bulk(NamedTuple):
    """How fast an engine folds the log. start_s: until it reads, with the rest of a rebuild."""

    start_s: float
    events_per_s: float


LOCAL: Final = Bulk(3.0, 300_000.0)
SPARK: Final = Bulk(10.0, 200_000.0)
"""Measured on two cores shared with the servers: the benchmarks `replay_cli` and `replay`, until they are measured here
(`bulk_rate`)."""


class Rates:
    """The rates of one deployment. file: stores the live rates, in events per second by `view/store`."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._live: dict[str, float] = _read(file)
        self._busy: set[tuple[str, str]] = set()

    def live(self, view: str, store: str) -> float:
        """Events per second that patches bring to a view in a store."""
        return self._live.get(f"{view}/{store}", LIVE_EVENTS_PER_S)

    def note(self, before: Lag, now: Lag, seconds: float) -> None:
        """Learn from two states of a view in a store, `seconds` apart.

        A view that has just begun to make progress is still starting: the first of several busy intervals is ignored.
        """
        key = now.view, now.store
        moved = sum(offset - before.position.get(source, 0) for source, offset in now.position.items())
        if before.generation != now.generation or (now.lag_events or 0) < BUSY_EVENTS or moved <= 0:
            self._busy.discard(key)
        elif key not in self._busy:
            self._busy.add(key)
        else:
            seen, name = moved / seconds, f"{now.view}/{now.store}"
            known = self._live.get(name)
            self._live[name] = round(seen if known is None else known + WEIGHT * (seen - known))
            self._write()

    def _write(self) -> None:
        part = self._file.with_suffix(".part")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps(self._live))
            part.replace(self._file)
        except OSError as error:
            log.warning("cannot store the measured rates for the next start: %s", error)


def bulk_rate(view: str, generations: Iterable[Generation], expected: float) -> float:
    """Events per second that a replay of a view is expected to fold: as the last large one, else `expected`."""
    return last_bulk_rate(view, generations, BULK_MEASURED_EVENTS) or expected


def last_bulk_rate(view: str, generations: Iterable[Generation], min_events: int = 1) -> float | None:
    """Events per second of the last replay of a view, else of any view; None if none has folded so many events."""
    measured = [
        generation for generation in generations if generation.seconds and (generation.events or 0) >= min_events
    ]
    own = [generation for generation in measured if generation.view == view] or measured
    last = max(own, key=lambda generation: generation.created_at, default=None)
    return None if last is None else (last.events or 0) / (last.seconds or 1.0)


def quicker_in_bulk(behind: int, log_size: int, live_per_s: float, bulk: Bulk, arriving_per_s: float = 0.0) -> bool:
    """Whether a view that is `behind` by this many events is up to date sooner by a replay of the log.

    arriving_per_s: events that are appended meanwhile. If they are many, such as the rows of a snapshot that is still
    being taken, the view would be as far behind after the replay, which is better done once they have arrived.
    """
    replay_s = bulk.start_s + log_size / bulk.events_per_s
    return behind / live_per_s > replay_s and arriving_per_s * replay_s <= WORTHWHILE * behind


def _read(file: Path) -> dict[str, float]:
    """The stored rates; empty if they cannot be read, because they will be measured again."""
    try:
        kept = json.loads(file.read_text())
        return {str(name): float(rate) for name, rate in kept.items() if float(rate) > 0}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        log.warning("cannot read the rates in %s, measuring again: %s", file, error)
        return {}
