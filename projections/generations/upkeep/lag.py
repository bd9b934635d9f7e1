"""The state of a view in one of its stores, and whether it, or what makes it, is stalled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, Protocol

from headwater.projections.generations.registry.state_files import StreamReport
from headwater.projections.running_parts import LIVE, STREAMS, RunningParts

QUERIES: Final = {LIVE: "the live query", STREAMS: "the query of the stream view"}

Fault = Literal["nobody", "live query", "stream query", "loader", "store"]
"""The part at fault if a view needs attention; nobody: an operator must do something, although all parts work."""

Standing = Literal["caught up", "behind", "stalled", "lost", "away", "not built", "paused"]


@dataclass(frozen=True)
class Lag:
    """The state of one view in one store.

    position: by source, the first offset that is not known to be applied. lag_events: events from there on.
    lag_patches: records of `patches` that the loader still has to read. freshness_s: the age of the oldest event that
    is not applied, by PostgreSQL's clock; 0 if there is none. problem: what is wrong, or empty. query: the part that
    makes its patches. stream: of a stream view, what its query has done on this machine. paused_since: since when the
    view is paused, an RFC 3339 time in UTC; None: it is not. topic_freshness_s: of a view that reads rows of other
    views, its own part of `freshness_s`; None: it is the whole.
    """

    view: str
    store: str
    version: int
    generation: int | None
    standing: Standing
    position: dict[str, int]
    lag_events: int | None = None
    lag_patches: int | None = None
    freshness_s: float | None = None
    problem: str = ""
    query: str = LIVE
    stream: StreamReport | None = None
    paused_since: str | None = None
    topic_freshness_s: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The fields, for `--json`."""
        return {name: value for name, value in asdict(self).items() if name != "topic_freshness_s"}

    @property
    def read_freshness_s(self) -> float | None:
        """The age of the oldest record that is there to be read, and is not applied; None if it is not known."""
        return self.freshness_s if self.topic_freshness_s is None else self.topic_freshness_s

    @property
    def failure(self) -> str:
        """Why the query of a stream view does not run; empty if nothing is known of that."""
        return f"its query failed: {self.stream.failure}" if self.stream is not None and self.stream.failure else ""

    @property
    def fault_if_stalled(self) -> Fault:
        """The part that makes no progress, if the view makes none: its patches wait for a loader, or for a query."""
        if self.lag_patches:
            return "loader"
        return "stream query" if self.query == STREAMS else "live query"

    @property
    def fault(self) -> Fault:
        """The part at fault, if the view needs attention."""
        if self.standing == "away":
            return "store"
        if self.standing == "stalled":
            return self.fault_if_stalled
        return "stream query" if self.failure and self.problem == self.failure else "nobody"

    def over(self, read: Iterable[Lag]) -> Lag:
        """The same view, if it reads the rows of these from their topics: it cannot have anything newer than they."""
        lag = self
        for other in read:
            lag = replace(lag, topic_freshness_s=self.freshness_s)
            known = lag.freshness_s is not None and other.freshness_s is not None
            lag = replace(lag, freshness_s=max(lag.freshness_s or 0.0, other.freshness_s or 0.0) if known else None)
            if other.standing not in ("caught up", "behind") and not lag.problem:
                lag = replace(lag, problem=f'it reads rows of "{other.view}", which is {other.standing} in its topic')
        return lag

    def since(self, before: Lag, ends: Mapping[str, int]) -> Lag:
        """This state, compared with `before` some seconds ago: without progress towards `ends`, the view is stalled.

        Owners of partitions append a heartbeat every 5 s, so a working view makes progress even without events. The
        first batch of a query reads all that came in the meantime; if the query has failed, it may fail again. The
        query of a stream view begins with the first event or observation.
        """
        if self.stream is not None and self.stream.starting and not self.stream.failure:
            return self
        if self.query == STREAMS and self.stream is None and not self.lag_events:
            return self
        waiting = [source for source in self.position if before.position.get(source, 0) < ends.get(source, 0)]
        if before.generation != self.generation or self.standing not in ("caught up", "behind") or not waiting:
            return self
        if any(self.position[source] > before.position.get(source, 0) for source in waiting):
            return self
        part = f"the loader of {self.store}" if self.fault_if_stalled == "loader" else QUERIES[self.query]
        problem = "" if self.lag_patches else self.failure
        return replace(self, standing="stalled", problem=problem or f"{part} makes no progress: see its log")


class Looks(Protocol):
    """The state of all views, and the ends of the log: see Lags."""

    def look(self) -> list[Lag]: ...

    def ends(self) -> dict[str, int]: ...


STALLED_S: Final = 10.0
"""A view that is behind and makes no progress for this long, while heartbeats come every 5 seconds, is stalled."""


