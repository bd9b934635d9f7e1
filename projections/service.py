"""The read side of a deployment: which generations it serves, what they have applied, and what it must build."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, Literal

from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.handling.recorded_versions import changed_versions
from headwater.eventlog.errors import EventLogError
from headwater.eventlog.kafka.admin import prepare
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.kafka.shown_offsets import ShownGroup
from headwater.eventlog.personal.installed import installed, is_prepared
from headwater.eventlog.programs.cores import cores
from headwater.eventlog.programs.metrics import collecting
from headwater.eventlog.settings import LogSettings
from headwater.projections.errors import CannotPublish, GenerationMissing, NotPublished, StoreUnavailable, Unloadable
from headwater.projections.folding.slices import remove_left
from headwater.projections.generations.rebuild.rebuilder import Rebuilder
from headwater.projections.generations.registry.generation import Generation
from headwater.projections.generations.registry.publishing import drop_leftovers, publish_live
from headwater.projections.generations.registry.registry import Generations, followed
from headwater.projections.generations.registry.sources import rows_topic, sources
from headwater.projections.generations.registry.state_files import others, own_place
from headwater.projections.generations.upkeep.expired_rows import keep_removing
from headwater.projections.generations.upkeep.lag_reader import Lags
from headwater.projections.generations.upkeep.rates import LOCAL, SPARK, Bulk, Rates
from headwater.projections.generations.upkeep.upkeep import FIRST_RETRY_S, Replay, Upkeep
from headwater.projections.generations.upkeep.view_metrics import LetterMetrics, RebuildMetrics, ViewMetrics, look_until
from headwater.projections.loading.loader import Loader
from headwater.projections.registry import ViewRegistry
from headwater.projections.running_parts import LIVE, NO_PARTS, RunningParts
from headwater.projections.settings import StoreSettings
from headwater.projections.spark.stream_queries.checkpoint import why_lost
from headwater.projections.stores.erasing import ClearErasure
from headwater.projections.stores.ledgers import position
from headwater.projections.stores.open import backend, open_store, opened_once
from headwater.projections.stores.store import Ledger, Target, ViewStore
from headwater.projections.view import View

if TYPE_CHECKING:
    from headwater.projections.spark.session import SharedSession

log = logging.getLogger(__name__)

ERASED_EVERY_S: Final = 2.0
"""Between two looks for erasures."""
REGISTRY_EVERY_S: Final = 1.0
"""Between two questions to a registry that does not answer."""
ADDED_EVERY_S: Final = 30.0
"""Between two looks for generations that lack indexes."""


@dataclass(frozen=True)
class Service:
    """The read side of one deployment."""

    settings: LogSettings
    stores: StoreSettings
    views: ViewRegistry

    @property
    def generations(self) -> Generations:
        """The registry of generations."""
        return Generations(self.stores.postgres, self.settings.environment)

    def prepare(self) -> str:
        """Create and check the topics, with those of rows that views read; returns Kafka's cluster id."""
        return prepare(self.settings, [rows_topic(row, self.settings) for row in self.views.rows])

    def servable(self) -> Service:
        """The same read side without the views whose declaration changed without a new version. Each is named in the
        log, and its rows stay as they are: patches of another declaration would make them wrong.

        Every process of the read side leaves these out. Raises ViewDeclarationError if there are no others.
        """
        refused = self.generations.refused(self.views.views.values())
        if refused and len(refused) == len(self.views.views):
            raise next(iter(refused.values()))
        for error in refused.values():
            log.error("%s\nits rows stay as they are meanwhile; the other views are served", error)
        return replace(self, views=self.views.without(refused))

    def servable_when_known(self, stop: threading.Event) -> Service:
        """Likewise, once the registry is available, or `stop` is set."""
        while not stop.is_set():
            try:
                return self.servable()
            except StoreUnavailable as error:
                log.warning("cannot compare declarations with what is built: %s", error)
                stop.wait(REGISTRY_EVERY_S)
        return self

    def build_missing(self, *, only_folded: bool = False) -> list[View]:
        """Build the views without a live generation of their version, or with an older current one.

        only_folded: leave out those with a query of their own, which may take hours.

        Returns those that are not built; views that cannot be built do not stop the others. Raises the first error if
        nothing can be served, and ViewDeclarationError if a declaration changed without a new version: see `servable`.
        """
        self.generations.prepare()
        self._check_events()
        drop_leftovers(self.generations, self.stores)
        remove_left(self.settings)
        self.note_state_place()
        self.compare_names()
        views, current = self.views.views.values(), self.generations.live()
        lacks = {view.name: self._lack(view, current.get(view.name)) for view in views}
        missing = [view for view in views if lacks[view.name] == "rows"]
        others = [view for view in missing if only_folded and view.name in self.views.queried]
        unbuilt = self._build([view for view in missing if view not in others])
        for view in views:
            if lacks[view.name] == "names":
                self._publish(view)
        return [*unbuilt, *others]

    def keep_added(self, stop: threading.Event) -> None:
        """Add to the stores, again and again until `stop` is set.

        A rebuild or a rollback may bring a generation of an earlier declaration, and a store may be unavailable.
        """
        added: set[tuple[str, int]] = set()
        while not stop.is_set():
            added |= self.add_to_stores(added)
            for view in self.compare_names():
                self._publish(view)
            stop.wait(ADDED_EVERY_S)

    def compare_names(self) -> list[View]:
        """Compare where aliases lead with the registry, which is older than they are once PostgreSQL was restored.

        Notes each view of which one leads elsewhere; returns those whose generation is in all their stores. Errors are
        logged.
        """
        views = list[View]()
        try:
            current = self.generations.live()
            with opened_once(self.stores) as opened:
                for view in self.views.views.values():
                    live = current.get(view.name)
                    if live is None or not live.published or live.tag != view.tag:
                        continue
                    stores = [opened(store.name) for store in view.stores]
                    if wrong := [generation for generation in _shown(view, stores) if generation != live.generation]:
                        log.error(
                            "the registry says that the aliases of %s lead to generation %d, but one leads to %d: "
                            "was PostgreSQL restored to an earlier state?", view.name, live.generation, wrong[0],
                        )  # fmt: skip
                        self.generations.note_unpublished(view.name, live.generation)
                        if all(store.ledgers(Target(view, live.generation)) for store in stores):
                            views.append(view)
        except StoreUnavailable as error:
            log.warning("aliases are compared with the registry later: %s", error)
        return views

    def add_to_stores(self, added: Collection[tuple[str, int]] = ()) -> set[tuple[str, int]]:
        """Add what declarations of stores got since their views were built, such as indexes; errors are logged.

        added: the generations to leave out. Returns those for which it need not be tried again.
        """
        try:
            serving = self.generations.serving(self.views.views.values())
        except StoreUnavailable as error:
            log.error("indexes of views are compared with their declarations later: %s", error)
            return set()
        views = self.views.views.values()
        live = [(view, own) for view in views if (own := serving.get(view.name)) is not None]
        targets = [Target(view, own.generation) for view, own in live if own.version == view.version]
        return {
            target.id
            for target in targets
            if target.id not in added and all([self._add_to(store.name, target) for store in target.view.stores])
        }

    def _add_to(self, store: str, target: Target) -> bool:
        """Returns whether it need not be tried again."""
        try:
            added = backend(store).add_missing(self.stores, target)
        except CannotPublish as error:
            log.error("rows of %s expire as declared over HTTP, but not in SQL: %s", target.view.tag, error)
        except GenerationMissing as error:  # it was replaced meanwhile
            log.info("%s: %s", store, error)
        except Unloadable as error:
            log.error(
                "%s lacks indexes that %s declares: %s. `replay rebuild %s` leaves out rows that are too "
                "long for indexes", store, target.view.tag, error, target.view.name,
            )  # fmt: skip
        except StoreUnavailable as error:
            log.error("%s lacks indexes that %s declares: %s", store, target.view.tag, error)
            return False
        else:
            for addition in added:
                log.info("%s: added the %s of %s", store, addition, target.view.tag)
        return True

    def keep_erased(self, stop: threading.Event) -> None:
        """Take out what erasures have left in plaintext columns, again and again until `stop` is set."""
        erasure = ClearErasure(self.stores, self.generations.stores, wait=stop.wait)
        while is_prepared() and not stop.wait(ERASED_EVERY_S):
            erasure.sweep(installed().store)

    def keep_removed(self, stop: threading.Event) -> None:
        """Remove rows that expired for good, again and again until `stop` is set."""
        views = [view for view in self.views.views.values() if view.expiry is not None and view.expiry.is_final]
        if views:
            live = self.generations.serving
            keep_removing(self.stores, lambda: served(views, not_paused(live(views).values())), stop)

    def _check_events(self) -> None:
        """Log an error for each event whose fields changed without its version after it was recorded."""
        events = CommandRegistry.load(self.settings.modules).events.values()
        with closing(KafkaLog(self.settings)) as event_log:
            changed = changed_versions(event_log, events)
        for problem in chain.from_iterable(changed.values()):
            log.error("%s", problem)

    def _lack(self, view: View, current: Generation | None) -> Literal["rows", "names"] | None:
        """What a view lacks: rows of its version, or the aliases that lead to them."""
        own = self.generations.of_this_code(view)
        if own is None or own.version != view.version or current is None or current.version < own.version:
            return "rows"
        if (lost := self._why_lost_if_known(view, own)) is not None:
            log.warning("the state of %s g%d %s: computing it again", view.tag, own.generation, lost)
            return "rows"
        if current.version > own.version:
            log.warning(
                "the aliases of %s lead to %s, but this code uses %s: `replay rollback %s` moves them back",
                view.name, current.tag, own.tag, view.name,
            )  # fmt: skip
            return None
        return None if own.published else "names"  # a rebuild was killed right after the swap

    def _publish(self, view: View) -> None:
        try:
            publish_live(view, self.generations, self.stores)
            log.info("the aliases of %s lead to its live generation again", view.name)
        except NotPublished as error:  # the API reads it anyway
            log.error("%s", error)

    def _build(self, views: Sequence[View]) -> list[View]:
        """Build views, and return those that failed.

        Unreadable records become dead letters, as in the live query: nobody is here to decide about them, and a view
        that was live before such a record came has left it out, too.
        """
        if not views:
            return []
        log.info("building %s", ", ".join(view.tag for view in views))
        with self._rebuilding(self._sessions()) as rebuilder:
            outcomes = list(rebuilder.rebuild_all(views, skip_poison=True))
        failed = [(view, error) for view, error in outcomes if isinstance(error, Exception)]
        unbuilt = [(view, error) for view, error in failed if not isinstance(error, NotPublished)]  # those are live
        if unbuilt and len(unbuilt) == len(self.views.views):
            raise unbuilt[0][1]
        for _, error in failed:
            log.error("%s", error)
        for view, _ in unbuilt:
            log.error(
                "%s is not built, see the error above; the other views are served. It is tried again in %.0f s; or run "
                "`replay rebuild %s`", view.tag, FIRST_RETRY_S, view.name,
            )  # fmt: skip
        return [view for view, _ in unbuilt]

    def _still_unbuilt(self, views: list[View]) -> list[View]:
        """Those of `views` that nobody has built since; the others are removed from `views`, and not looked at again:
        before its query starts, its process looks again.
        """
        if not views:
            return []
        serving = self.generations.serving(views)
        serving_by_view = [(view, serving.get(view.name)) for view in views]
        views[:] = [
            view
            for view, own in serving_by_view
            if own is None or own.version != view.version or self._why_lost_if_known(view, own) is not None
        ]
        return [*views]

    def _sessions(self) -> SharedSession:
        """What rebuilds that run at once need of Spark."""
        from headwater.projections.spark.session import SharedSession, SparkSettings, lazy_session  # noqa: PLC0415

        spark, state = SparkSettings.from_environment(os.environ), self.settings.state
        return SharedSession(partial(lazy_session, spark, name="build", threads=max(2, cores()), state=state))

    @contextmanager
    def _rebuilding(self, sessions: SharedSession) -> Iterator[Rebuilder]:
        """A context with what rebuilds views; Spark starts if it is needed, once for all of them."""
        from headwater.projections.engines import SparkQueries, new_engine  # noqa: PLC0415

        self.note_state_place()
        with closing(KafkaLog(self.settings)) as event_log, sessions.used() as session:
            engine = new_engine(self.settings, event_log, session)
            queries = SparkQueries(self.settings, session)
            yield Rebuilder(self.settings, self.stores, event_log, self.generations, engine, queries)

    @contextmanager
    def upkeep(self, parts: RunningParts = NO_PARTS, unbuilt: Sequence[View] = ()) -> Iterator[Upkeep]:
        """Reports on the views, replays those that are too far behind for patches, and restarts stuck `parts`.

        unbuilt: views that the start did not build; they are tried again.

        A replay sends unreadable records to `dead-letters`, like the live query.
        """
        rates = Rates(self.settings.state.absolute() / "rates" / f"{self.settings.environment}.json")
        with closing(KafkaLog(self.settings)) as event_log, closing(ShownGroup(self.settings, LIVE)) as live:
            lags = Lags(self.settings, self.stores, self.views, self.generations, event_log)
            replaying = partial(self._replaying, parts, self._sessions())
            still_unbuilt = partial(self._still_unbuilt, list(unbuilt))

            def beside(work: Callable[[], None]) -> None:
                threading.Thread(target=work, name="replay", daemon=True).start()

            yield Upkeep(lags, replaying, rates, parts, _expected_bulk, still_unbuilt, live.show, beside)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """A context in which this process measures the views, their rebuilds and dead letters, again and again."""
        ended = threading.Event()
        with closing(KafkaLog(self.settings)) as event_log:  # of its own, since it looks beside everything else
            lags = Lags(self.settings, self.stores, self.views, self.generations, event_log)
            views, letters = ViewMetrics(lags, event_log), LetterMetrics(event_log)
            rebuilds = RebuildMetrics(self.generations.rebuilds)
            looks = {"views": views.look, "rebuilds": rebuilds.look, "dead letters": letters.look}
            looking = threading.Thread(target=look_until, args=[ended, looks], name="metrics", daemon=True)
            with collecting(views, rebuilds, letters):
                looking.start()
                try:
                    yield
                finally:
                    ended.set()
                    looking.join()

    @contextmanager
    def _replaying(self, parts: RunningParts, sessions: SharedSession) -> Iterator[Replay]:
        def taken_over(view: View) -> bool:
            return any(parts.is_up(store.name) for store in view.stores)

        with self._rebuilding(sessions) as rebuilder:
            yield partial(replace(rebuilder, taken_over=taken_over).rebuild_all, skip_poison=True)

    def applied(self, target: Target) -> dict[str, int]:
        """By source, the offset below which a generation has applied everything in all its stores that answer.

        That is enough for a query whose patches were all sent before any store had them: the other store still reads
        these. Raises StoreUnavailable if none answers.
        """
        own = sources([target.view], self.settings)
        with opened_once(self.stores) as opened:
            places = [position(ledger, own) for ledger in answering_ledgers(target, opened) if ledger]
        return {source: min((place[source] for place in places), default=0) for source in own}

    def note_state_place(self) -> None:
        """Say in the registry that this read side keeps the state of stream views in its folder, if it has any. An
        error is logged: the next note says it."""
        if self.views.keep_state:
            try:
                self.generations.prepare()
                self.generations.note_state_place(own_place(self.settings))
            except (StoreUnavailable, OSError) as error:
                log.warning("cannot note where the state of stream views is: %s", error)

    def other_state_place(self) -> str | None:
        """Where another running read side keeps the state of stream views; None if there is none, or it is unknown."""
        try:
            others_found = others(self.settings, self.generations.state_places())
        except StoreUnavailable as error:
            log.warning("cannot look for other read sides: %s", error)
            return None
        return others_found[0].place if others_found else None

    def why_lost(self, target: Target) -> str | None:
        """See `continuing.why_lost`.

        Stores that do not answer are left out; raises StoreUnavailable if none answers, and EventLogError.
        """
        with closing(KafkaLog(self.settings)) as event_log, opened_once(self.stores) as opened:
            return why_lost(target, answering_ledgers(target, opened), self.settings, event_log)

    def _why_lost_if_known(self, view: View, own: Generation) -> str | None:
        """Likewise; None as well if it cannot be known now: before its query starts, its process looks again."""
        try:
            return self.why_lost(Target(view, own.generation))
        except (StoreUnavailable, EventLogError, OSError) as error:
            log.warning("cannot compare the state of %s g%d with its rows: %s", view.tag, own.generation, error)
            return None

    def run_loader(self, store: str, stop: threading.Event) -> None:
        """Load into one store until `stop` is set."""
        views = self.servable_when_known(stop).views.in_store(store)
        with closing(open_store(store, self.stores)) as opened, followed(self.generations) as live:
            Loader(opened, lambda: served(views, not_paused(live())), self.settings, code=_code(views)).run(stop)

    def targets(self, views: Sequence[View]) -> list[Target]:
        """The live generations of `views` with the declared version."""
        return served(views, self.generations.serving(views).values())


