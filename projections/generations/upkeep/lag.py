"""The state of a view in one of its stores, as one look saw it, and whether it makes progress from look to look."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, Protocol

from headwater.projections.generations.registry.stream_report import StreamReport
from headwater.projections.running_parts import LIVE, STREAMS

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
        for each in read:
            lag = replace(lag, topic_freshness_s=self.freshness_s)
            known = lag.freshness_s is not None and each.freshness_s is not None
            lag = replace(lag, freshness_s=max(lag.freshness_s or 0.0, each.freshness_s or 0.0) if known else None)
            if each.standing not in ("caught up", "behind") and not lag.problem:
                lag = replace(lag, problem=f'it reads rows of "{each.view}", which is {each.standing} in its topic')
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
        waiting = [each for each in self.position if before.position.get(each, 0) < ends.get(each, 0)]
        if before.generation != self.generation or self.standing not in ("caught up", "behind") or not waiting:
            return self
        if any(self.position[each] > before.position.get(each, 0) for each in waiting):
            return self
        part = f"the loader of {self.store}" if self.fault_if_stalled == "loader" else QUERIES[self.query]
        problem = "" if self.lag_patches else self.failure
        return replace(self, standing="stalled", problem=problem or f"{part} makes no progress: see its log")


class Looks(Protocol):
    """The state of all views, and the ends of the log: see Lags."""

    def look(self) -> list[Lag]: ...

    def ends(self) -> dict[str, int]: ...
