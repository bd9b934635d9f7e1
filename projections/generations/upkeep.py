"""Looks after the views of a running read side: says how far behind each is, replays one that lags too far, and
restarts the part that holds one up."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final

from eventlog.errors import EventLogError
from projections.errors import ProjectionError
from projections.generations.lag import COUNTED_RECORDS, Lag, Lags
from projections.generations.rates import Rates, bulk_rate, quicker_in_bulk
from projections.generations.registry import Generation
from projections.generations.stalls import Stalls
from projections.parts import LIVE, NoParts, Parts
from projections.table.view import TableView

log = logging.getLogger(__name__)

LOOK_S: Final = 10.0
REPORT_EVERY: Final = 6
"""Looks; what changes for the worse is logged at once."""

RETRY_S: Final = 600.0
"""Between two replays of a view of which the first failed."""


@dataclass
class Upkeep:
    """The upkeep of one deployment's views.

    replaying: gives, for as long as it is entered, what rebuilds a view; all of them share what is slow to start.
    rates: decide between patches and a replay, and are measured on the way. parts: what can be restarted here.
    """

    lags: Lags
    replaying: Callable[[], AbstractContextManager[Callable[[TableView], object]]]
    rates: Rates
    parts: Parts = field(default_factory=NoParts)
    _before: list[Lag] = field(default_factory=list)
    _looked: float | None = None
    _looks: int = 0
    _not_before: dict[str, float] = field(default_factory=dict)
    _stalls: Stalls = field(default_factory=Stalls)

    def run(self, stop: threading.Event) -> None:
        """Look until `stop` is set; what goes wrong is logged, and looked at again."""
        while not stop.wait(LOOK_S):
            self.try_to_look()

    def try_to_look(self) -> None:
        """Look once; what goes wrong is logged."""
        try:
            self.look()
        except (EventLogError, ProjectionError) as error:
            log.warning("cannot check the views: %s", error)
        except Exception:  # nobody else looks, and the next time may be better
            log.exception("cannot check the views")

    def look(self) -> list[Lag]:
        """Look once: report what changed, replay the views that need it, and restart what has stood still for long.

        Returns what was found.
        """
        ends, before = self.lags.ends(), {(each.view, each.store): each for each in self._before}
        looked = time.monotonic()
        found = [
            each.since(before[each.view, each.store], ends) if (each.view, each.store) in before else each
            for each in self.lags.look()
        ]
        for each in found:
            last = before.get((each.view, each.store))
            if last is not None and self._looked is not None:
                self.rates.note(last, each, looked - self._looked)
            self._report(each, last)
        self._looks += 1
        self._before, self._looked = found, looked
        self._restart(self._stalls.due(found, ends, self.parts))
        now = time.monotonic()
        due = [
            name for name in self._to_replay(found, sum(ends.values())) if now > self._not_before.get(name, -math.inf)
        ]
        if due:
            self._replay(due)
            self._looked = None  # a replay takes the processors: what came meanwhile says nothing of the rates
        return found

    def _report(self, each: Lag, last: Lag | None) -> None:
        if each.standing not in ("caught up", "behind") and (last is None or last.standing != each.standing):
            log.warning("%s in %s is %s: %s", each.view, each.store, each.standing, each.problem)
        elif self._looks % REPORT_EVERY == 0 or (last is not None and last.problem and not each.problem):
            log.info(*_line(each))

    def _restart(self, due: Mapping[str, Lag]) -> None:
        for part, lag in due.items():
            log.warning(
                "restarting %s: %s in %s has made no progress for a minute; if it does not help, again in %.0f s",
                "the live query" if part == LIVE else f"the loaders of {part}",
                lag.view, lag.store, LOOK_S * self._stalls.looks_needed(part),
            )  # fmt: skip
            self.parts.restart(part)

    def _to_replay(self, found: Sequence[Lag], log_size: int) -> list[str]:
        # at these rates a replay is out of the question for most looks, and the registry need not be asked
        if all(each.standing != "lost" and (each.lag_events or 0) < COUNTED_RECORDS for each in found):
            return []
        return to_replay(found, log_size, self.rates, self.lags.generations.all())

    def _replay(self, names: Sequence[str]) -> None:
        with self.replaying() as replay:
            for name in names:
                log.warning("replaying %s: it is too far behind to catch up with patches", name)
                try:
                    replay(self.lags.views.view(name))
                except ProjectionError as error:
                    log.error("%s; retrying in %.0f s", error, RETRY_S)
                    self._not_before[name] = time.monotonic() + RETRY_S


def to_replay(lags: Iterable[Lag], log_size: int, rates: Rates, generations: Sequence[Generation]) -> list[str]:
    """The views that can only be replayed, or that are sooner up to date that way.

    log_size: how many offsets `events` holds. generations: tell how fast replays were.
    """

    def quicker(lag: Lag) -> bool:
        live, bulk = rates.live(lag.view, lag.store), bulk_rate(lag.view, generations)
        return lag.lag_events is not None and quicker_in_bulk(lag.lag_events, log_size, live, bulk)

    return list({each.view: None for each in lags if each.standing == "lost" or quicker(each)})


def _line(lag: Lag) -> tuple[object, ...]:
    position = " ".join(f"{partition}:{offset}" for partition, offset in sorted(lag.position.items()))
    template = "%s g%s in %s at %s: %s, %s events and %s patches left, %.1f s behind"
    return (
        template, lag.view, lag.generation, lag.store, position, lag.standing,
        lag.lag_events, lag.lag_patches, lag.freshness_s or 0.0,
    )  # fmt: skip
