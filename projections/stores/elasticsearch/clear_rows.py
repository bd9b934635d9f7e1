"""Documents of Elasticsearch that show personal plaintext values, and their erasure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

import orjson
from elasticsearch import Elasticsearch, NotFoundError

from headwater.projections.errors import StoreUnavailable
from headwater.projections.limits import ATTEMPTS, BULK_ROWS
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.backend import ClearGeneration
from headwater.projections.stores.clear_columns import KEYS, key_of
from headwater.projections.stores.elasticsearch.client import NAME, send, translated, write_document
from headwater.projections.stores.elasticsearch.ledgers import version_of
from headwater.projections.stores.elasticsearch.schema import CLEAR, COMPLETE, ERASED, STATE
from headwater.projections.stores.names import index_name
from headwater.projections.stores.store import Target

IDS_AT_ONCE: Final = 10_000
"""Of keys, in one search: Elasticsearch takes 65,536 terms."""


class ElasticsearchClearRows:
    """See ClearRows."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings

    def generations(self) -> Sequence[ClearGeneration]:
        environment = self._settings.environment
        named = re.compile(rf"{re.escape(environment)}\.([a-z][a-z0-9_]*)\.g(\d+)")
        listed = []
        with self._connected() as client:
            indexes = client.indices.get_mapping(index=f"{environment}.*", ignore_unavailable=True).body
        for index, index_data in sorted(indexes.items()):
            meta, parts = index_data["mappings"].get("_meta", {}), named.fullmatch(index)
            if parts is not None and CLEAR in meta:
                listed.append(ClearGeneration(parts[1], int(parts[2]), tuple(meta[CLEAR]), meta[ERASED]))
        return listed

    def count(self, of: ClearGeneration, key_ids: Collection[str]) -> int:
        count = 0
        with self._connected() as client:
            for some in _parts(key_ids):
                index = index_name(self._settings.environment, *of.id)
                client.indices.refresh(index=index, ignore_unavailable=True)
                count += client.count(index=index, query={"terms": {KEYS: some}}, ignore_unavailable=True)["count"]
        return count

    def empty(self, of: ClearGeneration, key_ids: Collection[str]) -> int:
        with self._connected() as client:
            return sum(self._empty(client, of, some) for some in _parts(key_ids))

    def note_erased(self, of: ClearGeneration, number: int) -> None:
        index = index_name(self._settings.environment, *of.id)
        with self._connected() as client:
            try:
                if (meta := meta_of(client, index))[COMPLETE]:  # or `finish` may be writing it at the same time
                    client.indices.put_mapping(index=index, meta={**meta, ERASED: number})
            except NotFoundError:  # dropped meanwhile
                return

    def empty_since(self, target: Target, erased_since: Callable[[int], Sequence[str]]) -> None:
        """Empty what bulk has written with keys that were destroyed since the generation was made."""
        with self._connected() as client:
            meta = meta_of(client, index_name(self._settings.environment, *target.id))
        if key_ids := erased_since(meta[ERASED]):
            self.empty(ClearGeneration(*target.id, tuple(meta[CLEAR]), meta[ERASED]), key_ids)

    def _empty(self, client: Elasticsearch, of: ClearGeneration, key_ids: Sequence[str]) -> int:
        """Documents are replaced by compare-and-set, until a search finds none that a loader has not changed since."""
        index, erased, emptied, lost = index_name(self._settings.environment, *of.id), set(key_ids), set[str](), 0
        while lost < ATTEMPTS:
            client.indices.refresh(index=index, ignore_unavailable=True)
            query = {"terms": {KEYS: list(key_ids)}}
            answer = client.search(
                index=index, query=query, size=BULK_ROWS, seq_no_primary_term=True, ignore_unavailable=True
            )
            hits = answer["hits"]["hits"]
            if not hits:
                return len(emptied)
            operations = [
                write_document(hit["_id"], orjson.dumps(_without(hit["_source"], of.columns, erased)), version_of(hit))
                for hit in hits
            ]
            before = len(emptied)
            done = send(client, index, operations)
            emptied |= {hit["_id"] for hit, status in zip(hits, done, strict=True) if status < 300}
            lost += len(emptied) == before
        raise StoreUnavailable(NAME, f'erasing in "{of.view}" lost {ATTEMPTS} compare-and-set races')

    @contextmanager
    def _connected(self) -> Iterator[Elasticsearch]:
        with translated(), Elasticsearch(self._settings.elasticsearch, request_timeout=60, max_retries=0) as client:
            yield client


def meta_of(client: Elasticsearch, index: str) -> dict[str, Any]:
    """The `_meta` of an index; changing it replaces all of it."""
    (mapping,) = client.indices.get_mapping(index=index).body.values()
    return dict(mapping["mappings"].get("_meta", {}))


def _without(source: dict[str, Any], columns: Sequence[str], erased: set[str]) -> dict[str, Any]:
    """A document without the values of these keys."""
    empty = {name: None for name in columns if key_of(source[STATE].get(name)) in erased}
    return {**source, **empty, KEYS: [key for key in source[KEYS] if key not in erased]}


def _parts(key_ids: Collection[str]) -> Iterator[list[str]]:
    left = iter(key_ids)
    while some := list(islice(left, IDS_AT_ONCE)):
        yield some
