"""Views as Valkey hashes, one per row: each has its guard and is written by compare-and-set, with its rankings."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import orjson
from valkey.exceptions import NoScriptError

from projections.errors import GenerationMissing, StoreUnavailable
from projections.settings import StoreSettings
from projections.stores import ledgers
from projections.stores.documents import DocumentForm, Guard, by_key, take_new_patches
from projections.stores.groups import Groups
from projections.stores.names import cache_generation, cache_key, cache_ledger, cache_pointer, cache_rankings
from projections.stores.rankings import Rankings, changed_places
from projections.stores.store import Batch, BulkWriter, Ledger, Target, no_fault
from projections.stores.valkey_bulk import BULK_ROWS, ValkeyWriter, document
from projections.stores.valkey_client import NAME, connect, translated
from projections.table.layout import Layout
from projections.table.monoids import State
from projections.table.patch import Patch, places_from_json, places_to_json

ATTEMPTS: Final = 20
"""How often a row is read again because another writer was faster; there are rarely two writers."""

# KEYS: the row, its generation's ledgers, and the sorted sets that change. ARGV: the guard as it was read (empty:
# none), the new guard, state and document (empty: the row is deleted). If the view has rankings, also the state as it
# was read, since the row's places until now follow from it (a stream view's batch that is repeated changes the row,
# but not the guard), and per sorted set a score (empty: remove) and a member. A script takes effect as a whole or not
# at all, so rows and sorted sets never differ. 1: written, 0: the row has changed, -1: the generation is gone.
WRITE_ROW: Final = """
if redis.call('EXISTS', KEYS[2]) == 0 then return -1 end
if (redis.call('HGET', KEYS[1], 'guard') or '') ~= ARGV[1] then return 0 end
if ARGV[5] and (redis.call('HGET', KEYS[1], 'state') or '') ~= ARGV[5] then return 0 end
redis.call('HSET', KEYS[1], 'guard', ARGV[2], 'state', ARGV[3])
if ARGV[4] == '' then redis.call('HDEL', KEYS[1], 'doc') else redis.call('HSET', KEYS[1], 'doc', ARGV[4]) end
for number = 3, #KEYS do
    local ranking, score, member = KEYS[number], ARGV[2 * number], ARGV[2 * number + 1]
    if score == '' then redis.call('ZREM', ranking, member) else redis.call('ZADD', ranking, score, member) end
end
return 1
"""

# KEYS: a generation's ledgers. ARGV: partition, the new `next`, the new ledger. A ledger never goes back: a loader
# may not know yet that it lost its partition. 1: written, 0: it was more recent, -1: the generation is gone.
WRITE_LEDGER: Final = """
local held = redis.call('HGET', KEYS[1], ARGV[1])
if not held then return -1 end
if tonumber(string.match(held, '"next":(%d+)')) > tonumber(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
"""


class ValkeyStore:
    """Views in one Valkey; for one thread.

    Rows are written first, their ledger afterwards: after a crash in between, patches are applied again, and the guard
    in each row skips them.

    fault: called with a name at each moment in `apply` at which a crash must do no harm; for tests.
    """

    name = "valkey"

    def __init__(self, settings: StoreSettings, fault: Callable[[str], None] = no_fault) -> None:
        self._settings, self._fault = settings, fault
        self._client = connect(settings.valkey)
        self._groups = Groups()

    def create(self, target: Target, bulk_ends: Mapping[str, int], patch_starts: Mapping[int, int]) -> None:
        self.drop(target)
        entries = {
            partition: _ledger_to_json(ledgers.initial_ledger(bulk_ends, offset))
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
        return ValkeyWriter(self._settings.valkey, prefix, DocumentForm.of(target.view), rankings)

    def finish(self, target: Target) -> Collection[str]:
        """Nothing to do: rows are readable at once."""
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
        return self._look_up([target])[0]

    def apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> None:
        advanced: list[tuple[Target, dict[int, Ledger]]] = []
        for target, known in zip(targets, self._look_up(targets), strict=True):
            ledgers.check(NAME, target, known, batches)
            fresh: list[Patch] = []
            for partition, batch in batches.items():
                fresh += ledgers.take_new(known[partition], batch, target.tag)
            for group in self._groups.of(target, by_key(fresh)):
                self._write_rows(target, group)
            advanced.append((target, {partition: known[partition] for partition in batches}))
        self._fault("rows written")
        self._write_ledgers(advanced)
        self._fault("ledger written")

    def settle(self, *, now: bool = False) -> None:
        """Nothing to do: ledgers are written with each batch."""

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _look_up(self, targets: Sequence[Target]) -> list[dict[int, Ledger]]:
        with translated(), self._client.pipeline(transaction=False) as pipeline:
            for target in targets:
                pipeline.hgetall(self._ledgers_key(target))
            found = pipeline.execute()
        return [{int(partition): _ledger_from_json(entry) for partition, entry in each.items()} for each in found]

    def _write_rows(self, target: Target, patches: dict[str, list[Patch]]) -> None:
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
                calls.append((len(keys), *keys, guard_json or b"", *values))
                size += sum(len(value) for value in values if isinstance(value, bytes))
            self._groups.note(target, len(written), size)
            outcomes = self._run(WRITE_ROW, calls)
            if -1 in outcomes:
                raise GenerationMissing(*target.id)
            patches = {key: patches[key] for key, outcome in zip(written, outcomes, strict=True) if outcome == 0}
            if not patches:
                return
        raise StoreUnavailable(NAME, f'row "{next(iter(patches))}" lost {ATTEMPTS} compare-and-set races')

    def _read_rows(self, names: Sequence[str]) -> list[tuple[bytes | None, bytes | None]]:
        with translated(), self._client.pipeline(transaction=False) as pipeline:
            for name in names:
                pipeline.hmget(name, ["state", "guard"])
            return [(state, guard) for state, guard in pipeline.execute()]

    def _write_ledgers(self, advanced: Sequence[tuple[Target, Mapping[int, Ledger]]]) -> None:
        calls = [
            (1, self._ledgers_key(target), partition, ledger.next_offset, _ledger_to_json(ledger))
            for target, known in advanced
            for partition, ledger in known.items()
        ]
        if -1 in self._run(WRITE_LEDGER, calls):
            target = next(target for target, _ in advanced if not self.ledgers(target))
            raise GenerationMissing(*target.id)

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
    # without spaces, and `next` first: WRITE_LEDGER searches for it
    return orjson.dumps({"next": ledger.next_offset, "applied": places_to_json(ledger.applied)})


def _ledger_from_json(entry: bytes) -> Ledger:
    held = orjson.loads(entry)
    return Ledger(held["next"], places_from_json(held["applied"]))
