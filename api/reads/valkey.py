"""Views in Valkey: rows by key, guards and the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import orjson
import valkey.asyncio
from valkey.exceptions import ValkeyError

from api.ports import Applied, Live, Row
from projections.errors import StoreUnavailable
from projections.stores.names import cache_key, cache_ledger
from projections.table.patch import places_from_json

Answer = TypeVar("Answer")

TIMEOUT_S = 1.0
"""Short, so that a cache without an answer does not delay an answer from another store."""


class ValkeyReader:
    """Reads the hashes of the environment."""

    name = "valkey"

    def __init__(self, url: str, environment: str) -> None:
        self._environment = environment
        self._client: valkey.asyncio.Valkey = valkey.asyncio.Valkey.from_url(
            url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S
        )

    async def open(self) -> None:
        """Nothing to do: the client connects at its first use."""

    async def close(self) -> None:
        """Close every connection."""
        await self._client.aclose()

    async def get(self, live: Live, key: str) -> Row | None:
        """The document of this key."""
        document = await self._ask(self._client.hget(self._key(live, key), "doc"))
        return None if document is None else _row(live, orjson.loads(document))

    async def get_many(self, live: Live, keys: Sequence[str], columns: Sequence[str] = ()) -> Mapping[str, Row]:
        """The complete documents of these keys, which are stored as texts."""
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            pipeline.hget(self._key(live, key), "doc")
        documents = await self._ask(pipeline.execute())
        found = zip(keys, documents, strict=True)
        return {key: _row(live, orjson.loads(document)) for key, document in found if document is not None}

    async def guard(self, live: Live, key: str) -> Applied:
        """What the row's guard says was applied to it."""
        guard = await self._ask(self._client.hget(self._key(live, key), "guard"))
        return places_from_json(None if guard is None else orjson.loads(guard))

    async def ledger(self, live: Live) -> Mapping[int, Applied]:
        """What the generation has applied, by patches partition."""
        return {partition: places_from_json(each["applied"]) for partition, each in (await self._ledgers(live)).items()}

    async def next_offsets(self, live: Live) -> Mapping[int, int]:
        """The loader's next `patches` offset, by partition."""
        return {partition: each["next"] for partition, each in (await self._ledgers(live)).items()}

    async def _ledgers(self, live: Live) -> dict[int, Mapping[str, Any]]:
        name = cache_ledger(self._environment, live.view.name, live.generation)
        fields = await self._ask(self._client.hgetall(name))
        return {int(partition): orjson.loads(entry) for partition, entry in fields.items()}

    def _key(self, live: Live, key: str) -> str:
        return cache_key(self._environment, live.view.name, live.generation, key)

    async def _ask(self, call: Any) -> Any:
        try:
            return await call
        except (ValkeyError, OSError) as error:
            raise StoreUnavailable("Valkey", str(error)) from error


def _row(live: Live, document: Mapping[str, Any]) -> Row:
    return {name: document.get(name) for name in live.view.types}
