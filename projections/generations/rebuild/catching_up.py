"""Catching up: loaders of one generation apply the patches that came while it was built."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from headwater.eventlog.settings import LogSettings
from headwater.projections.errors import CannotCatchUp, GenerationMissing, LoaderDied
from headwater.projections.generations.rebuild.engine import Waits
from headwater.projections.generations.rebuild.log_patches import retry_while_unavailable
from headwater.projections.limits import AWAY_S, CAUGHT_UP_PATCHES, CAUGHT_UP_S, NO_CLOSER_S
from headwater.projections.loading.loader import REFRESH_S, Loader
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.open import opened
from headwater.projections.stores.store import Target, ViewStore

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
    return sum(max(0, end - loader.positions.get(each, 0)) for each, end in ends.items())
