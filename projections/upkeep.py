"""Looks after the views of a running read side: says how far behind each is, and replays one that lags too far."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final

from eventlog.errors import EventLogError
from projections.errors import ProjectionError
from projections.lag import Lag, Lags
from projections.view import TableView

log = logging.getLogger(__name__)

LOOK_S: Final = 10.0
REPORT_EVERY: Final = 6
"""Looks; what changes for the worse is told at once."""

RETRY_S: Final = 600.0
"""Between two replays of a view of which the first failed."""

LIVE_EVENTS_PER_S: Final = 10_000
BULK_EVENTS_PER_S: Final = 100_000
BULK_START_S: Final = 20.0
"""Rates of two cores shared with the servers, on the careful side: where both are near, patches go on."""


@dataclass
class Upkeep:
    """The upkeep of one deployment's views.

    replaying: gives, for as long as it is entered, what rebuilds a view; all of them share what is slow to start.
    """

    lags: Lags
    replaying: Callable[[], AbstractContextManager[Callable[[TableView], object]]]
    _before: list[Lag] = field(default_factory=list)
    _looks: int = 0
    _not_before: dict[str, float] = field(default_factory=dict)

    def run(self, stop: threading.Event) -> None:
        """Look until `stop` is set; what goes wrong is logged, and looked at again."""
        while not stop.wait(LOOK_S):
            try:
                self.look()
            except (EventLogError, ProjectionError) as error:
                log.warning("no look at the views: %s", error)
            except Exception:  # nobody else looks, and the next time may be better
                log.exception("no look at the views")

    def look(self) -> list[Lag]:
        """Look once: report what changed, and replay the views that need it. Returns what was found."""
        ends, before = self.lags.ends(), {(each.view, each.store): each for each in self._before}
        found = [
            each.since(before[each.view, each.store], ends) if (each.view, each.store) in before else each
            for each in self.lags.look()
        ]
        for each in found:
            last = before.get((each.view, each.store))
            if each.standing not in ("caught up", "behind") and (last is None or last.standing != each.standing):
                log.warning("%s in %s is %s: %s", each.view, each.store, each.standing, each.problem)
            elif self._looks % REPORT_EVERY == 0 or (last is not None and last.problem and not each.problem):
                log.info(*_report(each))
        self._looks += 1
        self._before = found
        now = time.monotonic()
        due = [name for name in to_replay(found, sum(ends.values())) if now > self._not_before.get(name, float("-inf"))]
        if due:
            self._replay(due)
        return found

    def _replay(self, names: Sequence[str]) -> None:
        with self.replaying() as replay:
            for name in names:
                log.warning("replaying %s: it is too far behind for patches", name)
                try:
                    replay(self.lags.views.view(name))
                except ProjectionError as error:
                    log.error("%s; trying again in %.0f s", error, RETRY_S)
                    self._not_before[name] = time.monotonic() + RETRY_S


def to_replay(lags: Iterable[Lag], log_size: int) -> list[str]:
    """The views that can only be replayed, or that are sooner up to date that way.

    log_size: how many offsets `events` holds.
    """
    return list(
        {
            each.view: None
            for each in lags
            if each.standing == "lost" or (each.lag_events is not None and quicker_in_bulk(each.lag_events, log_size))
        }
    )


def quicker_in_bulk(behind: int, log_size: int) -> bool:
    """Whether a view that is `behind` by so many events is up to date sooner after a replay of the log's events."""
    return behind / LIVE_EVENTS_PER_S > BULK_START_S + log_size / BULK_EVENTS_PER_S


def _report(lag: Lag) -> tuple[object, ...]:
    position = " ".join(f"{partition}:{offset}" for partition, offset in sorted(lag.position.items()))
    told = "%s g%s in %s at %s: %s, %s events and %s patches to go, %.1f s behind"
    return (
        told, lag.view, lag.generation, lag.store, position, lag.standing,
        lag.lag_events, lag.lag_patches, lag.freshness_s or 0.0,
    )  # fmt: skip
