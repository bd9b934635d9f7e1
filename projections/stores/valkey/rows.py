"""The hashes of a generation, as states; single ones are replaced together with their places in rankings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

import orjson

from headwater.projections.errors import GenerationMissing
from headwater.projections.limits import ATTEMPTS, CHUNK_ROWS
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.ledgers import loadable
from headwater.projections.stores.names import cache_key, cache_ledger, patch_partition
from headwater.projections.stores.rows import Rows, Size, StoredRow, applied_to, covers, without_empty
from headwater.projections.stores.store import Target
from headwater.projections.stores.valkey.client import NAME, connect, translated
from headwater.projections.stores.valkey.known_ledgers import KnownLedgers, looked_up
from headwater.projections.stores.valkey.row_form import RowForm
from headwater.projections.stores.valkey.scripts import CHANGED, DELETE_ROW, GONE, WRITE_ROW, run
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import places_from_json


class ValkeyRows:
    """See SingleRows. The version of a row is the texts of its state and guard."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings

    def rows(self, target: Target) -> Rows:
        prefix = cache_key(self._settings.environment, *target.id, "")
        with translated(), closing(connect(self._settings.valkey)) as client:
            names = client.scan_iter(match=f"{prefix}*", count=CHUNK_ROWS)
            while chunk := list(islice(names, CHUNK_ROWS)):
                keys = [name.decode().removeprefix(prefix) for name in chunk]
                yield from _of_hashes(keys, self._states(client, chunk))

    def rows_of(self, target: Target, keys: Sequence[str]) -> dict[str, State]:
        names = [self._row(target, key) for key in keys]
        with translated(), closing(connect(self._settings.valkey)) as client:
            return dict(_of_hashes(keys, self._states(client, names)))

    def size(self, target: Target) -> Size:
        return Size(None, None)  # Valkey cannot count keys by prefix, and a scan reads the keys of every view

    def read(self, target: Target, key: str) -> StoredRow:
        with closing(connect(self._settings.valkey)) as client:
            known, partition = self._known(client, target, key)  # before the row, which may have more
            with translated():
                state_json, guard_json = client.hmget(self._row(target, key), ["state", "guard"])
        guard = places_from_json(orjson.loads(guard_json) if guard_json else None)
        state = without_empty(orjson.loads(state_json)) if state_json else None
        return StoredRow(state, applied_to(known.ledgers[partition], guard), (state_json, guard_json))

    def as_read(self, state: State) -> State:
        return without_empty(state)

    def replace(self, target: Target, key: str, before: StoredRow, state: State | None) -> bool:
        state_json, guard_json = before.version
        guard = places_from_json(orjson.loads(guard_json) if guard_json else None)
        form = RowForm.of(target, self._settings.environment)
        with closing(connect(self._settings.valkey)) as client:
            for _ in range(ATTEMPTS):
                known, partition = self._known(client, target, key)
                keys = [self._row(target, key), cache_ledger(self._settings.environment, *target.id)]
                place: list[Any] = [partition, known.digest(partition), guard_json or b""]
                if state is None:
                    if not covers(known.ledgers[partition], before):
                        return False  # a loader may apply what is in the guard only again
                    sets, members = form.removed(key, state_json)
                    script, arguments = DELETE_ROW, [*place, state_json or b"", *members]
                else:
                    with loadable(NAME):
                        sets, *values = form.replaced(key, state_json, state, guard)
                    script, arguments = WRITE_ROW, [*place, *values]
                keys += sets
                (outcome,) = run(client, script, [(len(keys), *keys, *arguments)])
                if outcome == GONE:
                    raise GenerationMissing(*target.id)
                if outcome != CHANGED:  # else a loader has written the ledger meanwhile, perhaps for other rows
                    return bool(outcome)
        return False

    def remove(self, target: Target, keys: Sequence[str]) -> int:
        # they are in no ranking, because views whose rows expire have none
        names = [self._row(target, key) for key in keys]
        with translated(), closing(connect(self._settings.valkey)) as client:
            return int(client.unlink(*names)) if names else 0

    def _states(self, client: Any, names: Sequence[Any]) -> list[bytes | None]:
        with client.pipeline(transaction=False) as pipeline:
            for name in names:
                pipeline.hget(name, "state")
            found: list[bytes | None] = pipeline.execute()
        return found

    def _known(self, client: Any, target: Target, key: str) -> tuple[KnownLedgers, int]:
        """The ledgers, and the partition of the row's patches; raises GenerationMissing."""
        partition = patch_partition(target.view, target.tag, key, self._settings.patch_partitions)
        (known,) = looked_up(client, self._settings.environment, [target])
        if partition not in known.ledgers:
            raise GenerationMissing(*target.id)
        return known, partition

    def _row(self, target: Target, key: str) -> str:
        return cache_key(self._settings.environment, *target.id, key)


def _of_hashes(keys: Sequence[str], states: Iterable[bytes | None]) -> Rows:
    for key, state in zip(keys, states, strict=True):
        if state is not None:
            yield key, without_empty(orjson.loads(state))
