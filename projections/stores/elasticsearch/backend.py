"""How processes use this store."""

from __future__ import annotations

from functools import partial
from typing import Final

from headwater.projections.stores.backend import Backend
from headwater.projections.stores.elasticsearch.answers import NAME
from headwater.projections.stores.elasticsearch.clear_rows import ElasticsearchClearRows
from headwater.projections.stores.elasticsearch.grants import grants
from headwater.projections.stores.elasticsearch.rows import ElasticsearchRows, find_expired
from headwater.projections.stores.elasticsearch.store import ElasticsearchStore
from headwater.projections.stores.writer import StoredRows

_ROWS: Final = partial(StoredRows, ElasticsearchRows, NAME)
BACKEND: Final = Backend(
    ElasticsearchStore,
    _ROWS,
    grants=grants,
    single_rows=_ROWS,
    find_expired=find_expired,
    clear_rows=ElasticsearchClearRows,
)
