"""The port through which an erasure finds and empties columns in clear, in every generation that a store has.

It asks the store which generations have such columns, not the code: also those that a rebuild is making, that are kept
for a rollback, or whose view is no longer declared.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol


class ClearGeneration(NamedTuple):
    """A generation with columns in clear. erased: the number of the last erasure whose keys no row of it shows."""

    view: str
    generation: int
    columns: tuple[str, ...]
    erased: int

    @property
    def id(self) -> tuple[str, int]:
        """The name of its view, and its number."""
        return self.view, self.generation


class ClearRows(Protocol):
    """The rows of a store that show values in clear; every call connects. Raises StoreUnavailable."""

    def generations(self) -> Sequence[ClearGeneration]:
        """Those that have such columns, whether they are live, being built, or kept."""

    def count(self, of: ClearGeneration, key_ids: Collection[str]) -> int:
        """How many rows show values of these keys."""

    def empty(self, of: ClearGeneration, key_ids: Collection[str]) -> int:
        """Replace these values by null, while rows are read and written; returns how many rows had any.

        The keys must be destroyed, and forgotten by every process: then nobody writes a value that was found before.
        """

    def note_erased(self, of: ClearGeneration, number: int) -> None:
        """Record that no row shows a value of the keys that were destroyed up to the erasure with this number."""
