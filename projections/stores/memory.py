"""The reference store, in memory: defines what every other store must do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.projections.errors import GenerationMissing
from headwater.projections.stores import ledgers
from headwater.projections.stores.documents import DocumentForm, is_deleted
from headwater.projections.stores.store import Batch, BulkWriter, Ledger, Target, ViewStore, no_fault
from headwater.projections.table.monoids import State

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class _Generation:
    ledgers: dict[int, Ledger]
    rows: dict[str, State] = field(default_factory=dict)
    """They are replaced, and never changed."""

    def copy(self) -> _Generation:
        held = {number: ledger.copy() for number, ledger in self.ledgers.items()}
        return _Generation(held, dict(self.rows))


class Memory:
    """The data of a server: it outlives the stores that are opened on it."""

    def __init__(self) -> None:
        self.generations: dict[tuple[str, int], _Generation] = {}
        self.published: dict[str, int] = {}


class MemoryStore(ViewStore):
    """Views in memory. A call to `apply` takes effect as a whole or not at all.

    fault: called with a name at each moment in `apply` at which a crash must do no harm; for tests.
    """

    name = "memory"

    def __init__(self, memory: Memory, fault: Callable[[str], None] = no_fault) -> None:
        self._memory, self._fault = memory, fault

    def create(self, target: Target, bulk_ends: Mapping[str, int], patch_starts: Mapping[int, int]) -> None:
        fresh = {partition: ledgers.initial_ledger(bulk_ends, offset) for partition, offset in patch_starts.items()}
        self._memory.generations[target.id] = _Generation(fresh)

    def bulk_writer(self, target: Target) -> BulkWriter:
        return _Writer(self._memory.generations[target.id].rows, DocumentForm.of(target.view))

    def finish(self, target: Target, at_least: int = 0) -> Collection[str]:
        ledgers.check_rows(self.name, target, len(self._memory.generations[target.id].rows), at_least)
        return ()

    def publish(self, target: Target) -> None:
        self._memory.published[target.view.name] = target.generation

    def shown(self, view: str) -> int | None:
        return self._memory.published.get(view)

    def drop(self, target: Target) -> None:
        self._memory.generations.pop(target.id, None)

    def all_ledgers(self, targets: Sequence[Target]) -> list[dict[int, Ledger]]:
        generations = [self._memory.generations.get(target.id) for target in targets]
        return [held.copy().ledgers if held else {} for held in generations]

    def apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> None:
        changed: dict[tuple[str, int], _Generation] = {}
        for target in targets:
            held = self._memory.generations.get(target.id)
            if held is None:
                raise GenerationMissing(*target.id)
            ledgers.check(self.name, target, held.ledgers, batches)
            held = held.copy()
            for partition, batch in batches.items():
                new = ledgers.take_new(held.ledgers[partition], batch, target.tag)
                with ledgers.loadable(self.name):
                    new = target.view.layout.with_groups(new, held.rows)
                    held.rows |= ledgers.combined(target.view.layout, held.rows, new)
            changed[target.id] = held
            self._fault("rows written")
        self._fault("ledger written")
        self._memory.generations.update(changed)

    def rows(self, target: Target) -> dict[str, dict[str, Any]]:
        """The visible rows of a generation, by key."""
        form = DocumentForm.of(target.view)
        rows = self._memory.generations[target.id].rows
        return {key: form.show(key, state) for key, state in rows.items() if not is_deleted(state)}

    def close(self) -> None:
        """Nothing to close."""


@dataclass(frozen=True)
class _Writer:
    rows: dict[str, State]
    form: DocumentForm

    def write(self, rows: Iterator[pa.RecordBatch]) -> int:
        folded = dict(row for chunk in self.form.chunks(rows) for row in chunk)
        self.rows.update(folded)
        return len(folded)
