"""How processes use this store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headwater.projections.settings import StoreSettings
from headwater.projections.stores.backend import Backend
from headwater.projections.stores.rows import Compared
from headwater.projections.stores.valkey.grants import grants
from headwater.projections.stores.valkey.ranking_entries import ValkeyRankings, row_of
from headwater.projections.stores.valkey.rankings import ranked_of
from headwater.projections.stores.valkey.rows import ValkeyRows
from headwater.projections.stores.valkey.store import ValkeyStore
from headwater.projections.view import View


def _rankings(view: View, settings: StoreSettings) -> Mapping[str, Compared]:
    return {"valkey rankings": Compared(ValkeyRankings(settings), row_of)} if ranked_of(view) else {}


BACKEND: Final = Backend(
    ValkeyStore,
    ValkeyRows,
    _rankings,
    grants=grants,
    single_rows=ValkeyRows,
)
