"""Writes rows in every store: they are read, combined with patches, and written unless they were changed meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from datetime import date
from functools import partial
from itertools import islice
from typing import Any, Final, Generic, Literal, NamedTuple, Protocol, TypeVar

from headwater.projections.errors import StoreUnavailable
from headwater.projections.limits import ATTEMPTS, FIRST_ROWS, GROUP_BYTES
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.backend import Rows, Size, StoredRow, applied_to, without_empty
from headwater.projections.stores.documents import Guard, by_key, take_new_patches
from headwater.projections.stores.ledgers import check, loadable, take_new
from headwater.projections.stores.names import patch_partition
from headwater.projections.stores.store import Batch, Ledger, Target
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import Patch

GROWTH: Final = 4
"""A group has at most so many times the rows of one that fitted: those of a batch of small rows soon are one group."""


class LedgerChanged(Exception):
    """A ledger is not the one that is known here: another loader wrote it, or the server has lost what came last."""


class ReadRow(NamedTuple):
    """A row as it was read, and then as it is to be written; empty if there is none.

    held: what the store compares to see whether the row has changed since; None: there is no such row. change: a row
    that is replaced or removed must not have changed at all, not even by a patch that its guard has.
    """

    state: State
    guard: Guard
    held: Any = None
    change: Literal["patched", "replaced", "removed"] = "patched"


class Encoded(NamedTuple):
    """Rows as they are sent to a store. writes: in its form."""

    writes: Any
    size_bytes: int


class KnownLedgers(Protocol):
    """What a store knows of the ledgers of a generation, which it compares whenever it reads or writes rows."""

    @property
    def ledgers(self) -> Mapping[int, Ledger]:
        """By partition of `patches`; none if the generation is gone or incomplete."""


class _Group(NamedTuple):
    """Rows that are written together. patches: by key. rows: those that these change, after them."""

    patches: dict[str, list[Patch]]
    rows: dict[str, ReadRow]
    encoded: Encoded


Known = TypeVar("Known", bound=KnownLedgers)
FirstKeys = Callable[[Target], Sequence[str]]
"""The keys of the rows of a generation that will be read first."""


class Advanced(NamedTuple, Generic[Known]):
    """Ledgers to be written after the rows; has_rows: there was more than progress."""

    target: Target
    known: Known
    ledgers: Mapping[int, Ledger]
    has_rows: bool


class RowStore(Protocol[Known]):
    """A store that writes a row only if it is as it was read, and if its ledger is the known one.

    Raises GenerationMissing, StoreUnavailable, and LedgerChanged; then any of the rows may have been written.
    """

    def transaction(self, targets: Sequence[Target]) -> AbstractContextManager[object]:
        """Around all that is read and written together; most stores have none."""
        return nullcontext()

    def known(
        self, targets: Sequence[Target], partitions: Collection[int], first: FirstKeys | None = None
    ) -> Sequence[Known]:
        """The ledgers of these partitions. first: for a store that reads rows together with them."""

    def read_rows(self, target: Target, keys: Sequence[str], known: Known) -> dict[str, ReadRow]:
        """The rows with these keys."""

    def encoded(
        self, target: Target, rows: Mapping[str, ReadRow], partitions: Mapping[str, int], known: Known
    ) -> Encoded:
        """Changed rows; partitions: of `patches`, by key. Raises what `loadable` translates."""

    def write_if(self, target: Target, rows: Mapping[str, ReadRow], encoded: Encoded) -> Collection[str]:
        """Write these rows; returns the keys of those that have changed since they were read."""

    def write_ledgers(self, advanced: Sequence[Advanced[Known]]) -> Collection[Target]:
        """Write ledgers, or note that they are to be written; returns the generations of which one has changed."""

    def storable(self, value: Any) -> Any:
        """A key or state in the form in which the store can hold it."""
        return value

    def rows(self, target: Target) -> Rows:
        """See RowReader."""

    def rows_of(self, target: Target, keys: Sequence[str]) -> dict[str, State]:
        """See RowReader."""

    def size(self, target: Target) -> Size:
        """See RowReader."""

    def find_expired(self, target: Target, last_day: date, limit: int) -> list[str]:
        """See SingleRows."""
        raise TypeError(f"{type(self).__name__} finds rows only by their keys")

    def close(self) -> None:
        """Close the connections."""


class Writer(Generic[Known]):
    """Applies patches to the rows of a store."""

    def __init__(self, store: RowStore[Known], name: str, fault: Callable[[str], None]) -> None:
        """name: of the store, in errors. fault: called with a name at each moment at which a crash must do no harm."""
        self._store, self._name, self._fault = store, name, fault
        self._rows_together: dict[tuple[str, int], int] = {}
        """The number of rows in the next group of a generation: it follows the sizes of those written last."""

    def apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> None:
        """See ViewStore.apply."""
        for _ in range(ATTEMPTS):
            with self._store.transaction(targets):
                targets = self._apply(targets, batches)
            if not targets:
                return
        raise StoreUnavailable(
            self._name, f'the ledgers of "{targets[0].view.name}" lost {ATTEMPTS} compare-and-set races'
        )

    def _apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> list[Target]:
        """Apply batches, and return the generations of which a ledger has changed meanwhile: they start anew."""
        advanced, changed = list[Advanced[Known]](), list[Target]()
        first = partial(self._first_keys, batches)
        for target, known in zip(targets, self._store.known(targets, batches.keys(), first), strict=True):
            check(self._name, target, known.ledgers, batches)
            ledgers = {partition: known.ledgers[partition].copy() for partition in batches}
            new = {partition: take_new(ledgers[partition], batch, target.tag) for partition, batch in batches.items()}
            try:
                self._write(target, new, known)
            except LedgerChanged:
                changed.append(target)
            else:
                advanced.append(Advanced(target, known, ledgers, any(new.values())))
        self._fault("rows written")
        changed += self._store.write_ledgers(advanced)
        self._fault("ledger written")
        return changed

    def _first_keys(self, batches: Mapping[int, Batch], target: Target) -> list[str]:
        if target.view.layout.retraction is not None:
            return []  # groups are known once contributions are read
        keys = {patch.key for batch in batches.values() for patch in batch.patches.get(target.tag, ())}
        return sorted(keys)[: self._rows_together.get(target.id, FIRST_ROWS)]

    def _write(self, target: Target, new: Mapping[int, Sequence[Patch]], known: Known) -> None:
        """Write the rows that patches change; new: by partition of `patches`, those that the ledgers do not have."""
        patches = [patch for some in new.values() for patch in some]
        partitions = {patch.key: partition for partition, some in new.items() for patch in some}
        counted, read = list[Patch](), dict[str, ReadRow]()
        if (retraction := target.view.layout.retraction) is not None:
            for partition, some in new.items():
                for keyed in self._groups(target, by_key(some)):
                    read |= self._store.read_rows(target, list(keyed), known)
                groups = retraction.patches(some, {key: row.state for key, row in read.items()})
                partitions |= {patch.key: partition for patch in groups}
                counted += groups
        # Groups are written before the contributions, which say that their groups have them. If not all have, because
        # of a crash, the same patches are made again, and the guards of groups skip those that they have. After a
        # refusal nothing makes them again: so a change of several rows is checked before any of them is written.
        checked, size_bytes = list[tuple[dict[str, list[Patch]], _Group | None]](), 0
        for some in (counted, patches):
            for keyed in self._groups(target, by_key(some)):
                group = self._combined(target, keyed, partitions, known, read)
                if counted:
                    size_bytes += group.encoded.size_bytes
                    checked.append((keyed, group if size_bytes <= GROUP_BYTES else None))
                else:
                    self._write_group(target, group, partitions, known)
        for keyed, ready in checked:
            self._write_group(target, ready or self._combined(target, keyed, partitions, known, {}), partitions, known)

    def _groups(self, target: Target, patches: Mapping[str, list[Patch]]) -> Iterator[dict[str, list[Patch]]]:
        """The patches of each row, some rows at a time, so that large rows do not fill memory.

        In the order of keys: two writers whose keys are the same in the store do not deadlock.
        """
        keys = iter(sorted(patches))
        while some := list(islice(keys, self._rows_together.get(target.id, FIRST_ROWS))):
            yield {key: patches[key] for key in some}

    def _combined(
        self,
        target: Target,
        patches: dict[str, list[Patch]],
        partitions: Mapping[str, int],
        known: Known,
        read: Mapping[str, ReadRow],
    ) -> _Group:
        """Rows after these patches; read: rows as they were read before. Raises Unloadable."""
        store, layout, size = self._store, target.view.layout, self._rows_together
        is_read = patches.keys() <= read.keys()
        rows = {key: read[key] for key in patches} if is_read else store.read_rows(target, list(patches), known)
        self._fault("rows read")
        changed: dict[str, ReadRow] = {}
        with loadable(self._name):
            for key, row in rows.items():
                if new := take_new_patches(row.guard, patches[key]):
                    for patch in new:
                        layout.combine(row.state, patch.fields)
                    changed[key] = row
            encoded = store.encoded(target, changed, partitions, known)
        if changed:
            fitting = len(changed) * GROUP_BYTES // max(1, encoded.size_bytes)
            size[target.id] = max(1, min(fitting, max(size.get(target.id, FIRST_ROWS), len(changed) * GROWTH)))
        return _Group(patches, changed, encoded)

    def _write_group(self, target: Target, group: _Group, partitions: Mapping[str, int], known: Known) -> None:
        for _ in range(ATTEMPTS):
            if not group.rows:
                return
            # written rows are not read again, because their guards would skip the patches
            lost = self._store.write_if(target, group.rows, group.encoded)
            patches = {key: group.patches[key] for key in group.rows if key in lost}
            if not patches:
                return
            group = self._combined(target, patches, partitions, known, {})
        raise StoreUnavailable(self._name, f'row "{next(iter(patches))}" lost {ATTEMPTS} compare-and-set races')


class StoredRows(Generic[Known]):
    """See RowReader and SingleRows: reads the rows of a store, replaces and removes them while loaders write others."""

    def __init__(self, store: Callable[[StoreSettings], RowStore[Known]], name: str, settings: StoreSettings) -> None:
        """store: connects at its first use. name: of the store, in errors."""
        self._store, self._name, self._settings = store, name, settings

    def _opened(self) -> AbstractContextManager[RowStore[Known]]:
        return closing(self._store(self._settings))

    def rows(self, target: Target) -> Rows:
        with self._opened() as store:
            yield from store.rows(target)

    def rows_of(self, target: Target, keys: Sequence[str]) -> dict[str, State]:
        with self._opened() as store:
            return store.rows_of(target, keys)

    def size(self, target: Target) -> Size:
        with self._opened() as store:
            return store.size(target)

    def find_expired(self, target: Target, last_day: date, limit: int) -> list[str]:
        with self._opened() as store:
            return store.find_expired(target, last_day, limit)

    def read(self, target: Target, key: str) -> StoredRow:
        ((row, ledger),), _ = self._change(target, [key], lambda *_: None)
        return StoredRow(
            None if row.held is None else without_empty(row.state), applied_to(ledger, row.guard), row.held
        )

    def as_read(self, state: State) -> State:
        with self._opened() as store:
            return without_empty(store.storable(state))

    def replace(self, target: Target, key: str, before: StoredRow, state: State | None) -> bool:
        def change(row: ReadRow, ledger: Ledger) -> ReadRow | None:
            # what only its guard has is applied again once it is removed, to a row that then has nothing else
            has = applied_to(ledger, {} if state is None else row.guard)
            is_older = any(source not in has or has[source] < place for source, place in before.applied.items())
            if is_older or row.held != before.version:
                return None
            return row._replace(change="removed") if state is None else row._replace(state=state, change="replaced")

        _, written = self._change(target, [key], change)
        return bool(written)

    def remove(self, target: Target, keys: Sequence[str]) -> int:
        _, removed = self._change(
            target, keys, lambda row, _: None if row.held is None else row._replace(change="removed")
        )
        return removed

    def _change(
        self, target: Target, keys: Sequence[str], change: Callable[[ReadRow, Ledger], ReadRow | None]
    ) -> tuple[list[tuple[ReadRow, Ledger]], int]:
        """Read rows, each with the ledger of its patches, and write what is made of them (None: leave it).

        Returns the rows as they were read, and how many of the others are as they were to be.
        """
        with self._opened() as store:
            partitions = {
                store.storable(key): patch_partition(target.view, target.tag, key, self._settings.patch_partitions)
                for key in keys
            }
            for _ in range(ATTEMPTS):
                try:
                    with store.transaction([target]):
                        (known,) = store.known([target], set(partitions.values()))
                        check(self._name, target, known.ledgers, dict.fromkeys(partitions.values(), Batch(0)))
                        read = store.read_rows(target, list(partitions), known)
                        guarded = {key: (read[key], known.ledgers[partition]) for key, partition in partitions.items()}
                        changed = {key: new for key, pair in guarded.items() if (new := change(*pair)) is not None}
                        writes = {
                            key: row._replace(state=store.storable(row.state))
                            for key, row in changed.items()
                            if row.held is not None or row.change == "replaced"
                        }
                        with loadable(self._name):
                            encoded = store.encoded(target, writes, partitions, known)
                        lost = store.write_if(target, writes, encoded) if writes else ()
                        return list(guarded.values()), len(changed) - len(lost)
                except LedgerChanged:  # perhaps for other rows
                    continue
        raise StoreUnavailable(self._name, f'the ledgers of "{target.view.name}" lost {ATTEMPTS} races')
