"""The documents of a generation's index, as states; single ones are replaced by compare-and-set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from typing import Any, Final

from elasticsearch import ConflictError, Elasticsearch, NotFoundError, helpers

from headwater.projections.errors import GenerationMissing
from headwater.projections.limits import CHUNK_ROWS
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.clear_columns import ClearColumns
from headwater.projections.stores.documents import DocumentForm
from headwater.projections.stores.elasticsearch.answers import CONFLICT, NAME, IndexGone, documents, translated
from headwater.projections.stores.elasticsearch.bulk import create_row, document, index_row, send, state_of
from headwater.projections.stores.elasticsearch.ledgers import ElasticsearchLedgers, version_of
from headwater.projections.stores.elasticsearch.mapping import GUARD
from headwater.projections.stores.ledgers import loadable
from headwater.projections.stores.names import document_id, index_name, patch_partition, write_alias
from headwater.projections.stores.rows import Rows, Size, StoredRow, applied_to, covers, without_empty
from headwater.projections.stores.store import Ledger, Target
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import places_from_json

READ_RETRIES: Final = 3


class ElasticsearchRows:
    """See ExpiredRows. The version of a row is that of its document, and its guard."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings

    def rows(self, target: Target) -> Rows:
        # a search that the server gives up in between is not found either, but the index is still there
        with self._connected(target, READ_RETRIES) as client:
            client.indices.refresh(index=self._index(target))
        with translated(), self._client(READ_RETRIES) as client:
            for hit in helpers.scan(client, index=self._index(target), size=CHUNK_ROWS):
                yield _of_document(target, hit["_source"])

    def rows_of(self, target: Target, keys: Sequence[str]) -> dict[str, State]:
        with self._connected(target, READ_RETRIES) as client:
            answer = client.mget(index=self._index(target), ids=[document_id(key) for key in keys])
            found = documents(answer.body)
        return dict(_of_document(target, each["_source"]) for each in found if each["found"])

    def size(self, target: Target) -> Size:
        with self._connected(target, READ_RETRIES) as client:
            client.indices.refresh(index=self._index(target))  # what nobody searches counts as of its last refresh
            stats = client.indices.stats(index=self._index(target), metric=["docs", "store"])["_all"]
        return Size(stats["primaries"]["docs"]["count"], stats["total"]["store"]["size_in_bytes"])

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

    def find(self, target: Target, last_day: date, limit: int) -> list[str]:
        key, expiry = target.view.key_name, target.view.expiry
        up_to = {"range": {"" if expiry is None else expiry.column: {"lte": last_day.isoformat()}}}
        with self._connected(target) as client:
            client.indices.refresh(index=self._index(target))
            found = client.search(index=self._index(target), query=up_to, size=limit, source_includes=[key])
        return [hit["_source"][key] for hit in found["hits"]["hits"]]

    def remove(self, target: Target, keys: Sequence[str]) -> int:
        operations = [{"delete": {"_id": document_id(key)}} for key in keys]
        with self._connected(target) as client:
            answer = client.bulk(
                index=write_alias(self._index(target)),
                operations=operations,
                require_alias=True,
                filter_path=["items.*.result", "errors"],
            )
        return sum(item["delete"].get("result") == "deleted" for item in answer.get("items", ()))

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

    def _client(self, retries: int) -> Elasticsearch:
        return Elasticsearch(self._settings.elasticsearch, request_timeout=60, max_retries=retries)

    @contextmanager
    def _connected(self, target: Target, retries: int = 0) -> Iterator[Elasticsearch]:
        """A client that raises Headwater's errors; retries: of a request without an answer, which may have arrived."""
        try:
            with translated(), self._client(retries) as client:
                try:
                    yield client
                except NotFoundError as error:
                    raise GenerationMissing(*target.id) from error
        except IndexGone as error:
            raise GenerationMissing(*target.id) from error


def _of_document(target: Target, source: dict[str, Any]) -> tuple[str, State]:
    return source[target.view.key_name], without_empty(state_of(target.view, source))
