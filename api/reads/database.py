"""Asynchronous reads of PostgreSQL: a pool that raises Headwater's errors."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, cast

import psycopg
from psycopg import AsyncConnection
from psycopg.sql import Composed
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from api.limits.portions import fitting_rows, stored_bytes
from api.ports import GenerationGone
from projections.errors import LacksRight, StoreUnavailable

STATEMENT_TIMEOUT_MS = 15_000
CONNECT_S: Final = 3
"""How long it may take to connect, and to get a connection of the pool."""
ROWS_AT_ONCE: Final = 10
"""Rows that are received together while the size of all is limited."""


async def _nothing(connection: AsyncConnection[tuple[Any, ...]]) -> None:
    """Reset nothing. With a `reset`, a worker of the pool returns connections: a reader that is cancelled while it
    returned one itself would lose it, and the pool would shrink for good."""


class Database:
    """A pool of read-only connections to one deployment's PostgreSQL."""

    def __init__(self, url: str, environment: str, connections: int = 8) -> None:
        self._pool: AsyncConnectionPool[AsyncConnection[tuple[Any, ...]]] = AsyncConnectionPool(
            url,
            min_size=1,
            max_size=connections,
            open=False,
            timeout=CONNECT_S,
            check=AsyncConnectionPool.check_connection,
            reset=_nothing,
            kwargs={
                "autocommit": True,
                "connect_timeout": CONNECT_S,
                "application_name": f"{environment}.api",
                "options": f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c default_transaction_read_only=on "
                "-c timezone=UTC",
            },
        )

    async def open(self) -> None:
        """Start to connect, in the background."""
        await self._pool.open(wait=False)

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.close()

    async def rows(self, statement: Composed, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of one query; raises StoreUnavailable, or GenerationGone (dropped, or of another version)."""
        async with self._connection() as connection:
            cursor = await connection.execute(statement, values)
            return await cursor.fetchall()

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
        found: list[tuple[Any, ...]] = []
        async with self._connection() as connection:
            streamed = connection.cursor().stream(statement, values, size=ROWS_AT_ONCE)
            async with aclosing(cast(AsyncGenerator[tuple[Any, ...]], streamed)) as rows_as_they_come:
                async for row in rows_as_they_come:
                    found.append(row)
                    budget_bytes -= stored_bytes(row)
                    if budget_bytes <= 0:
                        return found, False
        return found, True

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[AsyncConnection[tuple[Any, ...]]]:
        """A connection of the pool, whose errors are Headwater's."""
        try:
            async with self._pool.connection() as connection:
                yield connection
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
            raise GenerationGone(str(error)) from error
        except psycopg.errors.QueryCanceled as error:
            raise StoreUnavailable("PostgreSQL", f"no answer within {STATEMENT_TIMEOUT_MS} ms") from error
        except psycopg.errors.InsufficientPrivilege as error:
            raise LacksRight("PostgreSQL", str(error).strip()) from error
        except (psycopg.OperationalError, PoolTimeout) as error:
            raise StoreUnavailable("PostgreSQL", str(error).strip()) from error
