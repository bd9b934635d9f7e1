"""How processes use this store."""

from __future__ import annotations

from functools import partial
from typing import Final

from headwater.projections.stores.backend import Backend
from headwater.projections.stores.postgres.beside_rows import add_missing, missing
from headwater.projections.stores.postgres.clear_rows import PostgresClearRows
from headwater.projections.stores.postgres.errors import NAME
from headwater.projections.stores.postgres.grants import grants
from headwater.projections.stores.postgres.rows import PostgresRows, find_expired
from headwater.projections.stores.postgres.store import PostgresStore
from headwater.projections.stores.writer import StoredRows

INDEXED_PER_S: Final = 500_000.0
"""Of integers five times as many, on two cores shared with the servers; of long texts fewer."""


_ROWS: Final = partial(StoredRows, PostgresRows, NAME)
BACKEND: Final = Backend(
    PostgresStore,
    _ROWS,
    missing=missing,
    add_missing=add_missing,
    added_per_s=INDEXED_PER_S,
    grants=grants,
    single_rows=_ROWS,
    find_expired=find_expired,
    clear_rows=PostgresClearRows,
)
