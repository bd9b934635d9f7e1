"""Views as Elasticsearch indexes: each document carries its guard and is written by compare-and-set."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from elasticsearch import Elasticsearch, NotFoundError

from headwater.projections.errors import GenerationMissing, StoreUnavailable
from headwater.projections.limits import ATTEMPTS
from headwater.projections.settings import StoreSettings
from headwater.projections.stores import ledgers
from headwater.projections.stores.clear_columns import ClearColumns
from headwater.projections.stores.compare_and_set import ComparingWriter, Encoded, LedgerChanged, ReadRow
from headwater.projections.stores.documents import DocumentForm
from headwater.projections.stores.elasticsearch.answers import CONFLICT, NAME, IndexGone, documents, translated
from headwater.projections.stores.elasticsearch.bulk import (
    ElasticsearchWriter,
    create_row,
    document,
    index_row,
    send,
    state_of,
)
from headwater.projections.stores.elasticsearch.clear_rows import ElasticsearchClearRows, meta_of
from headwater.projections.stores.elasticsearch.ledgers import ElasticsearchLedgers, Version, version_of
from headwater.projections.stores.elasticsearch.mapping import (
    BULK_SETTINGS,
    CLEAR,
    COMPLETE,
    ERASED,
    GUARD,
    LIVE_SETTINGS,
    mapping,
)
from headwater.projections.stores.names import alias_name, document_id, index_name, write_alias
from headwater.projections.stores.store import Batch, BulkWriter, Ledger, Target, no_fault
from headwater.projections.table.patch import places_from_json

ANSWER_S: Final = 30
"""How long a request may take."""
Versions = Mapping[int, Version]
"""Of the documents of ledgers, by partition of `patches`."""


class ElasticsearchStore:
    """Views in one Elasticsearch; for one thread.

    Documents are written first, their ledger afterwards: after a crash in between, patches are applied again, and the
    guard in each document skips them. The versions of the ledgers are read together with the rows. So nothing is
    written to rows that were restored from a snapshot, before the restored ledger is read.

    fault: called with a name at each moment in `apply` at which a crash must do no harm; for tests.
    """

    name = "elasticsearch"

    def __init__(self, settings: StoreSettings, fault: Callable[[str], None] = no_fault) -> None:
        self._settings, self._fault = settings, fault
        self._opened: Elasticsearch | None = None
        self._ledgers = ElasticsearchLedgers(settings, lambda: self._client)
        self._writer = ComparingWriter[Versions](self, fault)

    def create(self, target: Target, bulk_ends: Mapping[str, int], patch_starts: Mapping[int, int]) -> None:
        self.drop(target)
        clear = self._clear(target)
        meta = {COMPLETE: False, **({CLEAR: clear.names, ERASED: clear.last_erasure()} if clear else {})}
        with translated():
            self._client.indices.create(
                index=self._index(target),
                mappings={**mapping(target.view), "_meta": meta},
                settings=dict(BULK_SETTINGS),
                aliases={write_alias(self._index(target)): {}},
            )
        fresh = {partition: ledgers.initial_ledger(bulk_ends, offset) for partition, offset in patch_starts.items()}
        self._ledgers.create(target, fresh)

    def bulk_writer(self, target: Target) -> BulkWriter:
        form, clear = DocumentForm.of(target.view), self._clear(target)
        return ElasticsearchWriter(self._settings.elasticsearch, self._index(target), form, clear)

    def finish(self, target: Target, at_least: int = 0) -> Collection[str]:
        index = self._index(target)
        with translated():
            self._client.indices.put_settings(index=index, settings=dict(LIVE_SETTINGS))
            self._client.indices.flush(index=index)
            self._client.indices.refresh(index=index)
            ledgers.check_rows(NAME, target, self._client.count(index=index)["count"], at_least)
            if clear := self._clear(target):
                ElasticsearchClearRows(self._settings).empty_since(target, clear.erased_since)
            self._client.indices.put_mapping(index=index, meta={**meta_of(self._client, index), COMPLETE: True})
        return ()

    def _clear(self, target: Target) -> ClearColumns:
        return ClearColumns.of(target.view, "elasticsearch", self._settings.environment)

    def publish(self, target: Target) -> None:
        alias = alias_name(self._settings.environment, target.view.name)
        with translated():
            try:
                before = list(self._client.indices.get_alias(name=alias))
            except NotFoundError:
                before = []
            actions: list[dict[str, Any]] = [
                {"remove": {"index": index, "alias": alias}} for index in before if index != self._index(target)
            ]
            actions.append({"add": {"index": self._index(target), "alias": alias}})
            self._client.indices.update_aliases(actions=actions)

    def drop(self, target: Target) -> None:
        with translated():
            self._client.indices.delete(index=self._index(target), ignore_unavailable=True)
        self._ledgers.drop(target)

    def ledgers(self, target: Target) -> dict[int, Ledger]:
        (found,) = self.all_ledgers([target])
        return found

    def all_ledgers(self, targets: Sequence[Target]) -> list[dict[int, Ledger]]:
        known = self._ledgers.look_up(targets)
        return [{partition: deepcopy(held.ledger) for partition, held in each.items()} for each in known]

    def apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> None:
        wrote = [self._apply(target, batches) for target in targets]
        self._fault("rows written")
        self._ledgers.write(targets, rows=any(wrote))
        self._fault("ledger written")

    def settle(self, *, now: bool = False) -> None:
        self._ledgers.settle(now=now)

    def close(self) -> None:
        """Close the connection; progress that is not in a ledger yet is read again."""
        self._ledgers.forget()
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _apply(self, target: Target, batches: Mapping[int, Batch]) -> bool:
        """Write the rows of one generation and advance the ledgers in memory; returns whether there were rows."""
        for _ in range(ATTEMPTS):
            known = self._ledgers.known(target)
            ledgers.check(NAME, target, {partition: held.ledger for partition, held in known.items()}, batches)
            advanced = {partition: deepcopy(known[partition].ledger) for partition in batches}
            new = {
                partition: ledgers.take_new(advanced[partition], batch, target.tag)
                for partition, batch in batches.items()
            }
            has_new = any(new.values())
            try:
                if has_new:
                    self._writer.write(target, new, {partition: known[partition].version for partition in batches})
            except LedgerChanged:
                self._ledgers.look_again(target)
                continue
            except IndexGone as error:
                self._ledgers.forget(target)
                raise GenerationMissing(*target.id) from error
            for partition, ledger in advanced.items():
                known[partition].ledger, known[partition].dirty = ledger, True
            return has_new
        raise StoreUnavailable(NAME, f'the ledgers of "{target.view.name}" lost {ATTEMPTS} compare-and-set races')

    def encoded(
        self, target: Target, rows: Mapping[str, ReadRow], partitions: Mapping[str, int], known: Versions
    ) -> Encoded:
        """See ComparingStore: the lines of each row."""
        form, operations = DocumentForm.of(target.view), list[bytes]()
        in_clear = self._clear(target).of_states([row.state for row in rows.values()])
        for (key, row), shown in zip(rows.items(), in_clear, strict=True):
            head = create_row(key) if row.held is None else index_row(key, row.held)
            operations += [head, document(form, key, row.state, row.guard, shown)]
        return Encoded(operations, sum(map(len, operations)))

    def write_if(self, target: Target, keys: Sequence[str], encoded: Encoded) -> Collection[str]:
        """See ComparingStore."""
        outcomes = send(self._client, self._index(target), encoded.writes)
        return {key for key, status in zip(keys, outcomes, strict=True) if status == CONFLICT}

    def read_rows(self, target: Target, keys: Sequence[str], known: Versions) -> dict[str, ReadRow]:
        """See ComparingStore: the versions of the ledgers are read with the rows."""
        requests = self._ledgers.version_requests(target, known)
        requests += [{"_index": self._index(target), "_id": document_id(key)} for key in keys]
        with translated():
            found = documents(self._client.mget(docs=requests).body)
        for version, each in zip(known.values(), found, strict=False):
            if not each["found"] or version_of(each) != version:
                raise LedgerChanged
        rows: dict[str, ReadRow] = {}
        for key, each in zip(keys, found[len(known) :], strict=True):
            if each["found"]:
                source = each["_source"]
                state = state_of(target.view, source)
                rows[key] = ReadRow(state, places_from_json(source.get(GUARD)), version_of(each))
            else:
                rows[key] = ReadRow({}, {}, None)
        return rows

    @property
    def _client(self) -> Elasticsearch:
        if self._opened is None:
            self._opened = Elasticsearch(self._settings.elasticsearch, request_timeout=ANSWER_S, max_retries=0)
        return self._opened

    def _index(self, target: Target) -> str:
        return index_name(self._settings.environment, *target.id)
