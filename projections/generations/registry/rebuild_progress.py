"""How far rebuilds are, in the registry: a rebuild may run in another process than the one that is measured."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headwater.projections.errors import StoreUnavailable

NOTE_S: Final = 5.0
"""Seconds between two notes of a phase; each is a statement in PostgreSQL."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RebuildProgress:
    """The progress of a rebuild that runs.

    phase, done, total: see Step; 0 of 0 if the phase counts nothing. changed_s: when they last changed, in seconds
    since 1970 by PostgreSQL's clock.
    """

    view: str
    phase: str
    done: int
    total: int
    changed_s: float


Note = Callable[[str, int, int], None]
"""Gets the phase, done and total; raises StoreUnavailable."""


class ProgressNotes:
    """Notes the progress of one rebuild from time to time; a note that fails is logged once, and stops nothing.

    Used by the threads of the rebuild.
    """

    def __init__(self, view: str, note: Note, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: returns the time in seconds."""
        self._view, self._note, self._clock = view, note, clock
        self._lock = threading.Lock()
        self._noted: tuple[str, int, int] | None = None
        self._not_before = float("-inf")
        self._failed = False

    def take(self, phase: str, done: int, total: int) -> None:
        """Note this progress, if it is new, and it is time or the phase is another."""
        with self._lock:
            step, known = (phase, done, total), self._noted
            if step == known or (known is not None and known[0] == phase and self._clock() < self._not_before):
                return
            self._noted, self._not_before = step, self._clock() + NOTE_S
        try:
            self._note(*step)
        except StoreUnavailable as error:
            if not self._failed:
                log.warning("cannot note the progress of the rebuild of %s: %s", self._view, error)
            self._failed = True
