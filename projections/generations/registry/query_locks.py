"""Who runs the query of a stream view: one process of all machines, as advisory locks of PostgreSQL say.

A lock on a file beside the checkpoint holds for one machine, and on some network disks for no other one.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import psycopg

from headwater.projections.errors import StoreUnavailable
from headwater.projections.generations.registry import statements
from headwater.projections.generations.registry.advisory_locks import release_locks, take_lock
from headwater.projections.stores.postgres.client import KEEPALIVES, LimitedConnection, connect

log = logging.getLogger(__name__)

CHECK_S: Final = 5.0
"""How often a process looks whether it still has its locks."""
ANSWER_S: Final = 10.0


class QueryLocks:
    """The locks that this process holds, on one connection, which is opened with the first.

    program: what the process is, for whoever is refused. now: seconds that never go back. Methods raise
    StoreUnavailable if PostgreSQL does not answer.
    """

    def __init__(self, url: str, environment: str, program: str, now: Callable[[], float] = time.monotonic) -> None:
        self._url, self._environment, self._now = url, environment, now
        # PostgreSQL shows 63 bytes of it to the process that is refused
        self._name = f"{program}, process {os.getpid()} on {socket.gethostname()}"[:63]
        self._connection: LimitedConnection | None = None
        self._held: set[str] = set()
        self._checked = now()
        self._is_lost = False  # whether the connection that held them broke

    def hold(self, tag: str) -> str | None:
        """Hold the query of a generation; returns who holds it if that is another process."""
        with self._connected() as connection:
            if (holder := take_lock(connection, self._lock_name(tag))) is None:
                self._held.add(tag)
            return holder

    def release(self, tag: str) -> None:
        """Let another process hold it. An error is logged: without its connection it is free."""
        if tag not in self._held:
            return
        self._held.discard(tag)
        try:
            with self._connected() as connection:
                connection.execute(statements.UNLOCK, [self._lock_name(tag)])
        except StoreUnavailable as error:
            log.warning("the lock on the query of %s is free: %s", tag, error)

    def taken(self) -> Mapping[str, str]:
        """Of the held ones, those that other processes hold now, with who does: the connection was lost meanwhile.

        It looks every CHECK_S, and holds again what nobody has taken.
        """
        if not self._held or self._now() - self._checked < CHECK_S:
            return {}
        self._checked = self._now()
        with self._connected() as connection:
            connection.execute("SELECT 1")
            if not self._is_lost:
                return {}
            found = {
                tag: holder
                for tag in sorted(self._held)
                if (holder := take_lock(connection, self._lock_name(tag))) is not None
            }
            self._is_lost = False
        self._held -= found.keys()
        return found

    def close(self) -> None:
        """Release all."""
        self._held.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            release_locks(connection)
            connection.close()

    @contextmanager
    def _connected(self) -> Iterator[LimitedConnection]:
        """The connection; a new one, without locks, if the last one broke."""
        try:
            if self._connection is None or self._connection.closed:
                self._connection = connect(self._url, answer_s=ANSWER_S, autocommit=True, application_name=self._name)
                self._connection.execute(statements.STAY_IDLE)
                # the server, too, notices within a minute that this machine is gone, and releases its locks
                for name, seconds in KEEPALIVES.items():
                    self._connection.execute("SELECT set_config(%s, %s, false)", [f"tcp_{name}", str(seconds)])
                self._is_lost = bool(self._held)
            yield self._connection
        except psycopg.OperationalError as error:
            if self._connection is not None:
                self._connection.close()
            raise StoreUnavailable("PostgreSQL", str(error).strip()) from error

    def _lock_name(self, tag: str) -> str:
        return f"headwater/{self._environment}/query/{tag}"
