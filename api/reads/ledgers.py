"""What the ledgers of a generation say, in stores that keep them as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.api.ports import Applied
from headwater.projections.table.patch import places_from_json

StoredLedgers = Mapping[int, Mapping[str, Any]]
"""By partition of `patches`."""


def applied_in(ledgers: StoredLedgers) -> Mapping[int, Applied]:
    """What the generation has applied."""
    return {partition: places_from_json(ledger["applied"]) for partition, ledger in ledgers.items()}


def next_in(ledgers: StoredLedgers) -> Mapping[int, int]:
    """The loader's next `patches` offset."""
    return {partition: ledger["next"] for partition, ledger in ledgers.items()}
