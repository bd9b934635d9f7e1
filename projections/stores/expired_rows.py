"""The ports through which rows are removed that expired for good: no event can bring them back (`Expiry.is_final`)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Protocol

from projections.stores.store import Target


class RowRemover(Protocol):
    """Removes such rows from one store, while loaders write others; every call connects.

    A loader that writes such a row meanwhile makes a part of it anew, which nobody sees, and which is found again.
    Raises StoreUnavailable, and GenerationMissing if the generation is not in the store.
    """

    def remove(self, target: Target, keys: Sequence[str]) -> int:
        """Remove the rows of these keys; returns how many there were."""


class ExpiredRows(RowRemover, Protocol):
    """Finds them as well: in a store that finds rows by any column (`DeclaredStore.finds`)."""

    def find(self, target: Target, last_day: date, limit: int) -> list[str]:
        """Keys of at most so many rows, also deleted ones, that expired up to this day of their column."""
