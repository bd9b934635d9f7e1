"""Views as Valkey hashes, one per row: each has its guard and is written by compare-and-set, with its rankings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice

from headwater.projections.errors import GenerationMissing
from headwater.projections.limits import BULK_ROWS
from headwater.projections.settings import StoreSettings
from headwater.projections.stores import ledgers
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
from headwater.projections.stores.valkey.client import NAME, Eviction, translated
from headwater.projections.stores.valkey.known_ledgers import ledger_to_json, looked_up
from headwater.projections.stores.valkey.rankings import Rankings
from headwater.projections.stores.valkey.rows import ValkeyRows
from headwater.projections.stores.valkey.scripts import COMPLETE, DONE, GONE, INCOMPLETE, run
from headwater.projections.stores.writer import Writer


class ValkeyStore:
    """Views in one Valkey; for one thread.

    Rows are written first, their ledger afterwards: after a crash in between, patches are applied again, and the guard
    in each row skips them. The script that writes a row compares the ledger: nothing is written to rows of a server
    that was restarted meanwhile, before its ledger is read.

    fault: called with a name at each moment in `apply` at which a crash must do no harm; for tests.
    """

    name = "valkey"

    def __init__(self, settings: StoreSettings, fault: Callable[[str], None] = no_fault) -> None:
        self._settings, self._rows = settings, ValkeyRows(settings)
        self._client = self._rows.client
        self._eviction = Eviction(self._client)
        self._writer = Writer(self._rows, NAME, fault)

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
        return [known.ledgers for known in looked_up(self._client, self._settings.environment, targets)]

    def apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> None:
        self._refuse_evictions(targets)
        self._writer.apply(targets, batches)

    def settle(self, *, now: bool = False) -> None:
        """Nothing to do: ledgers are written with each batch."""

    def close(self) -> None:
        self._rows.close()

    def _refuse_evictions(self, targets: Sequence[Target]) -> None:
        self._eviction.refuse([self._ledgers_key(target) for target in targets])

    def _ledgers_key(self, target: Target) -> str:
        return cache_ledger(self._settings.environment, *target.id)

    def _rankings_key(self, target: Target) -> str:
        return cache_rankings(self._settings.environment, *target.id)
