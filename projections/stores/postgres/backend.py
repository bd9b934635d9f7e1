"""How processes use this store."""

from __future__ import annotations

from typing import Final

from headwater.projections.stores.backend import Backend
from headwater.projections.stores.postgres.beside_rows import add_missing, missing
from headwater.projections.stores.postgres.clear_rows import PostgresClearRows
from headwater.projections.stores.postgres.grants import grants
from headwater.projections.stores.postgres.rows import PostgresRows
from headwater.projections.stores.postgres.store import PostgresStore

INDEXED_PER_S: Final = 500_000.0
"""Of integers five times as many, on two cores shared with the servers; of long texts fewer."""

BACKEND: Final = Backend(
    PostgresStore,
    PostgresRows,
    missing=missing,
    add_missing=add_missing,
    added_per_s=INDEXED_PER_S,
    grants=grants,
    single_rows=PostgresRows,
    expired_rows=PostgresRows,
    clear_rows=PostgresClearRows,
)
