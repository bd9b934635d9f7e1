"""Views as Valkey hashes, one per row: each has its guard and is written by compare-and-set, with its rankings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import Any

import orjson

from headwater.projections.errors import GenerationMissing, StoreUnavailable
from headwater.projections.limits import ATTEMPTS, BULK_ROWS
from headwater.projections.settings import StoreSettings
from headwater.projections.stores import ledgers
from headwater.projections.stores.compare_and_set import ComparingWriter, Encoded, LedgerChanged, ReadRow
from headwater.projections.stores.documents import DocumentForm
from headwater.projections.stores.names import (
    cache_bulk_rows,
    cache_generation,
    cache_key,
    cache_ledger,
    cache_pointer,
    cache_rankings,
)
from headwater.projections.stores.store import Batch, BulkWriter, Ledger, Target, no_fault
from headwater.projections.stores.valkey.bulk import ValkeyWriter
from headwater.projections.stores.valkey.client import NAME, connect, translated
from headwater.projections.stores.valkey.eviction import Eviction
from headwater.projections.stores.valkey.known_ledgers import KnownLedgers, ledger_to_json, looked_up
from headwater.projections.stores.valkey.rankings import Rankings
from headwater.projections.stores.valkey.row_form import RowForm
from headwater.projections.stores.valkey.scripts import (
    CHANGED,
    COMPLETE,
    DONE,
    GONE,
    INCOMPLETE,
    WRITE_LEDGER,
    WRITE_ROW,
    run,
)
from headwater.projections.table.patch import places_from_json


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
        self._writer = ComparingWriter[KnownLedgers](self, fault)

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
        return [known.ledgers for known in self._look_up(targets)]

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
            ledgers.check(NAME, target, known.ledgers, batches)
            new = {
                partition: ledgers.take_new(known.ledgers[partition], batch, target.tag)
                for partition, batch in batches.items()
            }
            try:
                self._writer.write(target, new, known)
            except LedgerChanged:
                changed.append(target)
            else:
                advanced.append((target, known))
        self._fault("rows written")
        changed += self._write_ledgers(advanced, list(batches))
        self._fault("ledger written")
        return changed

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

    def read_rows(self, target: Target, keys: Sequence[str], known: KnownLedgers) -> dict[str, ReadRow]:
        """See ComparingStore; the script compares the ledger."""
        with translated(), self._client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.hmget(cache_key(self._settings.environment, *target.id, key), ["state", "guard"])
            found = pipeline.execute()
        return {
            key: ReadRow(
                orjson.loads(state) if state else {},
                places_from_json(orjson.loads(guard) if guard else None),
                (state, guard),
            )
            for key, (state, guard) in zip(keys, found, strict=True)
        }

    def encoded(
        self, target: Target, rows: Mapping[str, ReadRow], partitions: Mapping[str, int], known: KnownLedgers
    ) -> Encoded:
        """See ComparingStore."""
        form = RowForm.of(target, self._settings.environment)
        calls: list[tuple[Any, ...]] = []
        size = 0
        for key, row in rows.items():
            state_json, guard_json = row.held
            sets, *values = form.changed(key, state_json, row.state, row.guard)
            keys = (cache_key(self._settings.environment, *target.id, key), self._ledgers_key(target), *sets)
            at = partitions[key], known.digest(partitions[key])
            calls.append((len(keys), *keys, *at, guard_json or b"", *values))
            size += sum(len(value) for value in values if isinstance(value, bytes))
        return Encoded(calls, size)

    def write_if(self, target: Target, keys: Sequence[str], encoded: Encoded) -> Collection[str]:
        """See ComparingStore."""
        outcomes = run(self._client, WRITE_ROW, encoded.writes)
        if GONE in outcomes:
            raise GenerationMissing(*target.id)
        if CHANGED in outcomes:
            raise LedgerChanged
        return {key for key, outcome in zip(keys, outcomes, strict=True) if outcome == 0}

    def _write_ledgers(
        self, advanced: Sequence[tuple[Target, KnownLedgers]], partitions: Sequence[int]
    ) -> list[Target]:
        """Write these ledgers, and return the targets of which one has changed meanwhile."""
        places = [(target, known, partition) for target, known in advanced for partition in partitions]
        calls = [
            (1, self._ledgers_key(target), each, known.digest(each), ledger_to_json(known.ledgers[each]))
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
