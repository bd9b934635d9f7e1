"""The documents of a generation's index, as states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elasticsearch import Elasticsearch, NotFoundError, helpers

from projections.errors import GenerationMissing
from projections.limits import CHUNK_ROWS
from projections.settings import StoreSettings
from projections.stores.elasticsearch.answers import IndexGone, documents, translated
from projections.stores.elasticsearch.bulk import state_of
from projections.stores.names import document_id, index_name
from projections.stores.row_reader import Rows, Size, without_empty
from projections.stores.store import Target
from projections.table.monoids import State


class ElasticsearchRows:
    """See RowReader."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings

    def rows(self, target: Target) -> Rows:
        index = index_name(self._settings.environment, *target.id)
        with translated(), Elasticsearch(self._settings.elasticsearch, request_timeout=60) as client:
            try:
                client.indices.refresh(index=index)
            except NotFoundError as error:
                raise GenerationMissing(*target.id) from error
            for hit in helpers.scan(client, index=index, size=CHUNK_ROWS):
                yield _of_document(target, hit["_source"])

    def rows_of(self, target: Target, keys: Sequence[str]) -> dict[str, State]:
        index = index_name(self._settings.environment, *target.id)
        with translated(), Elasticsearch(self._settings.elasticsearch, request_timeout=60) as client:
            answer = client.mget(index=index, ids=[document_id(key) for key in keys])
        try:
            found = documents(answer.body)
        except IndexGone as error:
            raise GenerationMissing(*target.id) from error
        return dict(_of_document(target, each["_source"]) for each in found if each["found"])

    def size(self, target: Target) -> Size:
        index = index_name(self._settings.environment, *target.id)
        with translated(), Elasticsearch(self._settings.elasticsearch, request_timeout=60) as client:
            try:
                client.indices.refresh(index=index)  # what nobody searches counts as of its last refresh
                stats = client.indices.stats(index=index, metric=["docs", "store"])["_all"]
            except NotFoundError as error:
                raise GenerationMissing(*target.id) from error
        return Size(stats["primaries"]["docs"]["count"], stats["total"]["store"]["size_in_bytes"])


def _of_document(target: Target, source: dict[str, Any]) -> tuple[str, State]:
    return source[target.view.key_name], without_empty(state_of(target.view, source))
