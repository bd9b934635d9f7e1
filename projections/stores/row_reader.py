"""Reads whole generations from a store, row by row: for `replay verify` and `replay diff`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from projections.stores.store import Target
from projections.table.monoids import State

Rows = Iterator[tuple[str, State]]


@dataclass(frozen=True)
class Size:
    """The size of a generation, as the store estimates it. rows: approximately; None: the store has no count."""

    rows: int | None
    size_bytes: int | None


class RowReader(Protocol):
    """Reads the state of rows, including deleted ones; empty fields are left out. Every call connects again.

    Raises StoreUnavailable, and GenerationMissing if the generation is not in the store.
    """

    def rows(self, target: Target) -> Rows:
        """Every row, in any order, each as it is at some time after the call.

        Valkey may give one twice: its SCAN does while tables grow, and a set of all keys would take too much memory.
        """

    def rows_of(self, target: Target, keys: Sequence[str]) -> dict[str, State]:
        """The current rows of these keys; missing ones are left out."""

    def size(self, target: Target) -> Size:
        """The size without reading the rows; of the view, only the name is used."""


class Compared(NamedTuple):
    """What can be compared of a store. row_of: the key of the row that a key of the reader is about."""

    reader: RowReader
    row_of: Callable[[str], str] = str


def without_empty(state: State) -> State:
    """`state` without nulls and empty lists: a list that events emptied equals one that no event changed."""
    return {name: value for name, value in state.items() if value is not None and value not in ([], {})}
