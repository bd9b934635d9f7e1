"""How processes use this store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from projections.settings import StoreSettings
from projections.stores.backend import Backend
from projections.stores.rows import Compared
from projections.stores.store import Target
from projections.stores.valkey.added_rankings import add_rankings, missing_rankings
from projections.stores.valkey.grants import grants
from projections.stores.valkey.ranking_entries import ValkeyRankings, row_of
from projections.stores.valkey.rankings import ranked_of
from projections.stores.valkey.rows import ValkeyRows
from projections.stores.valkey.store import ValkeyStore
from projections.view import View

FILLED_PER_S: Final = 25_000.0
"""Measured on two cores shared with the servers."""


def _rankings(view: View, settings: StoreSettings, compared: Sequence[Target]) -> Mapping[str, Compared]:
    return {"valkey rankings": Compared(ValkeyRankings(settings, compared), row_of)} if ranked_of(view) else {}


BACKEND: Final = Backend(
    ValkeyStore,
    ValkeyRows,
    _rankings,
    missing=missing_rankings,
    add_missing=add_rankings,
    added_per_s=FILLED_PER_S,
    grants=grants,
    single_rows=ValkeyRows,
)
