"""Writes states that were folded again to the log, a few per transaction, so that no other disk has to fold them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import Final

from headwater.commands.handling.batch import Batch
from headwater.commands.handling.refold import COUNTED, UNWRITTEN, is_snapshot
from headwater.commands.handling.restore import RECORDED, STREAMS_KEY
from headwater.commands.local_state.state import StateStore
from headwater.eventlog import topics
from headwater.eventlog.ports import Entry

MAX_STREAMS: Final = 1_000
MAX_BYTES: Final = 2 * 1024 * 1024
"""Of the states in one transaction; the last one may exceed it."""
PAUSE_S: Final = 0.05
"""Between two transactions, so that commands do not wait."""


class Unwritten:
    """The folded states of a partition that the log does not have; the store remembers them until they are written."""

    def __init__(self, store: StateStore) -> None:
        """Call it after the restore: later ones are not found."""
        self._store = store
        self._marks: Iterator[str] | None = (mark for mark, _ in store.snapshots(UNWRITTEN))
        self._not_before = 0.0

    def wait_s(self) -> float | None:
        """Seconds until the next may be written; None if there are none."""
        return None if self._marks is None else self._not_before - time.monotonic()

    def take(self, batch: Batch) -> dict[str, bytes | None]:
        """Add the next states to the snapshots of a batch; returns the deletions to apply after its commit."""
        if self._marks is None or (self.wait_s() or 0.0) > 0:
            return {}
        deletions: dict[str, bytes | None] = {}
        size_bytes = 0
        for mark in islice(self._marks, MAX_STREAMS):
            stream = mark.removeprefix(f"{UNWRITTEN}/")
            deletions[mark] = None
            value = self._store.snapshot(stream)
            # a decision in the same batch replaces it
            if value is not None and is_snapshot(value) and batch.snapshots.setdefault(stream, value) is value:
                size_bytes += len(value)
            if size_bytes >= MAX_BYTES:
                break
        if not deletions:
            self._marks = None
        self._not_before = time.monotonic() + PAUSE_S
        return deletions


def number_of_streams(store: StateStore, batch: Batch) -> Entry | None:
    """The record with the number of streams (see STREAMS_KEY), if the log has another number."""
    number = store.position(COUNTED) + batch.new_streams
    if number == store.position(RECORDED):
        return None
    return Entry(topics.SNAPSHOTS, STREAMS_KEY, b"%d" % number, batch.now_ms)
