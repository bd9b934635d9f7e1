"""The ledgers of all generations, in one index of Elasticsearch: each a document, written by compare-and-set."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from elasticsearch import ApiError, Elasticsearch, NotFoundError

from headwater.projections.errors import StoreUnavailable
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.elasticsearch.client import (
    CONFLICT,
    NAME,
    IndexGone,
    Version,
    documents,
    translated,
    write_document,
)
from headwater.projections.stores.elasticsearch.schema import COMPLETE, LEDGER_MAPPING, LEDGER_SETTINGS
from headwater.projections.stores.names import index_name, ledger_document, ledger_index, write_alias
from headwater.projections.stores.store import Ledger, Target
from headwater.projections.table.patch import places_from_json, places_to_json

PROGRESS_INTERVAL_S: Final = 1.0
ROWS_INTERVAL_S: Final = 0.05
"""Time between two writes of a ledger, for progress and for rows: guards skip what is read again after a crash."""

INDEXES_AT_ONCE: Final = 30
"""Elasticsearch takes no request whose first line, with the names, has more than 4,096 bytes."""
INDEX_PATHS: Final = ("*.aliases", "*.mappings._meta")


@dataclass(slots=True)
class KnownLedger:
    """A ledger in this process, and the version of its document. It is never ahead of the rows."""

    target: Target
    partition: int
    ledger: Ledger
    version: Version
    dirty: bool = False
    written_at: float = float("-inf")


class ElasticsearchLedgers:
    """The ledgers that one store uses.

    They are kept in memory, and valid while their documents have the versions that this process knows.
    """

    def __init__(self, settings: StoreSettings, client: Callable[[], Elasticsearch]) -> None:
        self.index, self._environment = ledger_index(settings.environment), settings.environment
        self._partitions, self._client = settings.patch_partitions, client
        self._held: dict[tuple[str, int], dict[int, KnownLedger]] = {}
        self._put_off: Sequence[Target] = ()

    def create(self, target: Target, fresh: Mapping[int, Ledger]) -> None:
        """Create the ledgers of a new generation."""
        with translated():
            if not self._client().indices.exists(index=self.index):
                try:
                    self._client().indices.create(
                        index=self.index,
                        mappings=dict(LEDGER_MAPPING),
                        settings=dict(LEDGER_SETTINGS),
                        aliases={write_alias(self.index): {}},
                    )
                except ApiError as error:
                    if error.error != "resource_already_exists_exception":  # another process was faster
                        raise
            for partition, ledger in fresh.items():
                self._client().index(
                    index=self.index, id=_id(target, partition), document=_source(target, partition, ledger)
                )

    def drop(self, target: Target) -> None:
        """Delete the ledgers of a generation."""
        self.forget(target)
        with translated():
            for document in self._read([target]):
                self._client().delete(index=self.index, id=document["_id"])

    def known(self, target: Target) -> dict[int, KnownLedger]:
        """The ledgers of a generation, as this process knows them."""
        return self._held.get(target.id) or self.look_up([target])[0]

    def forget(self, target: Target | None = None) -> None:
        """Forget one generation, or (None) all; progress that was not written yet is read again."""
        self._held = {} if target is None else {id_: held for id_, held in self._held.items() if id_ != target.id}

    def look_up(self, targets: Sequence[Target]) -> list[dict[int, KnownLedger]]:
        """Read the ledgers of each of these generations; none if its index is gone or incomplete: only a rebuild helps.

        Both are asked for in a request for all of them, or in a few.
        """
        parts = [targets[at : at + INDEXES_AT_ONCE] for at in range(0, len(targets), INDEXES_AT_ONCE)]
        complete = {target.id: target for some in parts for target in self._complete(some)}
        ledgers = {target.id: dict[int, KnownLedger]() for target in targets}
        for hit in self._read(list(complete.values())):
            source = hit["_source"]
            id_, partition = (source["view"], source["generation"]), source["partition"]
            ledger = Ledger(source["next"], places_from_json(source["applied"]))
            ledgers[id_][partition] = KnownLedger(complete[id_], partition, ledger, version_of(hit))
        self._held |= ledgers
        return [ledgers[target.id] for target in targets]

    def look_again(self, target: Target) -> None:
        """Read the ledgers again, because another loader has written one, or a snapshot was restored.

        A ledger that no other process has written may be more recent here; it is written with the next batch.
        """
        ours = self._held.get(target.id, {})
        (held,) = self.look_up([target])
        for partition, theirs in held.items():
            if partition in ours and ours[partition].version == theirs.version:
                held[partition] = ours[partition]

    def advance(self, target: Target, ledgers: Mapping[int, Ledger]) -> None:
        """Know these ledgers, of which the rows are written, but not the ledgers themselves."""
        held = self.known(target)
        for partition, ledger in ledgers.items():
            held[partition].ledger, held[partition].dirty = ledger, True

    def version_requests(self, target: Target, versions: Mapping[int, Version]) -> list[dict[str, Any]]:
        """The part of an `mget` that reads the versions of these ledgers."""
        return [{"_index": self.index, "_id": _id(target, partition), "_source": False} for partition in versions]

    def write(self, targets: Sequence[Target], *, rows: bool) -> None:
        """Write advanced ledgers, unless they were written a moment ago. rows: there was more than progress."""
        interval_s = ROWS_INTERVAL_S if rows else PROGRESS_INTERVAL_S
        before = time.monotonic() - interval_s
        dirty = [held for target in targets for held in self._held.get(target.id, {}).values() if held.dirty]
        due = [held for held in dirty if held.written_at < before]
        if rows:
            self._put_off = targets if len(due) < len(dirty) else ()
        if due:
            self._write(due)

    def settle(self, *, now: bool) -> None:
        """Write delayed ledgers; those with progress alone only if `now`, or if they were not written a moment ago."""
        before, put_off = time.monotonic() - PROGRESS_INTERVAL_S, {target.id for target in self._put_off}
        self._put_off = ()
        due = [
            held
            for ledgers in self._held.values()
            for held in ledgers.values()
            if held.dirty and (now or held.target.id in put_off or held.written_at < before)
        ]
        if due:
            self._write(due)

    def _write(self, due: Sequence[KnownLedger]) -> None:
        operations: list[Any] = []
        for held in due:
            source = orjson.dumps(_source(held.target, held.partition, held.ledger))
            operations.append(write_document(_id(held.target, held.partition), source, held.version))
        with translated():
            answer = self._client().bulk(index=write_alias(self.index), operations=operations, require_alias=True)
        overtaken: dict[tuple[str, int], Target] = {}
        for held, item in zip(due, answer["items"], strict=True):
            outcome = item["index"]
            if outcome["status"] < 300:
                held.version = version_of(outcome)
                held.dirty, held.written_at = False, time.monotonic()
            elif outcome["status"] == CONFLICT:
                overtaken[held.target.id] = held.target
            else:
                self.forget(held.target)
                raise StoreUnavailable(
                    NAME, f"ledger {held.partition} of {held.target.view.name}: {outcome.get('error')}"
                )
        for target in overtaken.values():
            self.look_again(target)

    def _read(self, targets: Sequence[Target]) -> list[dict[str, Any]]:
        """The existing ledger documents of these generations, for every possible partition of `patches`."""
        ids = [_id(target, partition) for target in targets for partition in range(self._partitions)]
        if not ids:
            return []
        with translated():
            answer = self._client().mget(index=self.index, ids=ids)
        try:
            return [document for document in documents(answer.body) if document["found"]]
        except IndexGone:  # nothing was ever built here, or the store was emptied
            return []

    def _complete(self, targets: Sequence[Target]) -> list[Target]:
        """Those of these generations whose index exists, and has all rows of bulk."""
        aliases = {write_alias(index_name(self._environment, *target.id)): target for target in targets}
        with translated():
            try:
                indexes = self._client().indices.get(
                    index=list(aliases), features=["aliases", "mappings"], filter_path=INDEX_PATHS
                ).body  # fmt: skip
            except NotFoundError:
                if len(targets) == 1:
                    return []
                return [single for target in targets for single in self._complete([target])]  # which one is gone?
        incomplete = {
            alias
            for index in indexes.values()
            if not index.get("mappings", {}).get("_meta", {}).get(COMPLETE)
            for alias in index["aliases"]
        }
        return [target for alias, target in aliases.items() if alias not in incomplete]


def version_of(document: Mapping[str, Any]) -> Version:
    """The version of a document that was read or written."""
    return document["_seq_no"], document["_primary_term"]


def _id(target: Target, partition: int) -> str:
    return ledger_document(*target.id, partition)


def _source(target: Target, partition: int, ledger: Ledger) -> dict[str, Any]:
    return {
        "view": target.view.name,
        "generation": target.generation,
        "partition": partition,
        "next": ledger.next_offset,
        "applied": places_to_json(ledger.applied),
    }
