"""Heartbeats: records that say how far a partition has been read if nothing else comes; compaction keeps the last."""

from __future__ import annotations

from typing import Final

from headwater.eventlog.topics import VIEWS

PREFIX: Final = "heartbeat/"
"""Keys of heartbeats begin with this, and no other keys do, except in the topics of views."""
AMONG_ROWS: Final = f"\x1f{PREFIX}"
"""Likewise in the topics of views, whose rows may have almost any key."""


def heartbeat_key(partition: int, topic: str = "") -> str:
    """The key of the heartbeats of a partition. topic: its short name; it matters only if it is that of a view."""
    return f"{_prefix(topic)}{partition}"


def is_heartbeat_key(key: str, topic: str = "") -> bool:
    """Whether a record with this key is a heartbeat, in a topic with this short name."""
    return key.startswith(_prefix(topic))


def _prefix(topic: str) -> str:
    return AMONG_ROWS if topic.startswith(VIEWS) else PREFIX


def is_table_heartbeat(key: bytes | None) -> bool:
    """Whether a record of a captured table is a heartbeat: Debezium's keys are JSON objects."""
    return key is not None and key.startswith(PREFIX.encode())
