"""The port through which one row is read together with what it has applied, and replaced by compare-and-set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from projections.stores.store import Ledger, Target
from projections.table.monoids import State
from projections.table.patch import Place


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row as a store has it.

    state: None if there is no row. applied: by source, the place up to which the row has every patch that its ledger
    has passed, and none after it. version: what `replace` compares.
    """

    state: State | None
    applied: Mapping[str, Place]
    version: Any = None

    def has(self, source: str, place: Place) -> bool:
        """Whether the row has what came from this place."""
        reached = self.applied.get(source)
        return reached is not None and place <= reached

    def offset(self, source: str) -> int:
        """The first offset of a source of which the row may lack something."""
        reached = self.applied.get(source)
        return 0 if reached is None else reached.offset


class SingleRows(Protocol):
    """Reads and replaces single rows of table views in one store, while loaders write others; every call connects.

    Raises StoreUnavailable, and GenerationMissing if the generation is not in the store.
    """

    def read(self, target: Target, key: str) -> StoredRow:
        """The row with this key."""

    def as_read(self, state: State) -> State:
        """A folded state in the form in which `read` returns it once it is stored."""

    def replace(self, target: Target, key: str, before: StoredRow, state: State | None) -> bool:
        """Write `state` in place of the row that was read (None: remove the row).

        Returns False, and changes nothing, if a patch has changed the row since, or a store lost what it had: then read
        it again. Raises Unloadable if the store cannot hold a value.
        """


def covers(ledger: Ledger, before: StoredRow) -> bool:
    """Whether a ledger has not gone back since a row was read, as that of a server which lost its last writes."""
    return all(ledger.has(source, place) for source, place in before.applied.items())


def applied_to(ledger: Ledger, guard: Mapping[str, Place]) -> dict[str, Place]:
    """What a row has that is written before its ledger: the ledger was read first."""
    applied = dict(ledger.applied)
    for source, place in guard.items():
        applied[source] = max(place, applied.get(source, place))
    return applied
