"""Records of `patches`: what the live query writes and the loaders read."""

from __future__ import annotations

import orjson

from projections.stores.store import Batch, Patch, Place

PROGRESS = b"progress/"


class NotAPatch(ValueError):
    """A record of `patches` that no loader can read."""


def read_into(batch: Batch, key: bytes | None, value: bytes | None) -> int:
    """Add one record to `batch` and return the time of its event in milliseconds since 1970; raises NotAPatch."""
    if not key or not value:
        raise NotAPatch("it has no key or no value")
    try:
        document = orjson.loads(value)
        source, offset, time_ms = document["p"], document["o"], document["t"]
        if key.startswith(PROGRESS):
            batch.progress[source] = max(offset, batch.progress.get(source, -1))
            return int(time_ms)
        tag, _, row = key.decode().partition("/")
        patch = Patch(row, source, Place(offset, document["i"]), document["c"])
    except (orjson.JSONDecodeError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise NotAPatch(f"{type(error).__name__}: {error}") from error
    batch.patches.setdefault(tag, []).append(patch)
    return int(time_ms)
