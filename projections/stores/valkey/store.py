"""Views as Valkey hashes, one per row: each has its guard and is written by compare-and-set, with its rankings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import Any

import orjson

from projections.errors import GenerationMissing, StoreUnavailable
from projections.limits import ATTEMPTS, BULK_ROWS
from projections.settings import StoreSettings
from projections.stores import ledgers
from projections.stores.documents import DocumentForm, by_key, take_new_patches
from projections.stores.groups import Groups
from projections.stores.names import (
    cache_bulk_rows,
    cache_generation,
    cache_key,
    cache_ledger,
    cache_pointer,
    cache_rankings,
)
from projections.stores.store import Batch, BulkWriter, Ledger, Target, no_fault
from projections.stores.valkey.bulk import ValkeyWriter
from projections.stores.valkey.client import NAME, connect, translated
from projections.stores.valkey.eviction import Eviction
from projections.stores.valkey.known_ledgers import KnownLedgers, ledger_to_json, looked_up, only_ledgers
from projections.stores.valkey.rankings import Rankings
from projections.stores.valkey.row_form import RowForm
from projections.stores.valkey.scripts import CHANGED, COMPLETE, DONE, GONE, INCOMPLETE, WRITE_LEDGER, WRITE_ROW, run
from projections.table.patch import Patch, places_from_json

StoredRow = tuple[bytes | None, bytes | None]
"""The state and guard of a row."""


class _LedgerChanged(Exception):
    """See scripts.CHANGED."""


class ValkeyStore:
    """Views in one Valkey; for one thread.

    Rows are written first, their ledger afterwards: after a crash in between, patches are applied again, and the guard
    in each row skips them. The script that writes a row compares the ledger: nothing is written to rows of a server
    that was restarted meanwhile, before its ledger is read.

    fault: called with a name at each moment in `apply` at which a crash must do no harm; for tests.
    """

    name = "valkey"

    def __init__(self, settings: StoreSettings, fault: Callable[[str], None] = no_fault) -> None:
        self._settings, self._fault = settings, fault
        self._client = connect(settings.valkey)
        self._eviction = Eviction(self._client)
        self._groups = Groups()

    def create(self, target: Target, bulk_ends: Mapping[str, int], patch_starts: Mapping[int, int]) -> None:
        self._eviction.refuse([])
        self.drop(target)
        entries = {
            partition: ledger_to_json(ledgers.initial_ledger(bulk_ends, offset)).removesuffix(b"}") + INCOMPLETE
            for partition, offset in patch_starts.items()
        }
        ranked = Rankings.of(self._settings.environment, target.view, target.generation).ranked
        with translated():
            if ranked:
                self._client.sadd(self._rankings_key(target), *(each.name for each in ranked))
            self._client.hset(self._ledgers_key(target), mapping=entries)

    def bulk_writer(self, target: Target) -> BulkWriter:
        environment = self._settings.environment
        prefix = cache_key(environment, *target.id, "")
        rankings = Rankings.of(environment, target.view, target.generation)
        counter = cache_bulk_rows(environment, *target.id)
        return ValkeyWriter(self._settings.valkey, prefix, counter, DocumentForm.of(target.view), rankings)

    def finish(self, target: Target, at_least: int = 0) -> Collection[str]:
        """Rows are readable at once. What the server saves next, it saves after them."""
        counter = cache_bulk_rows(self._settings.environment, *target.id)
        (found,) = run(self._client, COMPLETE, [(2, self._ledgers_key(target), counter, at_least, INCOMPLETE)])
        if found == GONE:
            raise GenerationMissing(*target.id)
        if found != DONE:
            ledgers.check_rows(NAME, target, found, at_least)
        return ()

    def publish(self, target: Target) -> None:
        with translated():
            self._client.set(cache_pointer(self._settings.environment, target.view.name), target.generation)

    def drop(self, target: Target) -> None:
        every = cache_generation(self._settings.environment, *target.id)
        with translated():
            # the ledger first: from here on nothing writes rows, and without the other nothing reads rankings
            self._client.unlink(self._ledgers_key(target), self._rankings_key(target))
            pointer = cache_pointer(self._settings.environment, target.view.name)
            if self._client.get(pointer) == str(target.generation).encode():
                self._client.unlink(pointer)
            found = self._client.scan_iter(match=every, count=BULK_ROWS)
            while keys := list(islice(found, BULK_ROWS)):
                self._client.unlink(*keys)

    def ledgers(self, target: Target) -> dict[int, Ledger]:
        (found,) = self.all_ledgers([target])
        return found

    def all_ledgers(self, targets: Sequence[Target]) -> list[dict[int, Ledger]]:
        self._refuse_evictions(targets)
        return only_ledgers(self._client, self._settings.environment, targets)

    def apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> None:
        for _ in range(ATTEMPTS):
            targets = self._apply(targets, batches)
            if not targets:
                return
        raise StoreUnavailable(NAME, f'the ledgers of "{targets[0].view.name}" lost {ATTEMPTS} compare-and-set races')

    def _apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> list[Target]:
        """Apply batches, and return the targets of which a ledger has changed meanwhile: they start anew."""
        advanced: list[tuple[Target, KnownLedgers]] = []
        changed: list[Target] = []
        for target, known in zip(targets, self._look_up(targets), strict=True):
            form = RowForm.of(target, self._settings.environment, known.kept)
            ledgers.check(NAME, target, known.ledgers, batches)
            first, fresh = list[Patch](), list[Patch]()
            read: dict[str, StoredRow] = {}
            partitions: dict[str, int] = {}
            for partition, batch in batches.items():
                new = ledgers.take_new(known.ledgers[partition], batch, target.tag)
                groups, contributions = self._groups_of(target, new)
                read |= contributions
                partitions |= {patch.key: partition for patch in (*groups, *new)}
                first += groups
                fresh += new
            try:
                for some in (first, fresh):
                    for group in self._groups.of(target, by_key(some)):
                        at = {key: (partitions[key], known.digest(partitions[key])) for key in group}
                        self._write_rows(target, form, group, at, read)
            except _LedgerChanged:
                changed.append(target)
            else:
                advanced.append((target, known))
        self._fault("rows written")
        changed += self._write_ledgers(advanced, list(batches))
        self._fault("ledger written")
        return changed

    def _groups_of(self, target: Target, patches: Sequence[Patch]) -> tuple[list[Patch], dict[str, StoredRow]]:
        """The patches of groups that patches of contributions make, and the contributions; see ElasticsearchStore."""
        retraction = target.view.layout.retraction
        if retraction is None:
            return [], {}
        read: dict[str, StoredRow] = {}
        for group in self._groups.of(target, by_key(patches)):
            names = [cache_key(self._settings.environment, *target.id, key) for key in group]
            read |= zip(group, self._read_rows(names), strict=True)
        return retraction.patches(
            patches, {key: orjson.loads(state) for key, (state, _) in read.items() if state}
        ), read

    def settle(self, *, now: bool = False) -> None:
        """Nothing to do: ledgers are written with each batch."""

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _look_up(self, targets: Sequence[Target]) -> list[KnownLedgers]:
        self._refuse_evictions(targets)
        return looked_up(self._client, self._settings.environment, targets)

    def _refuse_evictions(self, targets: Sequence[Target]) -> None:
        self._eviction.refuse([self._ledgers_key(target) for target in targets])

    def _write_rows(
        self,
        target: Target,
        rows: RowForm,
        patches: dict[str, list[Patch]],
        at: Mapping[str, tuple[int, str]],
        read: Mapping[str, StoredRow],
    ) -> None:
        """Write the rows that patches change.

        at: by row, the partition of its patches and the ledger's digest. read: rows as they were read before.

        Raises _LedgerChanged; then any of the rows may have been written.
        """
        names = {key: cache_key(self._settings.environment, *target.id, key) for key in patches}
        for _ in range(ATTEMPTS):
            is_read = patches.keys() <= read.keys()
            found = [read[key] for key in patches] if is_read else self._read_rows([names[key] for key in patches])
            read = {}  # if one has changed since, it is read again
            self._fault("rows read")
            written: list[str] = []
            calls: list[tuple[Any, ...]] = []
            size = 0
            for key, (state_json, guard_json) in zip(patches, found, strict=True):
                guard = places_from_json(orjson.loads(guard_json) if guard_json else None)
                new = take_new_patches(guard, patches[key])
                if not new:
                    continue
                with ledgers.loadable(NAME):
                    sets, *values = rows.changed(key, state_json, new, guard)
                written.append(key)
                keys = (names[key], self._ledgers_key(target), *sets)
                calls.append((len(keys), *keys, *at[key], guard_json or b"", *values))
                size += sum(len(value) for value in values if isinstance(value, bytes))
            self._groups.note(target, len(written), size)
            outcomes = run(self._client, WRITE_ROW, calls)
            if GONE in outcomes:
                raise GenerationMissing(*target.id)
            if CHANGED in outcomes:
                raise _LedgerChanged
            patches = {key: patches[key] for key, outcome in zip(written, outcomes, strict=True) if outcome == 0}
            if not patches:
                return
        raise StoreUnavailable(NAME, f'row "{next(iter(patches))}" lost {ATTEMPTS} compare-and-set races')

    def _read_rows(self, names: Sequence[str]) -> list[StoredRow]:
        with translated(), self._client.pipeline(transaction=False) as pipeline:
            for name in names:
                pipeline.hmget(name, ["state", "guard"])
            return [(state, guard) for state, guard in pipeline.execute()]

    def _write_ledgers(
        self, advanced: Sequence[tuple[Target, KnownLedgers]], partitions: Sequence[int]
    ) -> list[Target]:
        """Write these ledgers, and return the targets of which one has changed meanwhile."""
        places = [(target, known, partition) for target, known in advanced for partition in partitions]
        calls = [
            (1, self._ledgers_key(target), each, known.digest(each), known.advanced(each))
            for target, known, each in places
        ]
        changed: dict[tuple[str, int], Target] = {}
        for (target, _, _), outcome in zip(places, run(self._client, WRITE_LEDGER, calls), strict=True):
            if outcome == GONE:
                raise GenerationMissing(*target.id)
            if outcome == CHANGED:
                changed[target.id] = target
        return list(changed.values())

    def _ledgers_key(self, target: Target) -> str:
        return cache_ledger(self._settings.environment, *target.id)

    def _rankings_key(self, target: Target) -> str:
        return cache_rankings(self._settings.environment, *target.id)
