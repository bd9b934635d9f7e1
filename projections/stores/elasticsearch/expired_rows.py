"""Documents of a generation's index that expired for good."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from typing import Any

from elasticsearch import Elasticsearch, NotFoundError

from projections.errors import GenerationMissing
from projections.settings import StoreSettings
from projections.stores.elasticsearch.answers import translated
from projections.stores.names import document_id, index_name, write_alias
from projections.stores.store import Target


class ElasticsearchExpiredRows:
    """See ExpiredRows."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings

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

    def _index(self, target: Target) -> str:
        return index_name(self._settings.environment, *target.id)

    @contextmanager
    def _connected(self, target: Target) -> Iterator[Any]:
        with translated(), Elasticsearch(self._settings.elasticsearch, request_timeout=60, max_retries=0) as client:
            try:
                yield client
            except NotFoundError as error:
                raise GenerationMissing(*target.id) from error
