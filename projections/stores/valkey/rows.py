"""The hashes of a generation, as states."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

import orjson

from projections.limits import CHUNK_ROWS
from projections.settings import StoreSettings
from projections.stores.names import cache_key
from projections.stores.row_reader import Rows, Size, without_empty
from projections.stores.store import Target
from projections.stores.valkey.client import connect, translated
from projections.table.monoids import State


class ValkeyRows:
    """See RowReader."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings

    def rows(self, target: Target) -> Rows:
        prefix = cache_key(self._settings.environment, *target.id, "")
        with translated(), closing(connect(self._settings.valkey)) as client:
            names = client.scan_iter(match=f"{prefix}*", count=CHUNK_ROWS)
            while chunk := list(islice(names, CHUNK_ROWS)):
                keys = [name.decode().removeprefix(prefix) for name in chunk]
                yield from _of_hashes(keys, self._states(client, chunk))

    def rows_of(self, target: Target, keys: Sequence[str]) -> dict[str, State]:
        environment = self._settings.environment
        names = [cache_key(environment, *target.id, key) for key in keys]
        with translated(), closing(connect(self._settings.valkey)) as client:
            return dict(_of_hashes(keys, self._states(client, names)))

    def size(self, target: Target) -> Size:
        return Size(None, None)  # Valkey cannot count keys by prefix, and a scan reads the keys of every view

    def _states(self, client: Any, names: Sequence[Any]) -> list[bytes | None]:
        with client.pipeline(transaction=False) as pipeline:
            for name in names:
                pipeline.hget(name, "state")
            found: list[bytes | None] = pipeline.execute()
        return found


def _of_hashes(keys: Sequence[str], states: Iterable[bytes | None]) -> Rows:
    for key, state in zip(keys, states, strict=True):
        if state is not None:
            yield key, without_empty(orjson.loads(state))