def _shown(view: View, stores: Sequence[ViewStore]) -> Iterator[int]:
    """The generations that the aliases of a view lead to, in the stores that answer."""
    for store in stores:
        with suppress(StoreUnavailable):
            if (shown := store.shown(view.name)) is not None:
                yield shown


def served(views: Sequence[View], live: Iterable[Generation]) -> list[Target]:
    """The generations that this code loads: code of another version loads its own."""
    generations = {(generation.view, generation.tag): generation.generation for generation in live}
    return [Target(view, generations[view.name, view.tag]) for view in views if (view.name, view.tag) in generations]


def not_paused(live: Iterable[Generation]) -> list[Generation]:
    """Those that loaders change. Where the live query begins, paused ones count, too: it made no patches for them while
    it did not run."""
    return [generation for generation in live if generation.paused_since is None]


def answering_ledgers(target: Target, opened: Callable[[str], ViewStore]) -> Iterator[Mapping[int, Ledger]]:
    """The ledgers of a generation in each of its stores that answers; raises StoreUnavailable if none does."""
    away: list[StoreUnavailable] = []
    for declared in target.view.stores:
        try:
            yield opened(declared.name).ledgers(target)
        except StoreUnavailable as error:
            away.append(error)
    if away and len(away) == len(target.view.stores):
        raise away[0]


def _code(views: Sequence[View]) -> str:
    """Identifies a set of declarations, the same in every process with these declarations."""
    return hashlib.sha256("\n".join(sorted(view.tag for view in views)).encode()).hexdigest()[:8]


def _expected_bulk(view: View, offsets: int) -> Bulk:
    """How fast a replay of so many offsets is expected to be, with the engine that would run it."""
    from headwater.projections.engines import why_spark  # noqa: PLC0415 - few deployments ever replay

    return LOCAL if why_spark(view, offsets) is None else SPARK
