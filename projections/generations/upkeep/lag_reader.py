"""Looks at all views: the position of each in each of its stores, its lag, and whether only a replay helps it."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from typing import Final

from headwater.commands.declaring.view_rows import ViewRow
from headwater.eventlog.heartbeats import is_heartbeat_key
from headwater.eventlog.ports import EventLog
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.source_positions import topic_and_partition
from headwater.eventlog.topics import PATCHES
from headwater.projections.errors import StoreUnavailable
from headwater.projections.generations.registry.generation import (
    Generation,
    is_refused,
    missed,
    missed_since,
    paused_text,
    why_refused,
)
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.generations.registry.sources import ends_of, made_again, sources, topic_ids
from headwater.projections.generations.registry.state_files import read_report, recomputed
from headwater.projections.generations.upkeep.lag import Lag
from headwater.projections.registry import ViewRegistry
from headwater.projections.running_parts import STREAMS
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.clear_columns import ClearColumns
from headwater.projections.stores.declared import Topic
from headwater.projections.stores.ledgers import gap, position
from headwater.projections.stores.open import opened_once
from headwater.projections.stores.store import Ledger, Target
from headwater.projections.view import View

COUNTED_RECORDS: Final = 20_000
"""Events are counted in so many offsets before the end of a source; before these, offsets are counted."""
READ_RECORDS: Final = 500
"""So many offsets are read at once to find the first event after a position before these."""
FIRST_WINDOW: Final = 16
LAST_WINDOW: Final = 16_384
"""Offsets before a position in which the last record is looked for: most are markers of transactions, or compacted."""


@dataclass(frozen=True)
class Tail:
    """The end of one source.

    start: from here on, events are counted. offsets, times_ms: of the events from `start` to `end`. older_ms: by
    position before `start`, the time of the first event from there on.
    """

    start: int
    end: int
    offsets: Sequence[int]
    times_ms: Sequence[int]
    older_ms: Mapping[int, int | None]

    def after(self, position: int) -> tuple[int, int | None]:
        """The number of events from `position` on, and the time of the first one in milliseconds since 1970.

        position: one of those that the tail was read for.
        """
        first = bisect_left(self.offsets, position)
        older_ms = self.older_ms.get(position)
        if older_ms is None and first < len(self.offsets):
            older_ms = self.times_ms[first]
        return max(0, self.start - position) + len(self.offsets) - first, older_ms


def last_time(log: EventLog, source: str, position: int) -> int | None:
    """The time of the last record before a position, heartbeats included, in milliseconds since 1970.

    None if there is none near. Raises LogUnavailable.
    """
    window = FIRST_WINDOW
    while position and window <= LAST_WINDOW:
        start, last = max(0, position - window), None
        for record in log.read(*topic_and_partition(source), start, position):
            last = record.timestamp_ms
        if last is not None or not start:
            return last
        window *= 4
    return None


def read_tails(log: EventLog, positions: Mapping[str, Collection[int]], ends: Mapping[str, int]) -> dict[str, Tail]:
    """The tails of these sources. positions: by source, those of all views. Raises LogUnavailable."""
    tails = {}
    for source, end in ends.items():
        of_views = positions.get(source, ())
        start = max(min(of_views, default=end), end - COUNTED_RECORDS)
        counted = list(_events(log, source, start, end))
        older_ms: dict[int, int | None] = {}
        for older in {view for view in of_views if view < start}:
            older_ms[older] = None
            for first in range(older, start, READ_RECORDS):  # a read that is broken off would cost a connection
                if events := list(_events(log, source, first, min(first + READ_RECORDS, start))):
                    older_ms[older] = events[0][1]
                    break
        tails[source] = Tail(start, end, [offset for offset, _ in counted], [at_ms for _, at_ms in counted], older_ms)
    return tails


def _events(log: EventLog, source: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Offset and time of each record that is no heartbeat."""
    for record in log.read(*topic_and_partition(source), start, end):
        if not is_heartbeat_key(record.key, record.topic):
            yield record.offset, record.timestamp_ms


_Ledgers = Mapping[tuple[str, int], Mapping[int, Ledger]]
"""Those of a store, by view and generation."""


@dataclass(frozen=True)
class _Applied:
    """What a generation of this code's version has applied in a store. lag: what is known of it without the log."""

    view: View
    live: Generation
    ledgers: Mapping[int, Ledger]
    lag: Lag


