"""Removes the hashes of a generation that expired for good: another store has found them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from projections.settings import StoreSettings
from projections.stores.names import cache_key
from projections.stores.store import Target
from projections.stores.valkey.client import connect, translated


class ValkeyRowRemover:
    """See RowRemover. They are in no ranking, because views whose rows expire have none."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings

    def remove(self, target: Target, keys: Sequence[str]) -> int:
        names = [cache_key(self._settings.environment, *target.id, key) for key in keys]
        with translated(), closing(connect(self._settings.valkey)) as client:
            return int(client.unlink(*names)) if names else 0
