"""The ledgers of a generation as Valkey has them: a hash with a JSON text per partition of `patches`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from headwater.projections.stores.names import cache_ledger
from headwater.projections.stores.store import Ledger, Target
from headwater.projections.stores.valkey.client import translated
from headwater.projections.stores.valkey.scripts import INCOMPLETE
from headwater.projections.table.patch import places_from_json, places_to_json


@dataclass(frozen=True)
class KnownLedgers:
    """The ledgers of a generation; none if it is incomplete.

    entries: as they were looked up.
    """

    ledgers: dict[int, Ledger]
    entries: Mapping[int, bytes]

    @classmethod
    def of(cls, stored: Mapping[bytes, bytes]) -> KnownLedgers:
        """From the fields of a hash."""
        is_complete = not any(each.endswith(INCOMPLETE) for each in stored.values())
        entries = {int(partition): entry for partition, entry in stored.items() if is_complete}
        held = {partition: orjson.loads(entry) for partition, entry in entries.items()}
        ledgers = {
            partition: Ledger(each["next"], places_from_json(each["applied"])) for partition, each in held.items()
        }
        return cls(ledgers, entries)

    def digest(self, partition: int) -> str:
        """As the scripts make it."""
        return hashlib.sha1(self.entries[partition], usedforsecurity=False).hexdigest()


def looked_up(client: Any, environment: str, targets: Sequence[Target]) -> list[KnownLedgers]:
    """The ledgers of generations; raises StoreUnavailable."""
    with translated(), client.pipeline(transaction=False) as pipeline:
        for target in targets:
            pipeline.hgetall(cache_ledger(environment, *target.id))
        return [KnownLedgers.of(entries) for entries in pipeline.execute()]


def ledger_to_json(ledger: Ledger) -> bytes:
    """A ledger as it is stored, without spaces."""
    return orjson.dumps({"next": ledger.next_offset, "applied": places_to_json(ledger.applied)})
