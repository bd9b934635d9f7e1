"""How processes use this store."""

from __future__ import annotations

from typing import Final

from projections.stores.backend import Backend
from projections.stores.elasticsearch.clear_rows import ElasticsearchClearRows
from projections.stores.elasticsearch.grants import grants
from projections.stores.elasticsearch.rows import ElasticsearchRows
from projections.stores.elasticsearch.store import ElasticsearchStore

BACKEND: Final = Backend(
    ElasticsearchStore,
    ElasticsearchRows,
    grants=grants,
    single_rows=ElasticsearchRows,
    expired_rows=ElasticsearchRows,
    clear_rows=ElasticsearchClearRows,
)
