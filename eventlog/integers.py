"""Which integers stores can hold."""

from __future__ import annotations


def fits_64_bits(number: int) -> bool:
    """Whether a signed integer of 64 bits can have this value; stores hold no larger ones."""
    return -(2**63) <= number < 2**63
