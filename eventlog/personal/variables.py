"""The variable with the address of the store of keys."""

from __future__ import annotations

from typing import Final

KEYS_VARIABLE: Final = "HEADWATER_KEYS"
NEEDS: Final = (
    "the URL of the PostgreSQL database with the keys of persons, such as postgresql://keys@host/keys, because a field "
    "is declared as Personal"
)
