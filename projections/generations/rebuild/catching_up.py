"""Brings a generation up to date: by loaders of its own, or by patches out of the log if no loader writes it."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Final

from tenacity import Retrying, before_sleep_log, retry_if_exception_type, stop_after_delay, wait_fixed

from headwater.eventlog.ports import EventLog
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import PATCHES
from headwater.projections.errors import (
    BulkLoadFailed,
    CannotCatchUp,
    GenerationMissing,
    LedgerWentBack,
    LoaderDied,
    RefusedPatch,
    StoreUnavailable,
    Unloadable,
)
from headwater.projections.generations.rebuild.engine import Engine, Waits, holds_events
from headwater.projections.generations.registry.sources import ends_of, patch_ends, read_by, sources
from headwater.projections.limits import (
    AWAY_S,
    CAUGHT_UP_PATCHES,
    CAUGHT_UP_S,
    CHUNK_BYTES,
    FEW_ROWS,
    MANY_ROWS,
    MANY_SHARE,
    NO_CLOSER_S,
)
from headwater.projections.loading.dead_letters import DeadLetters
from headwater.projections.loading.decoding import NotAPatch, read_into
from headwater.projections.loading.loader import REFRESH_S, Loader
from headwater.projections.loading.refused_patches import PlacedPatch, add_letter, apply_by_halves
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.ledgers import check, position
from headwater.projections.stores.names import patch_partition
from headwater.projections.stores.open import opened
from headwater.projections.stores.store import Batch, Target, ViewStore
from headwater.projections.table.patch import BULK, MARK, Patch, Place
from headwater.projections.view import View

logger = logging.getLogger(__name__)

RETRY_S: Final = 1.0
CHUNK_PATCHES: Final = 2_000


def retry_while_unavailable(seconds: float) -> Retrying:
    """Calls again while a store is unavailable, for so many seconds."""
    return Retrying(
        retry=retry_if_exception_type(StoreUnavailable),
        stop=stop_after_delay(seconds),
        wait=wait_fixed(RETRY_S),
        before_sleep=before_sleep_log(logger, logging.WARNING),
        reraise=True,
    )


@dataclass
class LogPatches:
    """Applies patches to a generation in one store, in the order of the log.

    A store that crashes may come back without what it applied last. Then it refuses later patches, which would give
    wrong rows: each batch says what it follows, and the store compares that as it applies it.

    on_refused: gets each patch that the store refuses, with the reason. reached: by partition of `patches` and source,
    the place of the last patch that was applied.
    """

    store: ViewStore
    target: Target
    on_refused: Callable[[Patch, Unloadable], None]
    reached: dict[int, dict[str, Place]]

    def apply(self, patches: Sequence[PlacedPatch]) -> None:
        """Apply patches together; if the store refuses some of them, without these.

        Raises LedgerWentBack, GenerationMissing and StoreUnavailable.
        """
        apply_by_halves(self._apply_some, patches, lambda placed, error: self.on_refused(placed[1], error))

    def _apply_some(self, patches: Sequence[PlacedPatch]) -> None:
        batches: dict[int, Batch] = {}
        for partition, patch in patches:
            batches.setdefault(partition, Batch(0)).patches.setdefault(self.target.tag, []).append(patch)
        self.apply_batches(batches)
        for partition, patch in patches:
            places = self.reached.setdefault(partition, {})
            places[patch.source] = max(patch.place, places.get(patch.source, patch.place))

    def apply_batches(self, batches: Mapping[int, Batch]) -> None:
        """Apply batches as soon as the store answers; raises Unloadable, and what `apply` raises."""
        for partition, batch in batches.items():
            batch.follows = {self.target.tag: dict(self.reached.get(partition, {}))}
        retry_while_unavailable(AWAY_S)(self.store.apply, [self.target], batches)

    def settle(self) -> None:
        """Write what the store has delayed; raises LedgerWentBack if it has lost patches."""
        self.store.settle(now=True)
        applied = {partition: Batch(0, follows={self.target.tag: places}) for partition, places in self.reached.items()}
        check(self.store.name, self.target, self.store.ledgers(self.target), applied)


def top_up(
    target: Target,
    stores: Sequence[ViewStore],
    letters: DeadLetters,
    engine: Engine,
    log: EventLog,
    settings: LogSettings,
) -> int:
    """Apply every missing event, in log order, to a generation that nobody loads; returns the number of patches.

    A patch that a store refuses, or that cannot be read, becomes a dead letter, as if a loader had applied it.

    Afterwards its ledgers continue at the end that `patches` had before. Raises GenerationMissing if a ledger is gone,
    StoreUnavailable and LogUnavailable.
    """
    patch_starts = patch_ends(log, settings)  # before the ends of sources
    ends = ends_of(log, sources([target.view], settings))
    ledgers = [store.ledgers(target) for store in stores]
    if any(len(of_store) < settings.patch_partitions for of_store in ledgers):
        raise GenerationMissing(*target.id)
    applying = [
        LogPatches(
            store,
            target,
            partial(add_letter, letters, store.name, target.tag),
            {partition: dict(ledger.applied) for partition, ledger in of_store.items()},
        )
        for store, of_store in zip(stores, ledgers, strict=True)
    ]
    positions = [position(of_store, ends) for of_store in ledgers]
    missing = {source: (min(offsets[source] for offsets in positions), end) for source, end in ends.items()}
    number, ranges = 0, read_by(target.view, missing)
    if holds_events(log, ranges):
        for chunk in chunks(_decoded(engine.patches(target.view, ranges), letters, target.view)):
            number += len(chunk)
            for one in applying:
                one.apply(chunk)
    progress = {target.tag: {source: end - 1 for source, end in ends.items() if end}}
    for one in applying:
        one.apply_batches({partition: Batch(offset, {}, progress) for partition, offset in patch_starts.items()})
        one.settle()
    return number


def _decoded(patches: Iterable[tuple[str, str, int]], letters: DeadLetters, view: View) -> Iterator[tuple[int, Patch]]:
    """The partition of each patch, and the patch; one that cannot be read becomes a dead letter."""
    texts = {view.tag: view.layout.json_texts}
    for key, value, partition in patches:
        batch = Batch(0)
        try:
            read_into(batch, key.encode(), value.encode(), json_texts=texts)
        except NotAPatch as error:
            logger.warning("a patch of the row %s cannot be applied: %s", key, error)
            letters.add(f"{PATCHES}/replay/{key}", str(error), key.encode())  # its third part is the view's tag
        for some in batch.patches.values():
            yield from ((partition, patch) for patch in some)


def check_few(view: str, stores: Sequence[str], written: int, refused: Sequence[Set[str]]) -> None:
    """Raise BulkLoadFailed if a store refuses so many rows that the reason is not their values.

    written: rows that at least one store holds. refused: by store, the keys of the others.
    """
    rows = written + min(map(len, refused), default=0)
    for store, keys in zip(stores, refused, strict=False):
        number = len(keys)
        if (number > MANY_ROWS and number > MANY_SHARE * rows) or (number > FEW_ROWS and number >= rows):
            problem = "see the log above, and compare the declaration of the view with its events"
            raise BulkLoadFailed(view, f"{store} refuses {number:,} of {rows:,} rows: {problem}")


def add_rows(
    store: ViewStore, target: Target, patches: Iterable[Patch], letters: DeadLetters, *, tag: str, skip: bool
) -> int:
    """Apply the patches of rows that bulk did not write, and return how many of them the store refused.

    Ledgers count these events as applied, so the patches have places in a source of their own. A refused patch changes
    nothing, and becomes a dead letter, like one that a loader applies. tag: of the view, for dead letters. skip:
    otherwise the first refused patch raises RefusedPatch.

    Raises BulkLoadFailed if the store loses patches that it had applied.
    """
    view, refused, numbers = target.view, 0, count()
    if not (partitions := len(store.ledgers(target))):
        raise GenerationMissing(*target.id)
    originals: dict[Place, Patch] = {}

    def refuse(patch: Patch, error: Unloadable) -> None:
        nonlocal refused
        original = originals[patch.place]
        if not skip:
            position = f"{original.source}:{original.place.offset}"
            raise RefusedPatch(view.name, store.name, original.key.removeprefix(MARK), position, error.cause) from error
        add_letter(letters, store.name, tag, original, error)
        refused += 1

    def placed() -> Iterator[tuple[int, Patch]]:
        for patch in patches:
            place = Place(next(numbers), 0)
            originals[place] = patch
            partition = patch_partition(view, target.tag, patch.key, partitions)
            yield partition, patch._replace(source=BULK, place=place)

    applying = LogPatches(store, target, refuse, {})
    try:
        for chunk in chunks(placed()):
            applying.apply(chunk)
            originals.clear()
        retry_while_unavailable(AWAY_S)(applying.settle)
    except LedgerWentBack as error:
        cause = "lost what it had written last, as after a crash, while refused rows were added"
        raise BulkLoadFailed(view.name, f"{store.name} {cause}") from error
    if refused:
        logger.warning("%s g%d: %s refused %d patches", *target.id, store.name, refused)
    return refused


def chunks(patches: Iterable[tuple[int, Patch]]) -> Iterator[list[tuple[int, Patch]]]:
    """The patches in parts that fit into memory."""
    chunk, size_bytes = list[tuple[int, Patch]](), 0
    for partition, patch in patches:
        chunk.append((partition, patch))
        size_bytes += _size_bytes(patch.fields)
        if len(chunk) == CHUNK_PATCHES or size_bytes > CHUNK_BYTES:
            yield chunk
            chunk, size_bytes = [], 0
    if chunk:
        yield chunk


def _size_bytes(value: object) -> int:
    """About the bytes of a value in JSON."""
    match value:
        case str():
            return len(value)
        case dict():
            return sum(_size_bytes(name) + _size_bytes(item) for name, item in value.items())
        case list() | tuple():
            return sum(map(_size_bytes, value))
    return 8


LEDGERS_EVERY_S: Final = 1.0
HAND_OVER_S: Final = 4 * REFRESH_S


@contextmanager
def loading(target: Target, settings: LogSettings, stores: StoreSettings) -> Iterator[list[Loader]]:
    """Loaders of one generation only, one per store, each in its own thread with its own store."""
    stop, partitions = threading.Event(), range(settings.patch_partitions)
    with opened(target.view, stores) as own:
        loaders = [Loader(store, lambda: [target], settings, partitions) for store in own]
        threads = [threading.Thread(target=loader.run, args=[stop], daemon=True) for loader in loaders]
        for thread in threads:
            thread.start()
        try:
            yield loaders
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def catch_up(
    target: Target,
    stores: Sequence[ViewStore],
    loaders: Sequence[Loader],
    ends: Callable[[], Mapping[int, int]],
    on_progress: Callable[[int, int], None],
) -> Waits:
    """Until every loader is near the end of `patches` (CAUGHT_UP_PATCHES, CAUGHT_UP_S).

    ends: returns the end of each partition. on_progress: called with patches (done, total). Raises LoaderDied if a
    loader died, GenerationMissing if the generation is gone, CannotLoad if a loader has left it out, CannotCatchUp if
    it came no closer for NO_CLOSER_S, and StoreUnavailable if a store is unavailable for more than AWAY_S.
    """
    total, checked = 0, time.monotonic()
    closest, closest_at = math.inf, checked
    earlier: deque[tuple[float, Mapping[int, int]]] = deque()
    while True:
        if any(loader.failed for loader in loaders):
            raise LoaderDied(target.view.name)
        now, at = ends(), time.monotonic()
        behind = max(_behind(now, loader) for loader in loaders)
        total = max(total, behind)
        on_progress(total - behind, total)
        if behind <= CAUGHT_UP_PATCHES:
            return
        earlier.append((at, now))
        while at - earlier[0][0] >= CAUGHT_UP_S:
            _, then = earlier.popleft()
            if not any(_behind(then, loader) for loader in loaders):
                return
        if behind < closest:
            closest, closest_at = behind, at
        elif at - closest_at > NO_CLOSER_S:
            raise CannotCatchUp(*target.id, behind, NO_CLOSER_S / 60)
        if at - checked > LEDGERS_EVERY_S:
            # loaders wait for a store forever, and leave out what they cannot load; a rebuild must fail instead
            for store in stores:
                if not retry_while_unavailable(AWAY_S)(store.ledgers, target):
                    raise GenerationMissing(*target.id)
            for loader in loaders:
                if (left_out := loader.left_out.get(target.id)) is not None:
                    raise left_out
            checked = time.monotonic()
        yield


def until_taken_over() -> Waits:
    """Until the regular loaders have seen a swap that was made before."""
    until = time.monotonic() + HAND_OVER_S
    while time.monotonic() < until:
        yield


def _behind(ends: Mapping[int, int], loader: Loader) -> int:
    """How many offsets of `patches` a loader still has to read."""
    return sum(max(0, end - loader.positions.get(source, 0)) for source, end in ends.items())
