"""Views as Valkey hashes, one per row: each has its guard and is written by compare-and-set, with its rankings."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson
from valkey.exceptions import NoScriptError

from projections.errors import GenerationMissing, StoreUnavailable
from projections.limits import ATTEMPTS, BULK_ROWS
from projections.settings import StoreSettings
from projections.stores import ledgers
from projections.stores.documents import DocumentForm, Guard, by_key, take_new_patches
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
from projections.stores.valkey.bulk import ValkeyWriter, document
from projections.stores.valkey.client import NAME, connect, translated
from projections.stores.valkey.eviction import Eviction
from projections.stores.valkey.rankings import Rankings, changed_places
from projections.stores.valkey.scripts import CHANGED, COMPLETE, DONE, GONE, INCOMPLETE, WRITE_LEDGER, WRITE_ROW
from projections.table.layout import Layout
from projections.table.monoids import State
from projections.table.patch import Patch, places_from_json, places_to_json


class _LedgerChanged(Exception):
    """See valkey_scripts.CHANGED."""


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
            partition: _ledger_to_json(ledgers.initial_ledger(bulk_ends, offset)).removesuffix(b"}") + INCOMPLETE
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
        (found,) = self._run(COMPLETE, [(2, self._ledgers_key(target), counter, at_least, INCOMPLETE)])
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
        return self._look_up([target])[0].ledgers

    def apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> None:
        for _ in range(ATTEMPTS):
            targets = self._apply(targets, batches)
            if not targets:
                return
        raise StoreUnavailable(NAME, f'the ledgers of "{targets[0].view.name}" lost {ATTEMPTS} compare-and-set races')

    def _apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> list[Target]:
        """Apply batches, and return the targets of which a ledger has changed meanwhile: they start anew."""
        advanced: list[tuple[Target, _Known]] = []
        changed: list[Target] = []
        for target, known in zip(targets, self._look_up(targets), strict=True):
            ledgers.check(NAME, target, known.ledgers, batches)
            fresh: list[Patch] = []
            partitions: dict[str, int] = {}
            for partition, batch in batches.items():
                new = ledgers.take_new(known.ledgers[partition], batch, target.tag)
                partitions |= {patch.key: partition for patch in new}
                fresh += new
            try:
                for group in self._groups.of(target, by_key(fresh)):
                    self._write_rows(
                        target, group, {key: (partitions[key], known.digest(partitions[key])) for key in group}
                    )
            except _LedgerChanged:
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

    def _look_up(self, targets: Sequence[Target]) -> list[_Known]:
        self._eviction.refuse([self._ledgers_key(target) for target in targets])
        with translated(), self._client.pipeline(transaction=False) as pipeline:
            for target in targets:
                pipeline.hgetall(self._ledgers_key(target))
            found = pipeline.execute()
        return [_Known.of({int(partition): entry for partition, entry in each.items()}) for each in found]

    def _write_rows(
        self, target: Target, patches: dict[str, list[Patch]], looked_up: Mapping[str, tuple[int, str]]
    ) -> None:
        """Write the rows that patches change. looked_up: by row, the partition of its patches and the ledger's digest.

        Raises _LedgerChanged; then any of the rows may have been written.
        """
        rows, environment = _Rows.of(target, self._settings.environment), self._settings.environment
        names = {key: cache_key(environment, *target.id, key) for key in patches}
        for _ in range(ATTEMPTS):
            found = self._read_rows([names[key] for key in patches])
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
                calls.append((len(keys), *keys, *looked_up[key], guard_json or b"", *values))
                size += sum(len(value) for value in values if isinstance(value, bytes))
            self._groups.note(target, len(written), size)
            outcomes = self._run(WRITE_ROW, calls)
            if GONE in outcomes:
                raise GenerationMissing(*target.id)
            if CHANGED in outcomes:
                raise _LedgerChanged
            patches = {key: patches[key] for key, outcome in zip(written, outcomes, strict=True) if outcome == 0}
            if not patches:
                return
        raise StoreUnavailable(NAME, f'row "{next(iter(patches))}" lost {ATTEMPTS} compare-and-set races')

    def _read_rows(self, names: Sequence[str]) -> list[tuple[bytes | None, bytes | None]]:
        with translated(), self._client.pipeline(transaction=False) as pipeline:
            for name in names:
                pipeline.hmget(name, ["state", "guard"])
            return [(state, guard) for state, guard in pipeline.execute()]

    def _write_ledgers(self, advanced: Sequence[tuple[Target, _Known]], partitions: Sequence[int]) -> list[Target]:
        """Write these ledgers, and return the targets of which one has changed meanwhile."""
        places = [(target, known, partition) for target, known in advanced for partition in partitions]
        calls = [
            (1, self._ledgers_key(target), each, known.digest(each), _ledger_to_json(known.ledgers[each]))
            for target, known, each in places
        ]
        changed: dict[tuple[str, int], Target] = {}
        for (target, _, _), outcome in zip(places, self._run(WRITE_LEDGER, calls), strict=True):
            if outcome == GONE:
                raise GenerationMissing(*target.id)
            if outcome == CHANGED:
                changed[target.id] = target
        return list(changed.values())

    def _run(self, script: str, calls: Sequence[tuple[Any, ...]]) -> list[int]:
        """The results of a script for each of `calls`; a call begins with the number of its keys, and the keys."""
        if not calls:
            return []
        with translated():
            digest = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
            try:
                return self._run_loaded(digest, calls)
            except NoScriptError:  # a new server, or one that was restarted
                self._client.script_load(script)
                return self._run_loaded(digest, calls)

    def _run_loaded(self, digest: str, calls: Sequence[tuple[Any, ...]]) -> list[int]:
        with self._client.pipeline(transaction=False) as pipeline:
            for call in calls:
                pipeline.execute_command("EVALSHA", digest, *call)
            return [int(answer) for answer in pipeline.execute()]

    def _ledgers_key(self, target: Target) -> str:
        return cache_ledger(self._settings.environment, *target.id)

    def _rankings_key(self, target: Target) -> str:
        return cache_rankings(self._settings.environment, *target.id)


@dataclass(frozen=True)
class _Known:
    """The ledgers of a generation; none if it is incomplete. entries: as they were looked up."""

    ledgers: dict[int, Ledger]
    entries: Mapping[int, bytes]

    @classmethod
    def of(cls, entries: Mapping[int, bytes]) -> _Known:
        if any(each.endswith(INCOMPLETE) for each in entries.values()):
            return cls({}, {})
        return cls({partition: _ledger_from_json(entry) for partition, entry in entries.items()}, entries)

    def digest(self, partition: int) -> str:
        """As the scripts make it."""
        return hashlib.sha1(self.entries[partition], usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class _Rows:
    """How patches change the rows of one generation, and their places in its rankings."""

    form: DocumentForm
    layout: Layout
    rankings: Rankings

    @classmethod
    def of(cls, target: Target, environment: str) -> _Rows:
        rankings = Rankings.of(environment, target.view, target.generation)
        return cls(DocumentForm.of(target.view), target.view.layout, rankings)

    def changed(self, key: str, state_json: bytes | None, new: Sequence[Patch], guard: Guard) -> tuple[Any, ...]:
        """For WRITE_ROW: a list of the sorted sets that change, and then its arguments after the guard as it was read.

        state_json: None if there is no row yet.
        """
        state: State = orjson.loads(state_json) if state_json else {}
        old = self.rankings.places(self.form, key, state) if state_json else {}
        for patch in new:
            self.layout.combine(state, patch.fields)
        row = _row(self.form, key, state, guard)
        if not self.rankings.ranked:
            return ([], *row)
        changes = list(changed_places(old, self.rankings.places(self.form, key, state)))
        places = (argument for _, score, member in changes for argument in (score, member))
        return ([name for name, _, _ in changes], *row, state_json or b"", *places)


def _row(form: DocumentForm, key: str, state: State, guard: Any) -> tuple[bytes, bytes, bytes]:
    """A row's guard, state and document."""
    return orjson.dumps(places_to_json(guard)), orjson.dumps(state), document(form, key, state)


def _ledger_to_json(ledger: Ledger) -> bytes:
    # without spaces, and `next` first: earlier releases search for it
    return orjson.dumps({"next": ledger.next_offset, "applied": places_to_json(ledger.applied)})


def _ledger_from_json(entry: bytes) -> Ledger:
    held = orjson.loads(entry)
    return Ledger(held["next"], places_from_json(held["applied"]))
