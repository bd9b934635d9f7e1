"""Heartbeats: records that say how far a partition has been read if nothing else comes; compaction keeps the last."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "heartbeat/"
"""Keys of heartbeats begin with this, and no other keys do."""


def heartbeat_key(partition: int) -> str:
    """The key of the heartbeats of a partition."""
    return f"{PREFIX}{partition}"


def is_heartbeat_key(key: str) -> bool:
    """Whether a record with this key is a heartbeat."""
    return key.startswith(PREFIX)
