"""How many rows of a generation a store reads, combines and writes together, so that large rows do not fill memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from headwater.projections.limits import FIRST_ROWS, GROUP_BYTES
from headwater.projections.stores.store import Target
from headwater.projections.table.patch import Patch

GROWTH: Final = 4
"""A group has at most so many times the rows of one that fitted: those of a batch of small rows soon are one group."""


class Groups:
    """The sizes of groups, by generation: they follow the sizes of the rows that were written last."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], int] = {}

    def rows(self, target: Target) -> int:
        """The number of rows of the next group."""
        return self._rows.get(target.id, FIRST_ROWS)

    def note(self, target: Target, rows: int, size_bytes: int) -> None:
        """Note that so many rows were written, and their size when they were encoded."""
        if rows:
            fitting = rows * GROUP_BYTES // max(1, size_bytes)
            self._rows[target.id] = max(1, min(fitting, max(self.rows(target), rows * GROWTH)))

    def of(self, target: Target, patches: Mapping[str, list[Patch]]) -> Iterator[dict[str, list[Patch]]]:
        """The patches of a generation, by key, in groups; `note` between two of them is heeded."""
        keys = iter(patches)
        while group := {key: patches[key] for key in islice(keys, self.rows(target))}:
            yield group
