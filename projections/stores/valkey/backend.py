"""How processes use this store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from headwater.projections.settings import StoreSettings
from headwater.projections.stores.backend import Backend
from headwater.projections.stores.rows import Compared
from headwater.projections.stores.store import Target
from headwater.projections.stores.valkey.added_rankings import add_rankings, missing_rankings
from headwater.projections.stores.valkey.client import NAME
from headwater.projections.stores.valkey.grants import grants
from headwater.projections.stores.valkey.ranking_entries import ValkeyRankings, row_of
from headwater.projections.stores.valkey.rankings import ranked_of
from headwater.projections.stores.valkey.rows import ValkeyRows
from headwater.projections.stores.valkey.store import ValkeyStore
from headwater.projections.stores.writer import StoredRows
from headwater.projections.view import View

FILLED_PER_S: Final = 25_000.0
"""Measured on two cores shared with the servers."""


def _rankings(view: View, settings: StoreSettings, compared: Sequence[Target]) -> Mapping[str, Compared]:
    return {"valkey rankings": Compared(ValkeyRankings(settings, compared), row_of)} if ranked_of(view) else {}


_ROWS: Final = partial(StoredRows, ValkeyRows, NAME)
BACKEND: Final = Backend(
    ValkeyStore,
    _ROWS,
    _rankings,
    missing=missing_rankings,
    add_missing=add_rankings,
    added_per_s=FILLED_PER_S,
    grants=grants,
    single_rows=_ROWS,
)