@dataclass
class Moves:
    """What the checks so far have seen of each view.

    undecided: those, with their stores, that were behind at their first check and have not made progress since.
    """

    undecided: set[tuple[str, str]] = field(default_factory=set)
    _moved: dict[tuple[str, str], tuple[Lag, Mapping[str, int], float]] = field(default_factory=dict)
    """By view and store: its state when it last made progress or had nothing to do, the ends of the log then, and the
    time."""

    def judged(
        self, found: Sequence[Lag], ends: Mapping[str, int], at: float, every_s: Mapping[str, float]
    ) -> list[Lag]:
        """One more check, in which a view without progress for STALLED_S and its own pause is stalled.

        A view that was rebuilt meanwhile is ahead of the live query, and waits until the others have come to where it
        is: as long as they make progress, it is not stalled.

        ends: of each source. at: seconds of one clock. every_s: by view, the seconds between two batches of its own
        query.
        """
        judged: dict[tuple[str, str], Lag] = {}
        for lag in found:
            key = lag.view, lag.store
            judged[key] = lag
            if (before := self._moved.get(key)) is None:
                if lag.standing == "behind":
                    self.undecided.add(key)
            else:
                then, ends_then, since = before
                now = lag.since(then, ends_then)
                if now.standing == "stalled" and at - since < STALLED_S + every_s[lag.view]:
                    continue
                self.undecided.discard(key)
                if now.standing == "stalled":
                    judged[key] = now
                    continue
            self._moved[key] = lag, ends, at
        self.undecided &= judged.keys()
        moving = [self._moved[key][0] for key in judged if at - self._moved[key][2] < STALLED_S]
        unjudged = {(lag.view, lag.store): lag for lag in found}
        return [unjudged[key] if _is_ahead(lag, moving) else lag for key, lag in judged.items()]


def _is_ahead(lag: Lag, moving: Iterable[Lag]) -> bool:
    """Whether it is stalled only because it has what others, which the same parts bring up to date, still have to get.

    moving: those that made progress a moment ago. One that has passed it somewhere says that it was left behind.
    """
    if lag.standing != "stalled" or lag.query != LIVE:
        return False
    beside = [other.position for other in moving if other.store == lag.store and other.query == LIVE]
    differences = [
        [at - lag.position[source] for source, at in positions.items() if source in lag.position]
        for positions in beside
    ]
    return any(min(difference, default=0) < 0 and max(difference) <= 0 for difference in differences)


RESTART_LOOKS: Final = 6
"""This many checks in a row without progress: at the end of a batch, or with a slow store, it is one or two."""
RESTART_STREAMS_LOOKS: Final = 60
"""For stream views: a batch reads all that there is, so after a stop the first one may take minutes."""
MAX_LOOKS: Final = 360
"""Time between two restarts of a part; it doubles from one restart to the next."""


@dataclass
class Stalls:
    """What was stalled in the checks so far."""

    _ends: Mapping[str, int] = field(default_factory=dict)
    _patches: dict[tuple[str, str], int] = field(default_factory=dict)
    _looks: dict[str, int] = field(default_factory=dict)
    _needed: dict[str, int] = field(default_factory=dict)

    def due(self, lags: Sequence[Lag], ends: Mapping[str, int], parts: RunningParts) -> dict[str, Lag]:
        """Add one check, and return the parts to restart now, each with a view that it blocks.

        ends: of each source. Checks of a part that is starting do not count. The process of stream views itself starts
        a query again that fails. A restart would stop the queries of the other views, so it is due only if all fail,
        for example because Spark has stopped.
        """
        held: dict[str, Lag] = {}
        some_work = any(lag.query == STREAMS and not _has_failed(lag) for lag in lags)
        for lag in lags:
            # without the owners of partitions there are no heartbeats, and the end of the log may be the marker of a
            # transaction, which no position reaches; and a loader may read many patches of other views
            known = {source: position for source, position in lag.position.items() if source in ends}
            waits = any(at < self._ends.get(source, ends[source]) < ends[source] for source, at in known.items())
            reads = (lag.lag_patches or 0) < self._patches.get((lag.view, lag.store), 0)
            is_held = lag.standing == "stalled" and bool(lag.lag_events or waits) and not reads
            if is_held and not (some_work and _has_failed(lag)):
                held.setdefault(lag.store if lag.lag_patches else lag.query, lag)
            self._patches[lag.view, lag.store] = lag.lag_patches or 0
        self._ends = dict(ends)
        for part in self._looks.keys() - held.keys():
            del self._looks[part]
            self._needed.pop(part, None)
        for part in held:
            self._looks[part] = self._looks.get(part, 0) + 1 if parts.is_up(part) else 0
        due = {part: lag for part, lag in held.items() if self._looks[part] >= self.looks_needed(part)}
        for part in due:
            self._looks[part], self._needed[part] = 0, min(MAX_LOOKS, 2 * self.looks_needed(part))
        return due

    def looks_needed(self, part: str) -> int:
        """The number of consecutive checks without progress until a part is restarted."""
        return self._needed.get(part, RESTART_STREAMS_LOOKS if part == STREAMS else RESTART_LOOKS)


def _has_failed(lag: Lag) -> bool:
    """Whether it is a stream view whose query has failed, and has made nothing since."""
    return lag.stream is not None and bool(lag.stream.failure)
