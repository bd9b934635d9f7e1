"""Whole generations read back from a store, row by row: what `replay verify` and `replay diff` compare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from projections.stores.store import Target
from projections.table.monoids import State

CHUNK_ROWS: Final = 1_000

Rows = Iterator[tuple[str, State]]


@dataclass(frozen=True)
class Size:
    """How large a generation is, by the store's own books. rows: about so many; None: the store keeps no count."""

    rows: int | None
    size_bytes: int | None


class RowReader(Protocol):
    """Reads the state of rows, deleted ones too; fields that hold nothing are left out. Every call connects anew.

    Raises StoreUnavailable, and GenerationMissing where the generation is not in the store.
    """

    def rows(self, target: Target) -> Rows:
        """Every row, in any order, each as it is at some moment after the call."""

    def rows_of(self, target: Target, keys: Sequence[str]) -> dict[str, State]:
        """The rows of these keys as they are now; those that are not there are left out."""

    def size(self, target: Target) -> Size:
        """What the store knows without reading the rows; of the view, only the name matters."""


def touched(state: State) -> State:
    """A list that events touched and left empty is as good as one that none touched."""
    return {name: value for name, value in state.items() if value is not None and value not in ([], {})}
