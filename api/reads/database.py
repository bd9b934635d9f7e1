"""Asynchronous reads of PostgreSQL: a pool that raises Headwater's errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg.sql import Composed
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from api.ports import GenerationGone
from projections.errors import StoreUnavailable

STATEMENT_TIMEOUT_MS = 15_000


class Database:
    """A pool of read-only connections to one deployment's PostgreSQL."""

    def __init__(self, url: str, environment: str, connections: int = 8) -> None:
        self._pool: AsyncConnectionPool[AsyncConnection[tuple[Any, ...]]] = AsyncConnectionPool(
            url,
            min_size=1,
            max_size=connections,
            open=False,
            timeout=3.0,
            check=AsyncConnectionPool.check_connection,
            kwargs={
                "autocommit": True,
                "connect_timeout": 3,
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
        try:
            async with self._pool.connection() as connection:
                cursor = await connection.execute(statement, values)
                return await cursor.fetchall()
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
            raise GenerationGone(str(error)) from error
        except psycopg.errors.QueryCanceled as error:
            raise StoreUnavailable("PostgreSQL", f"no answer within {STATEMENT_TIMEOUT_MS} ms") from error
        except (psycopg.OperationalError, PoolTimeout) as error:
            raise StoreUnavailable("PostgreSQL", str(error).strip()) from error
