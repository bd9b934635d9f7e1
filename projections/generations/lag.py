"""The state of each view in each of its stores: its position in the log, its lag, and whether it makes progress."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

from eventlog.heartbeats import is_heartbeat_key
from eventlog.ports import EventLog
from eventlog.settings import LogSettings
from eventlog.source_positions import topic_and_partition
from eventlog.topics import PATCHES
from projections.errors import StoreUnavailable
from projections.generations.kept import missed, missed_since
from projections.generations.registry import Generation, Generations
from projections.generations.sources import ends_of, sources
from projections.generations.stream_report import StreamReport, read_report
from projections.parts import LIVE, STREAMS
from projections.registry import ViewRegistry
from projections.settings import StoreSettings
from projections.stores.ledgers import gap, position
from projections.stores.open import open_store
from projections.stores.store import Ledger, Target
from projections.view import View

COUNTED_RECORDS: Final = 20_000
"""Up to this distance, events between a position and the end are counted; beyond it, offsets are subtracted."""

QUERIES: Final = {LIVE: "the live query", STREAMS: "the query of the stream view"}

Standing = Literal["caught up", "behind", "stalled", "lost", "away", "not built"]


@dataclass(frozen=True)
class Lag:
    """The state of one view in one store.

    position: by source, the first offset that is not known to be applied. lag_events: events from there on.
    lag_patches: records of `patches` that the loader still has to read. freshness_s: the age of the oldest event that
    is not applied; 0 if there is none. problem: what is wrong, or empty. query: the part that makes its patches.
    stream: of a stream view, what its query has done on this machine.
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

    def to_json(self) -> dict[str, Any]:
        """The fields, for `--json`."""
        return asdict(self)

    def since(self, before: Lag, ends: Mapping[str, int]) -> Lag:
        """This state, compared with `before` some seconds ago: without progress towards `ends`, the view is stalled.

        Owners of partitions append a heartbeat every 5 s, so a working view makes progress even without events. The
        first batch of a query reads all that came in the meantime; if the query has failed, it may fail again.
        """
        if self.stream is not None and self.stream.starting and not self.stream.failure:
            return self
        waiting = [each for each in self.position if before.position.get(each, 0) < ends.get(each, 0)]
        if before.generation != self.generation or self.standing not in ("caught up", "behind") or not waiting:
            return self
        if any(self.position[each] > before.position.get(each, 0) for each in waiting):
            return self
        part = f"the loader of {self.store}" if self.lag_patches else QUERIES[self.query]
        return replace(self, standing="stalled", problem=f"{part} makes no progress: see its log")


