"""Looks at all views: the position of each in each of its stores, its lag, and whether only a replay helps it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC

from headwater.commands.declaring.view_rows import ViewRow
from headwater.eventlog.ports import EventLog
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.source_positions import topic_and_partition
from headwater.eventlog.topics import PATCHES
from headwater.projections.errors import StoreUnavailable
from headwater.projections.generations.registry.generation import Generation, paused_text
from headwater.projections.generations.registry.kept_up import missed, missed_since
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.generations.registry.sources import ends_of, sources
from headwater.projections.generations.registry.stream_report import read_report, recomputed
from headwater.projections.generations.registry.topic_ids import made_again, topic_ids
from headwater.projections.generations.upkeep.lag import Lag
from headwater.projections.generations.upkeep.source_ends import Tail, read_tails
from headwater.projections.registry import ViewRegistry
from headwater.projections.running_parts import STREAMS
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.clear_columns import ClearColumns
from headwater.projections.stores.declared import Topic
from headwater.projections.stores.ledgers import gap, position
from headwater.projections.stores.open import opened_once
from headwater.projections.stores.store import Ledger, Target
from headwater.projections.view import View

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
        places = [(PATCHES, each) for each in range(self.settings.patch_partitions)]
        firsts, patch_ends = self.log.firsts(places), self.log.ends(places)
        patches = {place[1]: (firsts[place], patch_ends[place]) for place in places}
        ledgers = self._ledgers(live)
        found = [
            self._applied(view, store.name, live.get(view.name), ledgers[store.name])
            for view in self.views.views.values()
            for store in view.stores
        ]
        positions = defaultdict[str, set[int]](set)
        for each in found:
            if isinstance(each, _Applied) and each.ledgers:
                for source, at in each.lag.position.items():
                    positions[source].add(at)
        log_ends = _Ends(read_tails(self.log, positions, ends), patches, topic_ids(self.log, self.views.views.values()))
        measured = [self._measured(each, log_ends) if isinstance(each, _Applied) else each for each in found]
        looks = {(each.view, each.store): each for each in measured}
        return [self._over_views(each, looks) for each in measured]

    def _ledgers(self, live: Mapping[str, Generation]) -> dict[str, _Ledgers | StoreUnavailable]:
        """By store, what is in it, read at once for all views, or why it cannot be read."""
        targets = defaultdict[str, list[Target]](list)
        for view in self.views.views.values():
            for store in view.stores:
                own = live.get(view.name)
                targets[store.name] += [Target(view, own.generation)] if own and own.version == view.version else []
        found: dict[str, _Ledgers | StoreUnavailable] = {}
        with opened_once(self.stores) as opened:
            for name, some in targets.items():
                try:
                    read = opened(name).all_ledgers(some) if some else []
                    found[name] = {target.id: each for target, each in zip(some, read, strict=True)}
                except StoreUnavailable as error:
                    found[name] = error
        return found

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
        since = None if live.paused_since is None else live.paused_since.astimezone(UTC).isoformat()
        lag = Lag(view.name, store, live.version, live.generation, "away", {}, paused_since=since)
        if view.has_own_query:
            report = read_report(self.settings, view.patch_tag(live.generation))
            lag = replace(lag, query=STREAMS, stream=report)
        if isinstance(found, StoreUnavailable):
            return replace(lag, problem=str(found))
        ledgers = found[view.name, live.generation]
        return _Applied(view, live, ledgers, replace(lag, position=position(ledgers, sources([view], self.settings))))

    def _measured(self, applied: _Applied, ends: _Ends) -> Lag:
        """How far it is behind the log, and whether it is paused, whatever else is wrong with it."""
        found, since = self._behind(applied, ends), applied.live.paused_since
        if since is None:
            return found
        why = paused_text(found.view, since)
        lost = f". It is lost meanwhile, and replayed after that: {found.problem}" if found.standing == "lost" else ""
        return replace(found, standing="paused", problem=why + lost)

    def _over_views(self, lag: Lag, looks: Mapping[tuple[str, str], Lag]) -> Lag:
        """The same, as seen from what it reads: the topics of other views."""
        tables = self.views.views[lag.view].tables.values()
        read = [looks[each.view, Topic.name] for each in tables if issubclass(each, ViewRow)]
        return lag.over(self._over_views(each, looks) for each in read)

    def _behind(self, applied: _Applied, ends: _Ends) -> Lag:
        lost = self._why_replay(applied, ends)
        if lost:
            return replace(applied.lag, standing="lost", problem=lost)
        behind = [ends.tails[each].after(at) for each, at in applied.lag.position.items()]
        events, oldest_ms = sum(count for count, _ in behind), min((at for _, at in behind if at), default=None)
        now_s = applied.live.read_at.timestamp()
        return replace(
            applied.lag,
            standing="behind" if events else "caught up",
            lag_events=events,
            lag_patches=sum(max(0, end - applied.ledgers[each].next_offset) for each, (_, end) in ends.patches.items()),
            freshness_s=0.0 if oldest_ms is None else round(max(0.0, now_s - oldest_ms / 1000), 3),
            problem=_problem(applied.live) or applied.lag.failure or (self._waits_for_keys(applied) if events else ""),
        )

    def _waits_for_keys(self, applied: _Applied) -> str:
        return ClearColumns.of(applied.view, applied.lag.store, self.settings.environment).problem()

    def _why_replay(self, applied: _Applied, ends: _Ends) -> str:
        """Why only a replay can bring it up to date; empty if patches can."""
        name, stream = applied.view.name, applied.lag.stream
        if stream is not None and stream.state_lost:
            return f"its state {stream.state_lost}: {recomputed(name)}"
        for topic in made_again(applied.live.topics, ends.topics):
            return f'topic "{topic}" was deleted and made again since it was built: run `replay rebuild {name}`'
        if gap(applied.ledgers, ends.patches, lambda each: ends.patches[each][0]) is not None:
            return f"its ledger or the patches that it needs are gone: run `replay rebuild {name}`"
        for each, (_, end) in ends.patches.items():
            if (needed := applied.ledgers[each].next_offset) > end and needed > self.log.end(PATCHES, each):
                return f'"patches" ends before its ledger in partition {each}: run `replay rebuild {name}`'
        for source, at in applied.lag.position.items():
            # the ends were read before the ledgers
            if at > ends.tails[source].end and at > self.log.end(*topic_and_partition(source)):
                return f"{source} was deleted and made again since it was read: run `replay rebuild {name}`"
        since = missed_since(applied.view, applied.live, applied.lag.store)
        return missed(since, name) if since else ""


def _problem(live: Generation) -> str:
    """What is wrong with a generation that is loaded."""
    if not live.published:
        return f"not every plain name leads to it: run `replay publish {live.view}`"
    if live.next_replay is not None and live.next_replay > live.read_at:
        return (
            f"replayed {live.replays} times in a row, and soon too far behind again; the next replay is not before "
            f"{live.next_replay.astimezone(UTC):%H:%M:%S} UTC. If its rows change faster than loaders write them, "
            "start more loaders (HEADWATER_LOADERS)"
        )
    return ""
