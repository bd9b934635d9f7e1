"""Recognises heartbeats in the topics of captured tables."""

from __future__ import annotations

from headwater.eventlog.heartbeats import PREFIX


def is_table_heartbeat(key: bytes | None) -> bool:
    """Whether a record of a captured table is a heartbeat: Debezium's keys are JSON objects."""
    return key is not None and key.startswith(PREFIX.encode())
