"""The rows and ledgers of generations in Valkey: hashes, written by compare-and-set with their places in rankings."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any

import orjson

from headwater.projections.errors import GenerationMissing
from headwater.projections.limits import CHUNK_ROWS
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.documents import DocumentForm
from headwater.projections.stores.names import cache_key, cache_ledger
from headwater.projections.stores.rows import Rows, Size, without_empty
from headwater.projections.stores.store import Target
from headwater.projections.stores.valkey.bulk import document
from headwater.projections.stores.valkey.client import connect, translated
from headwater.projections.stores.valkey.known_ledgers import KnownLedgers, ledger_to_json, looked_up
from headwater.projections.stores.valkey.rankings import Rankings, ScoredMember, changed_places
from headwater.projections.stores.valkey.scripts import CHANGED, GONE, WRITE_LEDGER, WRITE_ROW, run
from headwater.projections.stores.writer import Advanced, Encoded, FirstKeys, LedgerChanged, ReadRow
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import places_from_json, places_to_json


class ValkeyRows:
    """See RowStore. The version of a row is the texts of its state and guard; the script compares the ledger."""

    def __init__(self, settings: StoreSettings) -> None:
        self._environment, self.client = settings.environment, connect(settings.valkey)

    def transaction(self, targets: Sequence[Target]) -> AbstractContextManager[object]:
        return nullcontext()

    def known(
        self, targets: Sequence[Target], partitions: Collection[int], first: FirstKeys | None = None
    ) -> Sequence[KnownLedgers]:
        return looked_up(self.client, self._environment, targets)

    def read_rows(self, target: Target, keys: Sequence[str], known: KnownLedgers) -> dict[str, ReadRow]:
        with translated(), self.client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.hmget(cache_key(self._environment, *target.id, key), ["state", "guard"])
            found = pipeline.execute()
        return {
            key: ReadRow(orjson.loads(state), places_from_json(orjson.loads(guard) if guard else None), (state, guard))
            if state
            else ReadRow({}, {})
            for key, (state, guard) in zip(keys, found, strict=True)
        }

    def encoded(
        self, target: Target, rows: Mapping[str, ReadRow], partitions: Mapping[str, int], known: KnownLedgers
    ) -> Encoded:
        form, calls, size = DocumentForm.of(target.view), list[tuple[Any, ...]](), 0
        rankings = Rankings.of(self._environment, target.view, target.generation)
        for key, row in rows.items():
            state_json, guard_json = row.held or (None, None)
            values = b"", b"", b""
            if row.change != "removed":
                guard, state = orjson.dumps(places_to_json(row.guard)), orjson.dumps(row.state)
                values = guard, state, document(form, key, row.state)
            keys = [cache_key(self._environment, *target.id, key), cache_ledger(self._environment, *target.id)]
            changes = list[Any]()
            if rankings.ranked or row.change != "patched":
                changes.append(state_json or b"")
                old = rankings.places(form, key, orjson.loads(state_json)) if state_json else {}
                new: Mapping[str, ScoredMember] = {}
                if row.change != "removed":
                    new = rankings.places(form, key, row.state)
                for name, *place in changed_places(old, new):
                    keys.append(name)
                    changes += place
            at = partitions[key], known.digest(partitions[key])
            calls.append((len(keys), *keys, *at, guard_json or b"", *values, *changes))
            size += sum(map(len, values))
        return Encoded(calls, size)

    def write_if(self, target: Target, rows: Mapping[str, ReadRow], encoded: Encoded) -> Collection[str]:
        outcomes = run(self.client, WRITE_ROW, encoded.writes)
        if GONE in outcomes:
            raise GenerationMissing(*target.id)
        if CHANGED in outcomes:
            raise LedgerChanged
        return {key for key, outcome in zip(rows, outcomes, strict=True) if outcome == 0}

    def write_ledgers(self, advanced: Sequence[Advanced[KnownLedgers]]) -> Collection[Target]:
        places = [(each, partition) for each in advanced for partition in each.ledgers]
        calls = [
            (
                1,
                cache_ledger(self._environment, *target.id),
                partition,
                known.digest(partition),
                ledger_to_json(ledgers[partition]),
            )
            for (target, known, ledgers, _), partition in places
        ]
        changed: dict[tuple[str, int], Target] = {}
        for (each, _), outcome in zip(places, run(self.client, WRITE_LEDGER, calls), strict=True):
            if outcome == GONE:
                raise GenerationMissing(*each.target.id)
            if outcome == CHANGED:
                changed[each.target.id] = each.target
        return changed.values()

    def storable(self, value: Any) -> Any:
        return value

    def rows(self, target: Target) -> Rows:
        prefix = cache_key(self._environment, *target.id, "")
        with translated():
            names = self.client.scan_iter(match=f"{prefix}*", count=CHUNK_ROWS)
            while chunk := list(islice(names, CHUNK_ROWS)):
                yield from self.rows_of(target, [name.decode().removeprefix(prefix) for name in chunk]).items()

    def rows_of(self, target: Target, keys: Sequence[str]) -> dict[str, State]:
        with translated(), self.client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.hget(cache_key(self._environment, *target.id, key), "state")
            found: list[bytes | None] = pipeline.execute()
        return {key: without_empty(orjson.loads(state)) for key, state in zip(keys, found, strict=True) if state}

    def size(self, target: Target) -> Size:
        return Size(None, None)  # Valkey cannot count keys by prefix, and a scan reads the keys of every view

    def close(self) -> None:
        self.client.close()