@dataclass(frozen=True)
class Lags:
    """Determines the state of every view of one deployment. An unavailable store is a state, not an error."""

    settings: LogSettings
    stores: StoreSettings
    views: ViewRegistry
    generations: Generations
    log: EventLog

    def ends(self) -> dict[str, int]:
        """The end of each source."""
        return ends_of(self.log, sources(self.views.views.values(), self.settings))

    def look(self) -> list[Lag]:
        """The state of all views in all their stores. Raises StoreUnavailable if the registry is unavailable."""
        live, ends = self.generations.serving(self.views.views.values()), self.ends()
        patches = {
            each: (self.log.first(PATCHES, each), self.log.end(PATCHES, each))
            for each in range(self.settings.patch_partitions)
        }
        found = [
            (view, store.name, live.get(view.name), self._ledgers(view, store.name, live.get(view.name)))
            for view in self.views.views.values()
            for store in view.stores
        ]
        reached = [
            position(ledgers, sources([view], self.settings))
            for view, *_, ledgers in found
            if isinstance(ledgers, dict) and ledgers
        ]
        starts = {each: min((one[each] for one in reached if each in one), default=end) for each, end in ends.items()}
        tails = {each: self._tail(each, starts[each], end) for each, end in ends.items()}
        return [self._lag(*each, tails, patches) for each in found]

    def _ledgers(self, view: View, store: str, live: Generation | None) -> dict[int, Ledger] | StoreUnavailable | None:
        if live is None:
            return None
        try:
            with closing(open_store(store, self.stores)) as opened:
                return opened.ledgers(Target(view, live.generation))
        except StoreUnavailable as error:
            return error

    def _lag(
        self,
        view: View,
        store: str,
        live: Generation | None,
        ledgers: dict[int, Ledger] | StoreUnavailable | None,
        tails: Mapping[str, _Tail],
        patches: Mapping[int, tuple[int, int]],
    ) -> Lag:
        if live is None:
            problem = "start `python -m projections`, or rebuild it"
            return Lag(view.name, store, view.version, None, "not built", {}, problem=problem)
        if live.version != view.version:  # it answers, but this code does not load it
            problem = f"version {view.version} is not built: run `replay rebuild {view.name}`"
            return Lag(view.name, store, live.version, live.generation, "not built", {}, problem=problem)
        lag = Lag(view.name, store, live.version, live.generation, "away", {})
        if view.has_own_query:
            report = read_report(self.settings, view.patch_tag(live.generation))
            lag = replace(lag, query=STREAMS, stream=report)
        if isinstance(ledgers, StoreUnavailable) or ledgers is None:
            return replace(lag, problem=str(ledgers))
        own = sources([view], self.settings)
        reached = position(ledgers, own)
        lost = self._why_replay(view, store, live, ledgers, reached, tails, patches)
        if lost:
            return replace(lag, standing="lost", position=reached, problem=lost)
        behind = [tails[each].after(at) for each, at in reached.items()]
        events, oldest_ms = sum(count for count, _ in behind), min((at for _, at in behind if at), default=None)
        return replace(
            lag,
            standing="behind" if events else "caught up",
            position=reached,
            lag_events=events,
            lag_patches=sum(max(0, end - ledgers[each].next_offset) for each, (_, end) in patches.items()),
            freshness_s=0.0 if oldest_ms is None else round(max(0.0, time.time() - oldest_ms / 1000), 3),
            problem=_problem(live),
        )

    def _why_replay(
        self,
        view: View,
        store: str,
        live: Generation,
        ledgers: Mapping[int, Ledger],
        reached: Mapping[str, int],
        tails: Mapping[str, _Tail],
        patches: Mapping[int, tuple[int, int]],
    ) -> str:
        """Why only a replay can bring it up to date; empty if patches can."""
        if gap(ledgers, patches, lambda each: patches[each][0]) is not None:
            return f"its ledger or the patches that it needs are gone: run `replay rebuild {view.name}`"
        # the ends were read before the ledgers
        ahead = [each for each, at in reached.items() if at > tails[each].end and at > self._end(each)]
        if ahead:
            return f"{ahead[0]} was deleted and made again since it was read: run `replay rebuild {view.name}`"
        since = missed_since(view, live, store, ledgers, self.log)
        return missed(since, view.name) if since else ""

    def _end(self, source: str) -> int:
        return self.log.end(*topic_and_partition(source))

    def _tail(self, source: str, start: int, end: int) -> _Tail:
        found = [
            (record.offset, record.timestamp_ms)
            for record in self.log.read(*topic_and_partition(source), start, min(end, start + COUNTED_RECORDS))
            if not is_heartbeat_key(record.key)
        ]
        return _Tail([offset for offset, _ in found], [at for _, at in found], start + COUNTED_RECORDS, end)


def _problem(live: Generation) -> str:
    """What is wrong with a generation that is loaded."""
    if not live.published:
        return f"not every plain name leads to it: run `replay publish {live.view}`"
    if live.next_replay is not None and live.next_replay > datetime.now(UTC):
        return (
            f"replayed {live.replays} times in a row, and soon too far behind again; the next replay is not before "
            f"{live.next_replay.astimezone(UTC):%H:%M:%S} UTC. If its rows change faster than loaders write them, "
            "start more loaders (HEADWATER_LOADERS)"
        )
    return ""


@dataclass(frozen=True)
class _Tail:
    """The events of one source from some offset on: all up to `counted`, and the number of offsets up to `end`."""

    offsets: Sequence[int]
    times_ms: Sequence[int]
    counted: int
    end: int

    def after(self, position: int) -> tuple[int, int | None]:
        """The number of events from `position` on, and the time of the first one."""
        at = bisect_left(self.offsets, position)
        rest = max(0, self.end - max(position, self.counted))
        return len(self.offsets) - at + rest, self.times_ms[at] if at < len(self.offsets) else None
