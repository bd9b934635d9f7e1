"""The ledgers of a generation as Valkey has them: a hash with a JSON text per partition of `patches`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from projections.stores.store import Ledger
from projections.stores.valkey.scripts import INCOMPLETE
from projections.table.patch import places_from_json, places_to_json


@dataclass(frozen=True)
class KnownLedgers:
    """The ledgers of a generation; none if it is incomplete. entries: as they were looked up."""

    ledgers: dict[int, Ledger]
    entries: Mapping[int, bytes]

    @classmethod
    def of(cls, entries: Mapping[int, bytes]) -> KnownLedgers:
        if any(each.endswith(INCOMPLETE) for each in entries.values()):
            return cls({}, {})
        return cls({partition: _from_json(entry) for partition, entry in entries.items()}, entries)

    def digest(self, partition: int) -> str:
        """As the scripts make it."""
        return hashlib.sha1(self.entries[partition], usedforsecurity=False).hexdigest()


def ledger_to_json(ledger: Ledger) -> bytes:
    """A ledger as it is stored."""
    # without spaces, and `next` first: earlier releases search for it
    return orjson.dumps({"next": ledger.next_offset, "applied": places_to_json(ledger.applied)})


def _from_json(entry: bytes) -> Ledger:
    held = orjson.loads(entry)
    return Ledger(held["next"], places_from_json(held["applied"]))
