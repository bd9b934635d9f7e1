"""What a check of rows says if they differ, and how it is repeated."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Mapping
from typing import Any, Final

SEED: Final = "HEADWATER_SEED"
"""The environment variable that repeats a random run."""


def seed_of_run() -> int:
    """What SEED says, or one by chance."""
    return int(os.environ.get(SEED) or random.SystemRandom().randrange(2**32))


def differences(expected: Mapping[str, Any], actual: Mapping[str, Any], one: str, other: str) -> Iterable[str]:
    """Lines for each key whose rows differ. one, other: how each came about."""
    width = max(len(one), len(other))
    for key in sorted(expected.keys() | actual.keys()):
        if expected.get(key) != actual.get(key):
            yield f"  {key!r}: {one:{width}} {expected.get(key)!r}"
            yield f"  {' ' * len(repr(key))}  {other:{width}} {actual.get(key)!r}"
