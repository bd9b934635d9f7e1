"""Removes rows that expired for good from all stores of a view, some at a time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from typing import Final

from headwater.projections.errors import ProjectionError
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.open import backend
from headwater.projections.stores.store import Target

EVERY_S: Final = 600.0
"""Between two looks at a store that has no such rows left."""
ROWS_AT_ONCE: Final = 1_000

log = logging.getLogger(__name__)


def keep_removing(
    settings: StoreSettings, targets: Callable[[], Sequence[Target]], stop: threading.Event, every_s: float = EVERY_S
) -> None:
    """Remove them again and again until `stop` is set; errors are logged, and the next turn goes on.

    targets: the generations that loaders write now.
    """
    while not stop.is_set():
        try:
            for target in targets():
                _remove(settings, target, stop)
        except ProjectionError as error:
            log.warning("expired rows are removed later: %s", error)
        except Exception:
            log.exception("expired rows are removed later")
        stop.wait(every_s)


def _remove(settings: StoreSettings, target: Target, stop: threading.Event) -> None:
    expiry = target.view.expiry
    last_day = None if expiry is None else expiry.last_removed(datetime.now(UTC))
    if last_day is None:
        return
    try:
        removed = remove_rows(settings, target, last_day, stop)
    except ProjectionError as error:
        log.warning("expired rows of %s g%d are removed later: %s", target.view.tag, target.generation, error)
    else:
        if removed:
            log.info("removed %d expired rows of %s g%d", removed, target.view.tag, target.generation)


def remove_rows(settings: StoreSettings, target: Target, last_day: date, stop: threading.Event) -> int:
    """Remove the rows up to a day of the column by which they expire; returns how many the first finding store had.

    A store that finds no rows loses those that the first one has found, which has them until the others lost them: so
    a crash in between leaves none behind. Raises StoreUnavailable and GenerationMissing.
    """
    answering = [store for store in target.view.stores if store.answers]
    first, *finding = (store.name for store in answering if store.finds)
    others = [store.name for store in answering if not store.finds]
    removed = _remove_found(first, others, settings, target, last_day, stop)
    for scan in finding:
        _remove_found(scan, [], settings, target, last_day, stop)
    return removed


def _remove_found(
    finding: str,
    others: Sequence[str],
    settings: StoreSettings,
    target: Target,
    last_day: date,
    stop: threading.Event,
) -> int:
    rows = [single(settings) for name in (*others, finding) if (single := backend(name).single_rows) is not None]
    removed = 0
    while not stop.is_set() and (keys := rows[-1].find_expired(target, last_day, ROWS_AT_ONCE)):
        removed_rows = [row.remove(target, keys) for row in rows][-1]
        if not removed_rows:  # a loader writes them at this moment
            break
        removed += removed_rows
    return removed
