"""The complete rows of a view by key: what to go back to if a later row is taken back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import orjson

FLUSH_BYTES: Final = 64_000
"""Rows of this size are moved out of what is read in every batch."""
MERGE_BYTES: Final = 4_000_000
"""Segments are not merged to larger ones."""

Rows = Mapping[str, str | None]
"""Rows as JSON by their keys; None for one that is deleted."""


class Segments(Protocol):
    """Where rows are stored, as JSON texts with a number."""

    def read(self, number: int) -> str:
        """What was written with this number."""

    def write(self, number: int, text: str) -> None:
        """Store a text."""

    def remove(self, number: int) -> None:
        """Delete what was written with this number."""


class InMemory(dict[int, str]):
    """Segments of tests, and of keys that have none."""

    read = dict.__getitem__
    write = dict.__setitem__
    remove = dict.__delitem__


@dataclass
class RowHistory:
    """Rows of one key. recent: the last ones. sizes: of the segments with the earlier ones, in bytes.

    Rows are looked up only if a row of the same key was sent and is taken back. So they are written in segments that
    are merged with the one before if that is not much larger: a row is written again a few times at most.
    """

    recent: dict[str, str | None] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    segments: Segments = field(default_factory=InMemory, compare=False)

    def add(self, rows: Rows) -> None:
        """Replace the rows of these keys."""
        self.recent.update(rows)
        if not self.sizes:
            self.recent = {key: row for key, row in self.recent.items() if row is not None}
        if sum(len(key) + len(row or "") for key, row in self.recent.items()) > FLUSH_BYTES:
            self._flush()

    def find(self, keys: Collection[str]) -> dict[str, str]:
        """The rows with these keys; those that are deleted or unknown are left out."""
        found = {key: self.recent[key] for key in keys if key in self.recent}
        for number in reversed(range(len(self.sizes))):
            left = [key for key in keys if key not in found]
            if not left:
                break
            segment = orjson.loads(self.segments.read(number))
            found |= {key: segment[key] for key in left if key in segment}
        return {key: row for key, row in found.items() if row is not None}

    def _flush(self) -> None:
        rows, text = self.recent, orjson.dumps(self.recent)
        while self.sizes and self.sizes[-1] <= 2 * len(text) and self.sizes[-1] + len(text) <= MERGE_BYTES:
            self.sizes.pop()
            number = len(self.sizes)
            rows = orjson.loads(self.segments.read(number)) | rows
            self.segments.remove(number)
            if not number:
                rows = {key: row for key, row in rows.items() if row is not None}
            text = orjson.dumps(rows)
        self.segments.write(len(self.sizes), text.decode())
        self.sizes.append(len(text))
        self.recent = {}
