"""The database of the registry: its connections, its tables, and the locks on rebuilds and queries."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.rows import scalar_row

from headwater.projections.errors import LacksRight, RebuildFailed, StoreUnavailable
from headwater.projections.generations.registry import statements
from headwater.projections.stores.postgres.client import (
    KEEPALIVES,
    LimitedConnection,
    connect,
    holders_of,
    make_schema,
    retrying_locks,
    set_lock_limit,
)


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


REGISTRY_S: Final = 10.0
"""How long a statement on the registry may take."""


class RebuildLock:
    """The rebuild lock of one view; it is released before its connection closes, or when that breaks."""

    def __init__(self, view: str, connection: psycopg.Connection[Any]) -> None:
        self._view, self._connection = view, connection

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection[Any]]:
        """A transaction of the connection that holds the lock, so that nothing is changed without it.

        Raises StoreUnavailable if the connection broke meanwhile: another process may hold the lock now.
        """
        try:
            with self._connection.transaction():
                yield self._connection
        except psycopg.OperationalError as error:
            raise StoreUnavailable("PostgreSQL", f'the lock on rebuilding "{self._view}" was lost: {error}') from error


class RegistryDatabase:
    """The tables of one deployment. Every method raises StoreUnavailable if PostgreSQL does not answer."""

    def __init__(self, url: str, environment: str) -> None:
        self._url, self._environment = url, environment

    def prepare(self) -> None:
        """Create the registry's schema and tables if they are missing."""
        with self._connect() as connection:
            names = [f'"{self._environment}".{name}' for name in statements.TABLES]
            row = connection.execute(statements.IS_PREPARED, [names]).fetchone()
            if not (row and row[0]):
                tables = [f'"{self._environment}".generations']
                retrying_locks(self._prepare, lambda: holders_of(connection, tables))

    def _prepare(self) -> None:
        with self._connect() as connection:
            # two processes that start at the same time would both find it missing
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [self._lock_name("schema")])
            set_lock_limit(connection)
            make_schema(connection, self._environment)
            connection.execute(self._sql(statements.SCHEMA))

    @contextmanager
    def rebuilding(self, view: str) -> Iterator[RebuildLock]:
        """Hold the rebuild lock of `view`; raises RebuildFailed, naming the process that already holds it."""
        # PostgreSQL shows 63 bytes of it to the process that is refused
        name = f"replay, process {os.getpid()} on {socket.gethostname()}"[:63]
        with self._connect(autocommit=True, application_name=name) as connection:
            connection.execute(statements.STAY_IDLE)
            if (holder := take_lock(connection, self._lock_name(view))) is not None:
                raise RebuildFailed(view, "start", f"another rebuild is running ({holder}): wait for it or stop it")
            try:
                yield RebuildLock(view, connection)
            finally:
                release_locks(connection)

    def _held(self, connection: psycopg.Connection[Any], views: Iterable[str]) -> list[str]:
        """Those of these views whose rebuild lock a living process holds."""
        locks = {self._lock_name(view): view for view in views}
        held = connection.cursor(row_factory=scalar_row).execute(statements.HELD, [list(locks)]).fetchall()
        return [locks[name] for name in held]

    @contextmanager
    def _connect(self, **options: Any) -> Iterator[psycopg.Connection[Any]]:
        with self._translated_errors(), connect(self._url, answer_s=REGISTRY_S, **options) as connection:
            yield connection

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.errors.InsufficientPrivilege as error:
            raise LacksRight("PostgreSQL", str(error).strip()) from error
        except psycopg.OperationalError as error:
            raise StoreUnavailable("PostgreSQL", str(error).strip()) from error

    def _sql(self, text: str) -> sql.Composed:
        return sql.SQL(text).format(schema=sql.Identifier(self._environment))

    def _lock_name(self, what: str) -> str:
        return f"headwater/{self._environment}/{what}"


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
            holders = {
                tag: holder
                for tag in sorted(self._held)
                if (holder := take_lock(connection, self._lock_name(tag))) is not None
            }
            self._is_lost = False
        self._held -= holders.keys()
        return holders

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
