"""Asynchronous reads of PostgreSQL: a pool that raises Headwater's errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Any, Final, TypeVar, cast

import psycopg
from psycopg import AsyncConnection, errors
from psycopg.sql import Composed
from psycopg_pool import AsyncConnectionPool

from headwater.api.limits.requests import fitting_rows, stored_bytes
from headwater.api.ports import GenerationGone
from headwater.projections.errors import LacksRight, StoreUnavailable

Answer = TypeVar("Answer")
Connection = AsyncConnection[tuple[Any, ...]]

STATEMENT_TIMEOUT_MS = 15_000
ENDED: Final = (errors.AdminShutdown, errors.CrashShutdown, errors.IdleSessionTimeout)
"""What the server may say when it ends a connection, before the client sees that it has."""
RETRIES: Final = 2
"""More than one, because others may return a connection that has ended, too; few, because the query may be why."""
CONNECT_S: Final = 3
"""How long it may take to connect, and to get a connection of the pool."""
ROWS_AT_ONCE: Final = 10
"""Rows that are received together while the size of all is limited."""


async def _nothing(connection: Connection) -> None:
    """Reset nothing. With a `reset`, a worker of the pool returns connections: a reader that is cancelled while it
    returned one itself would lose it, and the pool would shrink for good."""


class Database:
    """A pool of read-only connections to one deployment's PostgreSQL."""

    def __init__(self, url: str, environment: str, connections: int = 8) -> None:
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            url,
            min_size=1,
            max_size=connections,
            open=False,
            timeout=CONNECT_S,
            reset=_nothing,
            kwargs={
                "autocommit": True,
                "connect_timeout": CONNECT_S,
                "application_name": f"{environment}.api",
                "options": f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c default_transaction_read_only=on "
                "-c timezone=UTC",
            },
        )
        self._checking: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start to connect, in the background."""
        await self._pool.open(wait=False)

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.close()

    async def rows(self, statement: Composed, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of one query; raises StoreUnavailable, or GenerationGone (dropped, or of another version)."""

        async def read(connection: Connection) -> list[tuple[Any, ...]]:
            cursor = await connection.execute(statement, values)
            return await cursor.fetchall()

        return await self._read(read)

    async def first_rows(
        self, statement: Composed, values: Sequence[Any], limit: int, budget_bytes: int
    ) -> tuple[list[tuple[Any, ...]], bool]:
        """As many first rows as have this size, and whether these are all.

        The server sends them as they are read, and stops when they are enough. limit: of the statement. Raises as
        `rows`.
        """
        if limit <= ROWS_AT_ONCE:  # in one round trip, with a statement that the server knows
            rows = await self.rows(statement, values)
            fitting = fitting_rows(map(stored_bytes, rows), budget_bytes)
            return rows[:fitting], fitting == len(rows)

        async def read(connection: Connection) -> tuple[list[tuple[Any, ...]], bool]:
            found, left = list[tuple[Any, ...]](), budget_bytes
            streamed = connection.cursor().stream(statement, values, size=ROWS_AT_ONCE)
            async with aclosing(cast(AsyncGenerator[tuple[Any, ...]], streamed)) as rows_as_they_come:
                async for row in rows_as_they_come:
                    found.append(row)
                    left -= stored_bytes(row)
                    if left <= 0:
                        return found, False
            return found, True

        return await self._read(read)

    async def _read(self, read: Callable[[Connection], Awaitable[Answer]]) -> Answer:
        """What it reads; with another connection if the server has ended that one, as in a restart.

        To ask each connection before its query would take as long as the query.
        """
        with _translated():
            for _ in range(RETRIES):
                connection = None
                try:
                    async with self._pool.connection() as connection:
                        return await read(connection)
                except psycopg.OperationalError as error:
                    if not isinstance(error, ENDED) and (connection is None or not connection.broken):
                        raise
                await self._replace_ended()
            async with self._pool.connection() as connection:
                return await read(connection)

    async def _replace_ended(self) -> None:
        """Replace each connection that the server has ended; requests that find one at the same time share the look."""
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._pool.check())
        await asyncio.shield(self._checking)  # connections would be lost with a client that leaves


@contextmanager
def _translated() -> Iterator[None]:
    """Translate PostgreSQL's errors into Headwater's."""
    try:
        yield
    except (errors.UndefinedTable, errors.UndefinedColumn) as error:
        raise GenerationGone(str(error)) from error
    except errors.QueryCanceled as error:
        raise StoreUnavailable("PostgreSQL", f"no answer within {STATEMENT_TIMEOUT_MS} ms") from error
    except errors.InsufficientPrivilege as error:
        raise LacksRight("PostgreSQL", str(error).strip()) from error
    except psycopg.OperationalError as error:
        raise StoreUnavailable("PostgreSQL", str(error).strip()) from error
