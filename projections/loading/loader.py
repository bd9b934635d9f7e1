"""A loader: reads `patches` and applies them to the live generations in one store, exactly once."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from confluent_kafka import Message
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    sleep_using_event,
    stop_when_event_set,
    wait_exponential_jitter,
)

from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import PATCHES
from headwater.projections.errors import (
    CannotLoad,
    GenerationMissing,
    LedgerWentBack,
    StoreUnavailable,
    TakenOver,
    Unloadable,
)
from headwater.projections.loading.dead_letters import DeadLetters
from headwater.projections.loading.decoding import OLDER, NotAPatch, read_into
from headwater.projections.loading.older_events import OlderEvent
from headwater.projections.loading.patch_reader import POLL_S, PatchReader
from headwater.projections.loading.patch_spans import PatchSpans
from headwater.projections.loading.refused_patches import apply_fitting
from headwater.projections.metrics import BATCH_SECONDS, LETTERS, LOADED_ROWS, READ_PATCHES, STORE_WAITS
from headwater.projections.reading.records import Unreadable
from headwater.projections.stores.clear_columns import ClearColumns
from headwater.projections.stores.ledgers import gap
from headwater.projections.stores.store import Batch, Ledger, Target, ViewStore
from headwater.projections.view import View

log = logging.getLogger(__name__)

GATHER_S = 0.005
"""A pause after a small batch: under load the next batch is larger, and costs the store little more."""
FEW_RECORDS = 500
REFRESH_S = 0.5
LOOK_AGAIN_S = 10.0
"""Time between two checks of generations that cannot be loaded: a lost ledger may have been restored."""

MOST_PAUSE_S = 300.0
"""The longest time until a generation that fails is tried again: the others wait for it then, as for a lock."""
PASSED_ON: Final = (GenerationMissing, LedgerWentBack, Unloadable)
"""Answers of a store that works."""

_OLDER = f"{OLDER}/".encode()

Result = TypeVar("Result")

Targets = Callable[[], Sequence[Target]]
"""The generations to load now; raises StoreUnavailable if the registry is unavailable."""


class _SomeFail(Exception):
    """A store fails for these generations, and for others not."""

    def __init__(self, causes: Sequence[tuple[Target, Exception]]) -> None:
        super().__init__()
        self.causes = causes


class Loader:
    """One loader of one store; run it in its own thread or process.

    With `partitions` None it shares the partitions of `patches` with the other loaders of the store, through the group
    `<env>.loader.<store>.<code>`; else it reads the given ones (to catch up during a rebuild). code: identifies the
    declarations, because loaders of other declarations do not load the same generations.

    The store's ledgers, not the group, decide where to continue: a partition's position is the lowest `next` of all
    loaded generations, looked up when the partition is assigned and when a generation appears. The ledger skips what is
    already applied.
    """

    def __init__(
        self,
        store: ViewStore,
        targets: Targets,
        settings: LogSettings,
        partitions: Sequence[int] | None = None,
        code: str = "any",
    ) -> None:
        self.failed = False
        self._store, self._targets = store, targets
        self._known: tuple[Target, ...] = ()
        """The generations in the registry, as of the last read."""
        self._serving: tuple[Target, ...] = ()
        """Those that can be loaded."""
        self._aside: dict[tuple[str, int], tuple[float, float]] = {}
        """By view and generation, those that failed while others did not: when they are tried again, and the pause."""
        self.left_out: Mapping[tuple[str, int], CannotLoad] = {}
        """By view and generation, why the others cannot be loaded; another thread may read it."""
        self._refreshed = self._looked = float("-inf")
        self._dead_letters, self._environment = DeadLetters(settings), settings.environment
        self._partitions = settings.patch_partitions
        self._reader = PatchReader(settings, store.name, code, partitions)

    @property
    def positions(self) -> Mapping[int, int]:
        """By partition, the next `patches` offset, once everything before it is in the store."""
        return self._reader.positions

    def run(self, stop: threading.Event) -> None:
        """Load until `stop` is set, however long the store is unavailable."""
        try:
            while not stop.is_set():
                with suppress(StoreUnavailable):  # the generations have changed while it waited
                    self.step(stop)
        except BaseException:
            self.failed = True
            raise
        finally:
            self.close()

    def close(self) -> None:
        """Leave the group; `run` does it at its end."""
        self._reader.close()

    def step(self, stop: threading.Event) -> None:
        """Check for new generations if it is time, then apply new patches."""
        self._refresh()
        if self._reader.must_reposition:
            try:
                self._reposition(stop)
            except LogUnavailable as error:
                log.warning("%s", error)
                self._reader.reconnect_if_lost()
                stop.wait(POLL_S)
                return
        records = self._reader.poll()
        if not records:
            self._retrying(stop, self._store.settle)
        if not records or not self._serving:
            return
        first_in = {target.tag for target in self._serving if target.view.stores[0].name == self._store.name}
        traced = PatchSpans(self._store.name, first_in, is_backlog=len(records) >= FEW_RECORDS)
        batches = self._decode(records, traced)
        try:
            self._apply(batches, stop)
        except _SomeFail as error:
            self._set_aside(error)
            return
        except (GenerationMissing, LedgerWentBack) as error:
            # dropped since the registry was read, or the store lost something: check again, and read these again
            level = logging.INFO if isinstance(error, LedgerWentBack) else logging.WARNING
            log.log(level, "%s: %s", self._store.name, error)
            self._refreshed, self._reader.must_reposition = float("-inf"), True
            return
        traced.end()
        for partition, batch in batches.items():
            self._reader.advance(partition, batch.next_offset)
        READ_PATCHES.labels(self._store.name).inc(len(records))
        if 1 < len(records) < FEW_RECORDS:  # one patch is no load, many are a backlog
            stop.wait(GATHER_S)

    def _set_aside(self, error: _SomeFail) -> None:
        """Go on without generations that fail; each is tried again, less and less often."""
        self._looked = time.monotonic()
        for target, cause in error.causes:
            _, before_s = self._aside.get(target.id, (0.0, 0.0))
            pause_s = min(2 * before_s, MOST_PAUSE_S) or LOOK_AGAIN_S
            self._aside[target.id] = self._looked + pause_s, pause_s
            log.error(
                '%s goes on without generation %d of "%s", which is tried again in %.0f s: %s: %s',
                self._store.name, target.generation, target.view.name, pause_s, type(cause).__name__, cause,
            )  # fmt: skip
        self._serving, self._reader.must_reposition = self._loadable(), True

    def _loadable(self) -> tuple[Target, ...]:
        """The known generations, without those that failed a moment ago."""
        now = time.monotonic()
        return tuple(target for target in self._known if self._aside.get(target.id, (now, 0.0))[0] <= now)

    def _is_possible(self, target: Target) -> bool:
        """Whether a generation that was left out can be loaded, or may be; raises StoreUnavailable."""
        if target not in self._loadable():
            return False
        if (clear := ClearColumns.of(target.view, self._store.name, self._environment)) and clear.problem():
            return False
        return self._problem(self._store.ledgers(target)) is None

    def _refresh(self) -> None:
        if time.monotonic() - self._refreshed < REFRESH_S:
            return
        self._refreshed = time.monotonic()
        try:
            serving = tuple(self._targets())
        except StoreUnavailable as error:
            log.warning("keeping the known generations: %s", error)
            return
        if serving != self._known or (self._reader.must_reposition and serving):
            log.info("%s serves %s", self._store.name, ", ".join(f"{t.view.name} g{t.generation}" for t in serving))
            self._known = serving
            self._serving = self._loadable()
            self._reader.must_reposition = True
        elif len(self._serving) < len(self._known) and time.monotonic() - self._looked > LOOK_AGAIN_S:
            self._look_again()

    def _look_again(self) -> None:
        """Load all generations again if one that was left out can be loaded now."""
        self._looked = time.monotonic()
        try:
            left_out = [target for target in self._known if target not in self._serving]
            back = [target for target in left_out if self._is_possible(target)]
        except (StoreUnavailable, LogUnavailable) as error:
            log.warning("cannot check the generations that were left out: %s", error)
            return
        if back:
            log.info("%s has %s again", self._store.name, ", ".join(f"{t.view.name} g{t.generation}" for t in back))
            self._serving, self._reader.must_reposition = self._loadable(), True

    def _reposition(self, stop: threading.Event) -> None:
        """Continue from the lowest `next` of all loaded generations; with none, nothing is read."""
        left_out: dict[tuple[str, int], CannotLoad] = {}
        self._reader.pause()
        ledgers = [self._retrying(stop, self._ledger, target, left_out) for target in self._serving]
        self._serving = tuple(t for t, ledger in zip(self._serving, ledgers, strict=True) if ledger)
        self.left_out = left_out
        self._looked = time.monotonic()
        present = [ledger for ledger in ledgers if ledger]
        self._reader.move_to(
            {
                partition: min(ledger[partition].next_offset for ledger in present)
                for partition in (self._reader.owned if present else ())
            }
        )

    def _ledger(self, target: Target, left_out: dict[tuple[str, int], CannotLoad]) -> Mapping[int, Ledger]:
        """The ledgers of a generation that can be loaded; empty, and added to `left_out`, if only a rebuild helps."""
        ledger = self._store.ledgers(target)
        problem = self._problem(ledger)
        if problem is None:
            return ledger
        place = target.view.name, target.generation
        left_out[place] = CannotLoad(self._store.name, *place, problem)
        log.error("%s", left_out[place])
        return {}

    def _problem(self, ledger: Mapping[int, Ledger]) -> str | None:
        """Why a generation with this ledger cannot be loaded."""
        problem = gap(ledger, self._reader.owned, self._reader.first_kept)
        if not ledger or (problem is not None and problem.needed is None):
            return "has lost its ledger"
        if problem is None:
            beyond = [
                partition
                for partition in self._reader.owned
                if ledger[partition].next_offset > self._reader.end(partition)
            ]
            made_again = f'is beyond the end of partitions {beyond} of "patches", which may have been recreated'
            return made_again if beyond else None
        return f"needs deleted patches {problem.needed} to {problem.first} of partition {problem.partition}"

    def _decode(self, records: Iterable[Message], traced: PatchSpans) -> dict[int, Batch]:
        batches: dict[int, Batch] = {}
        tags = {target.tag.encode() for target in self._serving}
        texts = {target.tag: target.view.layout.json_texts for target in self._serving}
        views = {target.tag: target.view for target in self._serving}
        for record in records:
            partition, offset = record.partition() or 0, record.offset() or 0
            batch = batches.get(partition)
            if batch is None:
                batch = batches[partition] = Batch(offset, first_offset=self.positions[partition])
            batch.next_offset = offset + 1
            try:
                if (record.key() or b"").startswith(_OLDER):
                    self._upcast(record, batch, views, traced)
                elif (patch := read_into(batch, record.key(), record.value(), tags, texts)) is not None:
                    traced.note(patch, record)
            except NotAPatch as error:
                self._add_dead_letter(record, str(error))
        return batches

    def _upcast(self, record: Message, batch: Batch, views: Mapping[str, View], traced: PatchSpans) -> None:
        """Add the patches of an event of an older version; raises NotAPatch."""
        event, partition, partitions = OlderEvent.of(record.value()), record.partition() or 0, self._partitions
        try:
            for patch in event.patches(views, partition, partitions):
                batch.patches.setdefault(patch.tag, []).append(patch.patch)
                if patch.traceparent:
                    traced.note(patch, record)
        except Unreadable as error:
            if (letter := event.letter(str(error), partition, partitions)) is not None:
                self._dead_letters.put(letter.key, letter.text)
                self._dead_letters.flush()
                LETTERS.labels(self._store.name).inc()

    def _apply(self, batches: Mapping[int, Batch], stop: threading.Event) -> None:
        began = time.monotonic()
        apply = partial(self._retrying, stop, self._apply_to)
        letters = apply_fitting(apply, self._serving, batches, self._store.name, self._dead_letters)
        for target in self._serving if self._aside else ():
            self._aside.pop(target.id, None)
        LETTERS.labels(self._store.name).inc(letters)
        BATCH_SECONDS.labels(self._store.name).observe(time.monotonic() - began)
        count_rows(self._store.name, batches.values())

    def _apply_to(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> None:
        """Apply batches; raises _SomeFail if that fails for some generations and for others not, as with a closed
        index or a locked table.
        """
        try:
            self._store.apply(targets, batches)
        except PASSED_ON:
            raise
        except Exception:
            if len(targets) == 1:
                raise
            self._store.ledgers(targets[0])  # it answers, so it is not the store that fails
            causes = list[tuple[Target, Exception]]()
            for target in targets:
                try:
                    self._store.apply([target], batches)
                except PASSED_ON:  # it comes again
                    continue
                except Exception as error:  # noqa: BLE001 - any kind: it is logged, and stops no other view
                    causes.append((target, error))
            if 0 < len(causes) < len(targets):
                raise _SomeFail(causes) from None
            raise

    def _add_dead_letter(self, record: Message, reason: str) -> None:
        place = {"partition": record.partition(), "offset": record.offset()}
        log.warning("record patches/%s/%s is not a patch: %s", *place.values(), reason, extra=place)
        self._dead_letters.add_record(PATCHES, record, reason)
        LETTERS.labels(self._store.name).inc()

    def _retrying(self, stop: threading.Event, call: Callable[..., Result], *args: object) -> Result:
        """Call until the store answers; raises StoreUnavailable once `stop` is set, or other generations are to be
        loaded."""
        return Retrying(
            retry=retry_if_exception(
                lambda error: isinstance(error, StoreUnavailable) and not self._must_load_others()
            ),
            wait=wait_exponential_jitter(multiplier=0.05, max=2.0),
            stop=stop_when_event_set(stop),
            sleep=sleep_using_event(stop),
            before_sleep=self._waiting,
            reraise=True,
        )(call, *args)

    def _must_load_others(self) -> bool:
        """Whether the registry has other generations than those that are known: a view may be paused, or replayed."""
        try:
            others = tuple(self._targets()) != self._known
        except StoreUnavailable:
            return False
        if others:
            self._refreshed = float("-inf")
        return others

    def _waiting(self, state: RetryCallState) -> None:
        STORE_WAITS.labels(self._store.name).inc()
        error = state.outcome.exception() if state.outcome else None
        level = logging.INFO if isinstance(error, TakenOver) else logging.WARNING  # each hand-over takes over
        log.log(level, "%s; attempt %d", error, state.attempt_number)


def count_rows(store: str, batches: Iterable[Batch]) -> None:
    """Count the rows that the patches of these batches are for."""
    keys = defaultdict[str, set[str]](set)
    for batch in batches:
        for tag, patches in batch.patches.items():
            keys[tag].update(patch.key for patch in patches)
    for tag, found in keys.items():
        LOADED_ROWS.labels(store, tag.partition("@")[0]).inc(len(found))
