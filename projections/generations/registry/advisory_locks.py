"""Advisory locks of PostgreSQL: a connection holds each, and its `application_name` says to others what that is."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psycopg
from psycopg.rows import scalar_row

from headwater.projections.generations.registry import statements


def take_lock(connection: psycopg.Connection[Any], name: str) -> str | None:
    """Hold the lock of this name without waiting; returns what holds it otherwise. Raises psycopg.Error."""
    cursor = connection.cursor(row_factory=scalar_row)
    if cursor.execute(statements.LOCK, [name]).fetchone():
        return None
    return cursor.execute(statements.HOLDER, [name]).fetchone() or "a process that has just ended"


def release_locks(connection: psycopg.Connection[Any]) -> None:
    """Release all locks of a connection that is about to close, if it still works.

    A server that is busy notices the end of a connection late, and would refuse whoever comes next.
    """
    with suppress(psycopg.Error):
        connection.execute(statements.UNLOCK_ALL)
