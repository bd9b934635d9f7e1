"""How processes use this store."""

from __future__ import annotations

from typing import Final

from headwater.projections.stores.backend import Backend
from headwater.projections.stores.elasticsearch.clear_rows import ElasticsearchClearRows
from headwater.projections.stores.elasticsearch.grants import grants
from headwater.projections.stores.elasticsearch.rows import ElasticsearchRows
from headwater.projections.stores.elasticsearch.store import ElasticsearchStore

BACKEND: Final = Backend(
    ElasticsearchStore,
    ElasticsearchRows,
    grants=grants,
    single_rows=ElasticsearchRows,
    expired_rows=ElasticsearchRows,
    clear_rows=ElasticsearchClearRows,
)
