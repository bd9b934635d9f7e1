"""Keys of receipts in a short form, for tests in which no two streams or origins have a command id."""

from __future__ import annotations

import json


def short_key(key: str) -> str:
    """The command id of a receipt's record key, and what a refusal has after it: `c-1`, or `c-1#<fingerprint>`."""
    first, end, refusal = key.rpartition("]")
    return f"{json.loads(first + end)[2]}{refusal}"
