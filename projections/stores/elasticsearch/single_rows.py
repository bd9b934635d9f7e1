"""Single documents of a generation's index, replaced by compare-and-set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from elasticsearch import ConflictError, Elasticsearch, NotFoundError

from projections.errors import GenerationMissing
from projections.settings import StoreSettings
from projections.stores.clear_columns import ClearColumns
from projections.stores.documents import DocumentForm
from projections.stores.elasticsearch.answers import CONFLICT, NAME, IndexGone, documents, translated
from projections.stores.elasticsearch.bulk import create_row, document, index_row, send, state_of
from projections.stores.elasticsearch.ledgers import ElasticsearchLedgers, version_of
from projections.stores.elasticsearch.mapping import GUARD
from projections.stores.ledgers import loadable
from projections.stores.names import document_id, index_name, patch_partition, write_alias
from projections.stores.row_reader import without_empty
from projections.stores.single_rows import StoredRow, applied_to, covers
from projections.stores.store import Ledger, Target
from projections.table.monoids import State
from projections.table.patch import places_from_json


class ElasticsearchSingleRows:
    """See SingleRows. The version of a row is that of its document, and its guard."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings

    def read(self, target: Target, key: str) -> StoredRow:
        with self._connected(target) as client:
            ledger = self._ledger(client, target, key)  # before the row, which may have more
            answer = client.mget(index=self._index(target), ids=[document_id(key)])
            (found,) = documents(answer.body)
        if not found["found"]:
            return StoredRow(None, ledger.applied)
        source = found["_source"]
        guard = places_from_json(source.get(GUARD))
        state = without_empty(state_of(target.view, source))
        return StoredRow(state, applied_to(ledger, guard), (version_of(found), guard))

    def as_read(self, state: State) -> State:
        return without_empty(state)

    def replace(self, target: Target, key: str, before: StoredRow, state: State | None) -> bool:
        version, guard = before.version or (None, {})
        with self._connected(target) as client:
            ledger = self._ledger(client, target, key)
            if version is None and not covers(ledger, before):
                return False
            if state is None:
                # a loader may apply what is in the guard only again, to a row that then has nothing else
                return covers(ledger, before) and (version is None or self._delete(client, target, key, version))
            clear = ClearColumns.of(target.view, "elasticsearch", self._settings.environment)
            with loadable(NAME):
                body = document(DocumentForm.of(target.view), key, state, guard, clear.of_state(state))
            head = create_row(key) if version is None else index_row(key, version)
            (outcome,) = send(client, self._index(target), [head, body])
            return outcome != CONFLICT

    def _delete(self, client: Elasticsearch, target: Target, key: str, version: tuple[int, int]) -> bool:
        number, term = version
        try:
            client.delete(
                index=write_alias(self._index(target)), id=document_id(key), if_seq_no=number, if_primary_term=term
            )
        except (ConflictError, NotFoundError):
            return False
        return True

    def _ledger(self, client: Elasticsearch, target: Target, key: str) -> Ledger:
        known = ElasticsearchLedgers(self._settings, lambda: client).look_up([target])[0]
        held = known.get(patch_partition(target.view, target.tag, key, self._settings.patch_partitions))
        if held is None:
            raise GenerationMissing(*target.id)
        return held.ledger

    def _index(self, target: Target) -> str:
        return index_name(self._settings.environment, *target.id)

    @contextmanager
    def _connected(self, target: Target) -> Iterator[Any]:
        try:
            with translated(), Elasticsearch(self._settings.elasticsearch, request_timeout=30, max_retries=0) as client:
                yield client
        except IndexGone as error:
            raise GenerationMissing(*target.id) from error
