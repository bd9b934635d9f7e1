"""Records of `patches`: what the live query writes and the loaders read."""

from __future__ import annotations

import orjson

from projections.stores.store import Batch, Patch, Place

PROGRESS = b"progress/"
TOO_LARGE = "too_large"
"""Stands for a patch that Kafka would not take, with its size in bytes."""


class NotAPatch(ValueError):
    """A record of `patches` that no loader can read."""


def read_into(batch: Batch, key: bytes | None, value: bytes | None) -> None:
    """Add one record to `batch`; raises NotAPatch."""
    if not key or not value:
        raise NotAPatch("it has no key or no value")
    try:
        document = orjson.loads(value)
        if TOO_LARGE in document:
            raise NotAPatch(f"it had {document[TOO_LARGE]} bytes, more than Kafka takes: a rebuild takes it in")
        source, offset = document["p"], document["o"]
        if key.startswith(PROGRESS):
            for tag in document["v"]:
                reached = batch.progress.setdefault(tag, {})
                reached[source] = max(offset, reached.get(source, -1))
            return
        tag, _, row = key.decode().partition("/")
        patch = Patch(row, source, Place(offset, document["i"]), document["c"])
    except (orjson.JSONDecodeError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise NotAPatch(f"{type(error).__name__}: {error}") from error
    batch.patches.setdefault(tag, []).append(patch)
