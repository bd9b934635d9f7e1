"""The database of the registry of generations: its tables, its connections, and the locks of rebuilds."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.rows import scalar_row

from headwater.projections.errors import LacksRight, RebuildFailed, StoreUnavailable
from headwater.projections.generations.registry import statements
from headwater.projections.generations.registry.advisory_locks import release_locks, take_lock
from headwater.projections.stores.postgres.client import (
    connect,
    holders_of,
    make_schema,
    retrying_locks,
    set_lock_limit,
)

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
            if not self._is_prepared(connection):
                tables = [f'"{self._environment}".generations']
                retrying_locks(self._prepare, lambda: holders_of(connection, tables))

    def _is_prepared(self, connection: psycopg.Connection[Any]) -> bool:
        names = [f'"{self._environment}".{name}' for name in statements.TABLES]
        found = connection.execute(statements.IS_PREPARED, [names]).fetchone()
        return bool(found and found[0])

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
