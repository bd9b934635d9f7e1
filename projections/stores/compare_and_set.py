"""Writes rows in stores without transactions: a row is read, combined, and written unless it was changed meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from headwater.projections.errors import StoreUnavailable
from headwater.projections.limits import ATTEMPTS
from headwater.projections.stores.documents import Guard, by_key, take_new_patches
from headwater.projections.stores.groups import Groups
from headwater.projections.stores.ledgers import loadable
from headwater.projections.stores.store import Target
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import Patch

Known = TypeVar("Known")
Known_contra = TypeVar("Known_contra", contravariant=True)
"""What a store knows of the ledgers of a generation, which it compares whenever it reads or writes rows."""


class LedgerChanged(Exception):
    """A ledger is not the one that is known here: another loader wrote it, or the server has lost what came last."""


class ReadRow(NamedTuple):
    """A row as it was read; empty if there is none.

    held: what the store compares to see whether the row has changed since.
    """

    state: State
    guard: Guard
    held: Any


class Encoded(NamedTuple):
    """Rows as they are sent to a store. writes: in its form, one per row."""

    writes: Sequence[Any]
    size_bytes: int


class ComparingStore(Protocol[Known_contra]):
    """A store that writes a row only if it is as it was read, and if its ledger is the known one.

    Raises GenerationMissing, StoreUnavailable, and LedgerChanged; then any of the rows may have been written.
    """

    name: str

    def read_rows(self, target: Target, keys: Sequence[str], known: Known_contra) -> dict[str, ReadRow]:
        """The rows with these keys."""

    def encoded(
        self, target: Target, rows: Mapping[str, ReadRow], partitions: Mapping[str, int], known: Known_contra
    ) -> Encoded:
        """Changed rows; partitions: of `patches`, by key. Raises what `loadable` translates."""

    def write_if(self, target: Target, keys: Sequence[str], encoded: Encoded) -> Collection[str]:
        """Write these rows; returns the keys of those that have changed since they were read."""


class ComparingWriter(Generic[Known]):
    """Applies patches to the rows of a ComparingStore."""

    def __init__(self, store: ComparingStore[Known], fault: Callable[[str], None]) -> None:
        """fault: called with a name at each moment at which a crash must do no harm."""
        self._store, self._fault = store, fault
        self._groups = Groups()

    def write(self, target: Target, new: Mapping[int, Sequence[Patch]], known: Known) -> None:
        """Write the rows that patches change; new: by partition of `patches`, those that the ledgers do not have."""
        patches = [patch for some in new.values() for patch in some]
        partitions = {patch.key: partition for partition, some in new.items() for patch in some}
        counted, read = list[Patch](), dict[str, ReadRow]()
        if (retraction := target.view.layout.retraction) is not None:
            for partition, some in new.items():
                for group in self._groups.of(target, by_key(some)):
                    read |= self._store.read_rows(target, list(group), known)
                groups = retraction.patches(some, {key: row.state for key, row in read.items()})
                partitions |= {patch.key: partition for patch in groups}
                counted += groups
        # Groups are written before the contributions, which say that their groups have them. If not all have, because
        # of a crash, the same patches are made again, and the guards of groups skip those that they have.
        for some in (counted, patches):
            for group in self._groups.of(target, by_key(some)):
                self._write_group(target, group, partitions, known, read)

    def _write_group(
        self,
        target: Target,
        patches: dict[str, list[Patch]],
        partitions: Mapping[str, int],
        known: Known,
        read: Mapping[str, ReadRow],
    ) -> None:
        """read: rows as they were read before."""
        store, layout = self._store, target.view.layout
        for _ in range(ATTEMPTS):
            is_read = patches.keys() <= read.keys()
            found = {key: read[key] for key in patches} if is_read else store.read_rows(target, list(patches), known)
            read = {}  # if one has changed since, it is read again
            self._fault("rows read")
            changed: dict[str, ReadRow] = {}
            with loadable(store.name):
                for key, row in found.items():
                    if new := take_new_patches(row.guard, patches[key]):
                        for patch in new:
                            layout.combine(row.state, patch.fields)
                        changed[key] = row
                encoded = store.encoded(target, changed, partitions, known)
            if not changed:
                return
            self._groups.note(target, len(changed), encoded.size_bytes)
            # written rows are not read again, because their guards would skip the patches
            lost = store.write_if(target, list(changed), encoded)
            patches = {key: patches[key] for key in changed if key in lost}
            if not patches:
                return
        raise StoreUnavailable(store.name, f'row "{next(iter(patches))}" lost {ATTEMPTS} compare-and-set races')
