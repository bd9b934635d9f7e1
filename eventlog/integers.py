"""Which integers stores can hold."""

from __future__ import annotations

from typing import Final

LOWEST: Final = -(2**63)
HIGHEST: Final = 2**63 - 1


def fits_64_bits(number: int) -> bool:
    """Whether a signed integer of 64 bits can have this value; stores hold no larger ones."""
    return LOWEST <= number <= HIGHEST