@dataclass(frozen=True)
class _Ends:
    """Where the log ends.

    patches: by partition, the first record that retention has left, and the end. topics: their ids.
    """

    tails: Mapping[str, Tail]
    patches: Mapping[int, tuple[int, int]]
    topics: Mapping[str, str]


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
        places = [(PATCHES, partition) for partition in range(self.settings.patch_partitions)]
        firsts, patch_ends = self.log.firsts(places), self.log.ends(places)
        patches = {place[1]: (firsts[place], patch_ends[place]) for place in places}
        ledgers = self._ledgers(live)
        lags = [
            self._applied(view, store.name, live.get(view.name), ledgers[store.name])
            for view in self.views.views.values()
            for store in view.stores
        ]
        positions = defaultdict[str, set[int]](set)
        for read in lags:
            if isinstance(read, _Applied) and read.ledgers:
                for source, at in read.lag.position.items():
                    positions[source].add(at)
        log_ends = _Ends(read_tails(self.log, positions, ends), patches, topic_ids(self.log, self.views.views.values()))
        measured = []
        for read in lags:
            if isinstance(read, _Applied):
                lag, since = self._behind(read, log_ends), read.live.paused_since
                if since is not None:  # whatever else is wrong with it
                    lost = f". It is lost meanwhile, and replayed after that: {lag.problem}"
                    why = paused_text(lag.view, since) + (lost if lag.standing == "lost" else "")
                    lag = replace(lag, standing="paused", problem=why)
                measured.append(lag)
            else:
                measured.append(read)
        looks = {(lag.view, lag.store): lag for lag in measured}
        return [self._over_views(lag, looks) for lag in measured]

    def _ledgers(self, live: Mapping[str, Generation]) -> dict[str, _Ledgers | StoreUnavailable]:
        """By store, what is in it, read at once for all views, or why it cannot be read."""
        targets = defaultdict[str, list[Target]](list)
        for view in self.views.views.values():
            for store in view.stores:
                own = live.get(view.name)
                targets[store.name] += [Target(view, own.generation)] if own and own.version == view.version else []
        ledgers: dict[str, _Ledgers | StoreUnavailable] = {}
        with opened_once(self.stores) as opened:
            for name, some in targets.items():
                try:
                    read = opened(name).all_ledgers(some) if some else []
                    ledgers[name] = {target.id: ledgers_read for target, ledgers_read in zip(some, read, strict=True)}
                except StoreUnavailable as error:
                    ledgers[name] = error
        return ledgers

    def _applied(
        self, view: View, store: str, live: Generation | None, found: _Ledgers | StoreUnavailable
    ) -> _Applied | Lag:
        """What a view has applied in a store; its state if that cannot be compared with the log. found: in the store"""
        if live is None:
            problem = "start `headwater projections`, or rebuild it"
            return Lag(view.name, store, view.version, None, "not built", {}, problem=problem)
        if live.version != view.version:  # it answers, but this code does not load it
            problem = f"version {view.version} is not built: run `replay rebuild {view.name}`"
            return Lag(view.name, store, live.version, live.generation, "not built", {}, problem=problem)
        if is_refused(live, view):
            problem = why_refused(live, view)
            return Lag(view.name, store, live.version, live.generation, "not built", {}, problem=problem)
        since = None if live.paused_since is None else live.paused_since.astimezone(UTC).isoformat()
        lag = Lag(view.name, store, live.version, live.generation, "away", {}, paused_since=since)
        if view.has_own_query:
            report = read_report(self.settings, view.patch_tag(live.generation))
            lag = replace(lag, query=STREAMS, stream=report)
        if isinstance(found, StoreUnavailable):
            return replace(lag, problem=str(found))
        ledgers = found[view.name, live.generation]
        return _Applied(view, live, ledgers, replace(lag, position=position(ledgers, sources([view], self.settings))))

    def _over_views(self, lag: Lag, looks: Mapping[tuple[str, str], Lag]) -> Lag:
        """The same, as seen from what it reads: the topics of other views."""
        tables = self.views.views[lag.view].tables.values()
        read = [looks[table.view, Topic.name] for table in tables if issubclass(table, ViewRow)]
        return lag.over(self._over_views(inner, looks) for inner in read)

    def _behind(self, applied: _Applied, ends: _Ends) -> Lag:
        if lost := self._why_replay(applied, ends):
            return replace(applied.lag, standing="lost", problem=lost)
        behind = [ends.tails[source].after(at) for source, at in applied.lag.position.items()]
        events, oldest_ms = sum(count for count, _ in behind), min((at for _, at in behind if at), default=None)
        clear = ClearColumns.of(applied.view, applied.lag.store, self.settings.environment)
        waits_for_keys = clear.problem() if events else ""
        now_s = applied.live.read_at.timestamp()
        return replace(
            applied.lag,
            standing="behind" if events else "caught up",
            lag_events=events,
            lag_patches=sum(
                max(0, end - applied.ledgers[partition].next_offset) for partition, (_, end) in ends.patches.items()
            ),
            freshness_s=0.0 if oldest_ms is None else round(max(0.0, now_s - oldest_ms / 1000), 3),
            problem=_problem(applied.live) or applied.lag.failure or waits_for_keys,
        )

    def _why_replay(self, applied: _Applied, ends: _Ends) -> str:
        """Why only a replay can bring it up to date; empty if patches can."""
        name, stream = applied.view.name, applied.lag.stream
        if stream is not None and stream.state_lost:
            return f"its state {stream.state_lost}: {recomputed(name)}"
        for topic in made_again(applied.live.topics, ends.topics):
            return f'topic "{topic}" was recreated since it was built: run `replay rebuild {name}`'
        if gap(applied.ledgers, ends.patches, lambda partition: ends.patches[partition][0]) is not None:
            return f"its ledger or the patches that it needs are gone: run `replay rebuild {name}`"
        for partition, (_, end) in ends.patches.items():
            if (needed := applied.ledgers[partition].next_offset) > end and needed > self.log.end(PATCHES, partition):
                return f'"patches" ends before its ledger in partition {partition}: run `replay rebuild {name}`'
        for source, at in applied.lag.position.items():
            # the ends were read before the ledgers
            if at > ends.tails[source].end and at > self.log.end(*topic_and_partition(source)):
                return f"{source} was recreated since it was read: run `replay rebuild {name}`"
        since = missed_since(applied.view, applied.live, applied.lag.store)
        return missed(since, name) if since else ""


def _problem(live: Generation) -> str:
    """What is wrong with a generation that is loaded."""
    if not live.published:
        return f"not every alias leads to it: run `replay publish {live.view}`"
    if live.next_replay is not None and live.next_replay > live.read_at:
        return (
            f"replayed {live.replays} times in a row, and soon too far behind again; the next replay is not before "
            f"{live.next_replay.astimezone(UTC):%H:%M:%S} UTC. If its rows change faster than loaders write them, "
            "start more loaders (HEADWATER_LOADERS)"
        )
    return ""
