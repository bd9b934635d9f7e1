"""Upkeep of the views of a running read side: reports their lag, replays views that are too far behind, and restarts
parts that make no progress.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from headwater.eventlog.errors import EventLogError
from headwater.eventlog.source_positions import positions_text, topic_and_partition
from headwater.projections.errors import ProjectionError
from headwater.projections.generations.registry.generation import sees_deletions
from headwater.projections.generations.upkeep.lag import QUERIES, Lag, Moves, Stalls
from headwater.projections.generations.upkeep.lag_reader import COUNTED_RECORDS, Lags
from headwater.projections.generations.upkeep.rates import LOCAL, Arrivals, Bulk, Rates, bulk_rate, quicker_in_bulk
from headwater.projections.running_parts import LIVE, NO_PARTS, RunningParts
from headwater.projections.view import View

NOTED_S: Final = 600.0
"""Seconds after which it is recorded again that a generation is kept up."""


@dataclass
class KeptNotes:
    """When it was recorded last that generations are kept up, by view, generation and store; seconds of one clock."""

    _noted: dict[tuple[str, int, str], float] = field(default_factory=dict)

    def due(self, lags: Iterable[Lag], views: Mapping[str, View], now: float) -> list[tuple[str, int, str, float]]:
        """What to record: view, generation, store, and the age in seconds of the oldest event that is not applied."""
        due_rows = []
        for lag in lags:
            if lag.standing not in ("caught up", "behind") or lag.generation is None or lag.read_freshness_s is None:
                continue
            place = (lag.view, lag.generation, lag.store)
            if now - self._noted.get(place, -NOTED_S) >= NOTED_S and sees_deletions(views[lag.view]):
                self._noted[place] = now
                due_rows.append((*place, lag.read_freshness_s))
        return due_rows


PAUSE_S: Final = 60.0
"""After the second replay in a row; it doubles from one replay to the next."""
MAX_PAUSE_S: Final = 3600.0
SETTLED_S: Final = 600.0
"""A view that needs no replay for so long after one was helped by it."""


@dataclass
class _Replayed:
    in_a_row: int
    until: float


@dataclass
class Repeats:
    """Replays that followed one another. Times are seconds of one clock."""

    _views: dict[str, _Replayed] = field(default_factory=dict)

    def may_replay(self, view: str, now: float) -> bool:
        """Whether its pause is over."""
        return view not in self._views or now >= self._views[view].until

    def note(self, view: str, now: float) -> tuple[int, float]:
        """Note that a view has been replayed; returns how often in a row, and the seconds until it may be again."""
        before = self._views.get(view)
        in_a_row = 1 if before is None or now > before.until + SETTLED_S else before.in_a_row + 1
        pause_s = min(MAX_PAUSE_S, PAUSE_S * 2 ** (in_a_row - 2)) if in_a_row > 1 else 0.0
        self._views[view] = _Replayed(in_a_row, now + pause_s)
        return in_a_row, pause_s

    def forget_helped(self, found: Iterable[Lag]) -> None:
        """Forget the replays of views that are caught up in all their stores."""
        behind, every = set[str](), set[str]()
        for lag in found:
            every.add(lag.view)
            if lag.standing != "caught up":
                behind.add(lag.view)
        for view in every - behind:
            self._views.pop(view, None)


log = logging.getLogger(__name__)

LOOK_S: Final = 10.0
"""Seconds between checks."""
REPORT_EVERY: Final = 6
"""The number of checks between two reports of a view; a change for the worse is logged immediately."""
RETRY_S: Final = 600.0
"""Time until a failed replay of a view is tried again."""
FIRST_RETRY_S: Final = 60.0
"""Time until a view is tried again that the start could not build: a store may have started later."""

Replay = Callable[[Sequence[View]], Iterable[tuple[View, object]]]
"""Rebuilds views in one pass over the log; yields each with its result, or the error."""


@dataclass
class Upkeep:
    """The upkeep of one deployment's views.

    replaying: a context that returns what rebuilds views. rates: decide between patches and a replay, and are measured
    on the way. parts: what can be restarted here. bulk: the expected speed of a replay of a view from so many offsets.
    unbuilt: the views that are not built; the start has tried it shortly before the first check. show: gets, by topic
    and partition, how far the live query is at least. beside: does work beside the checks, as a thread does; at most
    one replay of views that are folded, and one of views with a query of their own, which may take hours.
    """

    lags: Lags
    replaying: Callable[[], AbstractContextManager[Replay]]
    rates: Rates
    parts: RunningParts = NO_PARTS
    bulk: Callable[[View, int], Bulk] = lambda _view, _offsets: LOCAL
    unbuilt: Callable[[], Sequence[View]] = tuple
    show: Callable[[Mapping[tuple[str, int], int]], None] = lambda _: None
    beside: Callable[[Callable[[], None]], object] = lambda work: work()
    _running: set[str] = field(default_factory=set)
    """The views that are replayed now."""
    _backlog: set[str] = field(default_factory=set)
    """Those of the first check of which the live query need not make patches until they are replayed."""
    _last: _Look = field(default_factory=lambda: _Look({}, 0.0, {}))
    _replayed: bool = False
    """Since the last check: that takes the processors, so what comes meanwhile says nothing about the rates."""
    _looks: int = 0
    _moves: Moves = field(default_factory=Moves)
    _not_before: dict[str, float] = field(default_factory=dict)
    _others: list[str] = field(default_factory=list)
    _arrivals: Arrivals = field(default_factory=Arrivals)
    _stalls: Stalls = field(default_factory=Stalls)
    _repeats: Repeats = field(default_factory=Repeats)
    _kept: KeptNotes = field(default_factory=KeptNotes)

    def run(self, stop: threading.Event) -> None:
        """Check until `stop` is set; errors are logged, and the check is repeated."""
        while not stop.wait(LOOK_S):
            self.try_to_look()

    def try_to_look(self, *, only_folded: bool = False) -> None:
        """Check once, see `look`; errors are logged."""
        with _logged():
            self.look(only_folded=only_folded)

    def try_to_replay_others(self) -> None:
        """Replay the views that the last check has left out; errors are logged."""
        others, self._others = self._others, []
        self._begin(others)

    @property
    def is_replaying(self) -> bool:
        """Whether views are replayed now."""
        return bool(self._running)

    @property
    def replays_backlog(self) -> bool:
        """Whether views are replayed of which patches would take longer: the live query waits for these."""
        return bool(self._running & self._backlog)

    def look(self, *, only_folded: bool = False) -> list[Lag]:
        """Check once: report changes, replay the views that need it, and restart parts that make no progress.

        only_folded: leave the replay of views with a query of their own to `try_to_replay_others`: it may take hours,
        and nothing else is replayed meanwhile. The start has not tried to build them.

        Returns the state of the views.
        """
        is_first, last = not self._looks, self._last
        ends, at = self.lags.ends(), time.monotonic()
        every_s = {name: view.every_s for name, view in self._views.items()}
        lags = self._moves.judged(self.lags.look(), ends, at, every_s)
        now = self._last = _Look(ends, at, {(lag.view, lag.store): lag for lag in lags})
        for current in now.lags:
            if not self._replayed and (before := last.of(current)):
                self.rates.note(before, current, now.at - last.at)
        self._replayed = False
        self._arrivals.note(now.ends, now.at)
        self._report(last, now)
        self.show(live_positions(now.lags))
        self._looks += 1
        for part, lag in self._stalls.due(now.lags, now.ends, self.parts).items():
            log.warning(
                "restarting %s: %s in %s has made no progress for too long; if it does not help, again in %.0f s",
                QUERIES.get(part, f"the loaders of {part}"),
                lag.view, lag.store, LOOK_S * self._stalls.looks_needed(part),
            )  # fmt: skip
            self.parts.restart(part)
        for noted in self._kept.due(now.lags, self._views, time.monotonic()):
            self.lags.generations.note_kept(*noted)
        self._repeats.forget_helped(now.lags)
        others = self.lags.views.queried if only_folded else frozenset[str]()
        due = self._due(now, just_tried=self._views.keys() - others if is_first else frozenset())
        self._others = [name for name in due if name in others]
        if is_first:
            self._backlog = self._backlog_of(now.lags, due)
        self._begin([name for name in due if name not in others])
        return now.lags

    def _backlog_of(self, lags: Sequence[Lag], due: Sequence[str]) -> set[str]:
        """The views of the live query to replay that are behind; and those with a topic of which no other view says
        where it begins: it would begin with the first record.
        """
        folded = self._views.keys() - self.lags.views.queried
        counting = {lag.view for lag in lags} - {lag.view for lag in lags if lag.standing in ("lost", "not built")}
        read = {topic for name in folded & counting - {*due} for topic in self._views[name].topics}
        behind = {lag.view for lag in lags if lag.standing == "behind"}
        return {name for name in folded & {*due} if name in behind or not read.issuperset(self._views[name].topics)}

    def _begin(self, names: Sequence[str]) -> None:
        """Replay views beside the checks; those of a kind that is replayed now wait for a later check."""
        self._replayed = self._replayed or self.is_replaying
        for kind in (self._views.keys() - self.lags.views.queried, self.lags.views.queried):
            if (some := [name for name in names if name in kind]) and not self._running & kind:
                self._running |= set(some)
                self._replayed = True
                self.beside(partial(self._replay, some))

    @property
    def _views(self) -> Mapping[str, View]:
        return self.lags.views.views

    def _report(self, last: _Look, now: _Look) -> None:
        """Log what is worse or better than before, and everything once in a while."""
        for lag in now.lags:
            before = last.of(lag)
            if lag.standing not in ("caught up", "behind") and (before is None or before.standing != lag.standing):
                log.warning("%s in %s is %s: %s", lag.view, lag.store, lag.standing, lag.problem)
            elif self._looks % REPORT_EVERY == 0 or (before is not None and before.problem and not lag.problem):
                log.info(
                    "%s g%s in %s at %s: %s, %s events and %s patches left, %.1f s behind",
                    lag.view, lag.generation, lag.store, positions_text(lag.position), lag.standing,
                    lag.lag_events, lag.lag_patches, lag.freshness_s or 0.0,
                )  # fmt: skip

    def _due(self, now: _Look, just_tried: Set[str]) -> list[str]:
        """The views to replay now. just_tried: those that the start may have tried to build a moment ago."""
        unbuilt, at = [view.name for view in self.unbuilt()], time.monotonic()
        self._not_before |= dict.fromkeys(just_tried & set(unbuilt), at + FIRST_RETRY_S)
        return [
            name
            for name in dict.fromkeys([*unbuilt, *self._to_replay(now.lags)])
            if at > self._not_before.get(name, -math.inf) and self._repeats.may_replay(name, at)
            if name not in self._running
        ]

    def _to_replay(self, lags: Sequence[Lag]) -> list[str]:
        """The views that are lost, or that a replay brings up to date sooner."""
        # at these rates most checks rule out a replay without asking the registry
        if all(lag.standing != "lost" and (lag.lag_events or 0) < COUNTED_RECORDS for lag in lags):
            return []
        generations = self.lags.generations.all()

        def is_quicker(lag: Lag) -> bool:
            # a query reads only what is missing, and a rebuild reads all by the same query
            if lag.view in self.lags.views.queried:
                return False
            size = self._arrivals.size(lag.position)
            expected = self.bulk(self.lags.views.view(lag.view), size)
            bulk = expected._replace(events_per_s=bulk_rate(lag.view, generations, expected.events_per_s))
            live, arriving = self.rates.live(lag.view, lag.store), self._arrivals.per_s(lag.position)
            return quicker_in_bulk(lag.lag_events or 0, size, live, bulk, arriving)

        return to_replay(lags, is_quicker)

    def _replay(self, names: Sequence[str]) -> None:
        """Replay views, which are running; errors are logged."""
        for name in names:
            log.warning("replaying %s: it is not built, or too far behind to catch up with patches", name)
        left = dict.fromkeys(names)
        try:
            with _logged(), self.replaying() as replay:
                for view, outcome in replay([self.lags.views.view(name) for name in names]):
                    left.pop(view.name)
                    if isinstance(outcome, Exception):
                        log.error("%s; retrying in %.0f s", outcome, RETRY_S)
                        self._not_before[view.name] = time.monotonic() + RETRY_S
                        continue
                    # if earlier ones did not help, wait before the next one
                    in_a_row, pause_s = self._repeats.note(view.name, time.monotonic())
                    if pause_s:
                        log.warning(
                            "%s has been replayed %d times in a row: its rows may change faster than loaders write "
                            "them (HEADWATER_LOADERS); it is replayed again in %.0f s at the earliest",
                            view.name, in_a_row, pause_s,
                        )  # fmt: skip
                        self.lags.generations.note_replays(view, in_a_row, pause_s)
        finally:
            self._not_before |= dict.fromkeys(left, time.monotonic() + RETRY_S)
            self._running -= set(names)


@dataclass(frozen=True)
class _Look:
    """What a check has found: the ends of sources, and views by name and store. at: seconds of the monotonic clock."""

    ends: Mapping[str, int]
    at: float
    found: Mapping[tuple[str, str], Lag]

    @property
    def lags(self) -> list[Lag]:
        """The state of all views."""
        return list(self.found.values())

    def of(self, lag: Lag) -> Lag | None:
        """The state of the same view in the same store."""
        return self.found.get((lag.view, lag.store))


def to_replay(lags: Iterable[Lag], quicker: Callable[[Lag], bool]) -> list[str]:
    """The views that only a replay can bring up to date, or that a replay brings up to date sooner."""
    loaded = [lag for lag in lags if lag.standing != "paused"]
    return list({lag.view: None for lag in loaded if lag.standing == "lost" or (lag.lag_events and quicker(lag))})


def live_positions(lags: Iterable[Lag]) -> dict[tuple[str, int], int]:
    """By topic and partition, how far the live query is at least: the view that is furthest has everything before."""
    positions: dict[tuple[str, int], int] = {}
    for lag in lags:
        for source, at in lag.position.items() if lag.query == LIVE else ():
            place = topic_and_partition(source)
            positions[place] = max(at, positions.get(place, 0))
    return positions


@contextmanager
def _logged() -> Iterator[None]:
    """Log errors: nobody else checks, and the next check may succeed."""
    try:
        yield
    except (EventLogError, ProjectionError) as error:
        log.warning("cannot check the views: %s", error)
    except Exception:
        log.exception("cannot check the views")
