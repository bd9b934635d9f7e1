"""Views in PostgreSQL: rows by key, by filters in any order, and the ledger; over a pool of connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from datetime import UTC
from typing import Any, Final, NamedTuple, TypeVar, cast

import psycopg
from psycopg import AsyncConnection, errors, sql
from psycopg.sql import Composed
from psycopg_pool import AsyncConnectionPool

from headwater.api.limits import MAX_PAGE_BYTES, READS_AT_ONCE, fitting_rows, stored_bytes
from headwater.api.reading import Applied, GenerationGone, Live, Page, Row
from headwater.api.requests.filters import AnyOf, Condition, in_either_case
from headwater.api.requests.query import Order, Query, typed_beyond
from headwater.projections.errors import LacksRight, StoreUnavailable
from headwater.projections.stores.names import LEDGER, table_key, table_name
from headwater.projections.stores.postgres.schema import begun_with_quote, clear_name, quoted, sealed_with_any
from headwater.projections.table.decimals import decimal_text
from headwater.projections.table.layout import DELETED
from headwater.projections.table.patch import places_from_json
from headwater.projections.table.types import ColumnType
from headwater.projections.view import View

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
LEDGER_OF = sql.SQL("SELECT partition, applied FROM {ledger} WHERE view = %s AND generation = %s")
NEXT_OFFSETS_OF = sql.SQL("SELECT partition, next FROM {ledger} WHERE view = %s AND generation = %s")
COUNT = sql.SQL("SELECT count(*) FROM {table} WHERE {conditions}")
ROWS = sql.SQL("SELECT {columns} FROM {table} WHERE {conditions} ORDER BY {order} LIMIT {limit}")
FROM_SEVERAL = sql.SQL("SELECT * FROM ({several}) AS found ORDER BY {order} LIMIT {limit}")
SIGNS: Mapping[str, sql.SQL] = {
    "gt": sql.SQL(">"),
    "gte": sql.SQL(">="),
    "lt": sql.SQL("<"),
    "lte": sql.SQL("<="),
}


async def _nothing(connection: Connection) -> None:
    """Reset nothing. With a `reset`, a worker of the pool returns connections: a reader that is cancelled while it
    returned one itself would lose it, and the pool would shrink for good."""


class Database:
    """A pool of read-only connections to one deployment's PostgreSQL."""

    def __init__(self, url: str, environment: str, connections: int = READS_AT_ONCE) -> None:
        """connections: by default, as many as reads are admitted at once, so that nobody waits for one."""
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
            rows, left = list[tuple[Any, ...]](), budget_bytes
            streamed = connection.cursor().stream(statement, values, size=ROWS_AT_ONCE)
            async with aclosing(cast(AsyncGenerator[tuple[Any, ...]], streamed)) as rows_as_they_come:
                async for row in rows_as_they_come:
                    rows.append(row)
                    left -= stored_bytes(row)
                    if left <= 0:
                        return rows, False
            return rows, True

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
                # replace each that the server has ended; requests that find one at the same time share the look
                if self._checking is None or self._checking.done():
                    self._checking = asyncio.create_task(self._pool.check())
                await asyncio.shield(self._checking)  # connections would be lost with a client that leaves
            async with self._pool.connection() as connection:
                return await read(connection)


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


class Where(NamedTuple):
    """Conditions that a row must all satisfy, and their parameters."""

    conditions: tuple[sql.Composable, ...]
    values: tuple[Any, ...] = ()

    def and_(self, other: Where) -> Where:
        """Both."""
        return Where(self.conditions + other.conditions, self.values + other.values)

    @property
    def text(self) -> sql.Composable:
        """For a WHERE clause."""
        return sql.SQL(" AND ").join(self.conditions)


class PostgresReader:
    """Reads the tables of the environment's schema."""

    name = "postgres"
    has_guards = False
    needs_refresh = False

    def __init__(self, database: Database, environment: str, ledgers: Database | None = None) -> None:
        """ledgers: reads them, beside rows, whose queries may take long; None: `database` does."""
        self._database, self._schema, self._ledgers = database, environment, ledgers or database

    async def get_many(self, live: Live, keys: Sequence[str], columns: Sequence[str] = ()) -> Mapping[str, Row]:
        """The rows of these keys, with the columns and the key."""
        condition = sql.SQL("{} = ANY(%s)").format(sql.Identifier(live.view.key_name))
        stored = {key: table_key(key) for key in keys}
        names = list(dict.fromkeys(stored.values()))
        shown = tuple(dict.fromkeys((live.view.key_name, *(columns or live.view.types))))
        where = _existing(live).and_(Where((condition,), (names,)))
        statement, values = self._selection(live, [where], sql.SQL("1"), len(names), shown)
        rows = await self._database.rows(statement, values)
        row_by_key = {row[0]: show(live.view, row, shown) for row in rows}
        return {key: row_by_key[name] for key, name in stored.items() if name in row_by_key}

    async def find(self, live: Live, query: Query) -> Page:
        """One page of rows."""
        where, declared = _existing(live), live.view.store("postgres")
        for filter_ in query.filters:
            where = where.and_(matching(filter_, () if declared is None else declared.clear))
        total = None
        if query.count:
            counting = COUNT.format(table=self._table(live), conditions=where.text)
            ((total,),) = await self._database.rows(counting, where.values)
        several = [where]
        if query.beyond is not None:
            several = [
                where.and_(condition) for condition in beyond(live.view, query.order, typed_beyond(live.view, query))
            ]
        order = sql.SQL(", ").join(_step(step, live.view) for step in query.order)
        shown = query.stored(live.view)
        columns = tuple(dict.fromkeys((*shown, *(step.column for step in query.order))))
        statement, values = self._selection(live, several, order, query.limit + 1, columns)
        rows, are_all = await self._database.first_rows(statement, values, query.limit + 1, MAX_PAGE_BYTES)
        page = rows[: query.limit]
        places = {name: number for number, name in enumerate(columns)}
        last = None
        if len(rows) > len(page) or not are_all:
            ends = tuple(step.column for step in query.order)
            last = list(show(live.view, [page[-1][places[name]] for name in ends], ends).values())
        return Page([show(live.view, row, shown) for row in page], last, total)

    async def guards(self, live: Live, keys: Sequence[str]) -> Mapping[str, Applied]:
        """Nothing to do: rows and ledger are written in one transaction."""
        return {}

    async def ledger(self, live: Live) -> Mapping[int, Applied]:
        """What the generation has applied, by patches partition."""
        statement = LEDGER_OF.format(ledger=sql.Identifier(self._schema, LEDGER))
        rows = await self._ledgers.rows(statement, (live.view.name, live.generation))
        return {partition: places_from_json(applied) for partition, applied in rows}

    async def next_offsets(self, live: Live) -> Mapping[int, int]:
        """The loader's next `patches` offset, by partition."""
        statement = NEXT_OFFSETS_OF.format(ledger=sql.Identifier(self._schema, LEDGER))
        return dict(await self._ledgers.rows(statement, (live.view.name, live.generation)))

    def _selection(
        self,
        live: Live,
        several: Sequence[Where],
        order: sql.Composable,
        limit: int,
        columns: Sequence[str],
    ) -> tuple[sql.Composed, list[Any]]:
        """The query, with its values, of the first rows that satisfy one of `several`; no row satisfies two."""
        listed = sql.SQL(", ").join(map(sql.Identifier, columns))
        table, most = self._table(live), sql.Literal(limit)
        parts = [
            ROWS.format(columns=listed, table=table, conditions=selection.text, order=order, limit=most)
            for selection in several
        ]
        statement = parts[0]
        if len(parts) > 1:  # each part reads an index from its first row on; one condition with OR would read all
            united = sql.SQL(" UNION ALL ").join(sql.SQL("({})").format(part) for part in parts)
            statement = FROM_SEVERAL.format(several=united, order=order, limit=most)
        return statement, [value for selection in several for value in selection.values]

    def _table(self, live: Live) -> sql.Identifier:
        return sql.Identifier(self._schema, table_name(live.view.name, live.generation))


def beyond(view: View, order: Sequence[Order], values: Sequence[Any]) -> Iterator[Where]:
    """The rows after one with these values, nulls last; no row is in two of the conditions.

    Rows in the order of (a, b) have a later a, or no a, or the same a and a later b. The key is never null.
    """
    equal = Where(())
    for step, value in zip(order, values, strict=True):
        column = sql.Identifier(step.column)
        if value is None:  # nulls are last: nothing comes after one
            equal = equal.and_(Where((sql.SQL("{} IS NULL").format(column),)))
            continue
        sign = SIGNS["lt" if step.descending else "gt"]
        yield equal.and_(Where((sql.SQL("{} {} %s").format(column, sign),), (value,)))
        if step.column != view.key_name:
            yield equal.and_(Where((sql.SQL("{} IS NULL").format(column),)))
        equal = equal.and_(Where((sql.SQL("{} = %s").format(column),), (value,)))


def show(view: View, values: Sequence[Any], columns: Sequence[str] = ()) -> Row:
    """The columns (empty: all) in the order of `values`, in the JSON types of the view's columns."""
    names = columns or tuple(view.types)
    return {name: _show(view.types[name], value) for name, value in zip(names, values, strict=False)}


def _show(kind: ColumnType, value: Any) -> Any:
    if value is None:
        return None
    if kind is ColumnType.TIME:
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if kind.is_decimal:
        return decimal_text(value, kind.places)
    if kind in (ColumnType.DATE, ColumnType.UUID):
        return str(value)
    if kind is ColumnType.POINT:
        longitude, latitude = str(value).strip("()").split(",")
        return {"lat": float(latitude), "lon": float(longitude)}
    return value


def _existing(live: Live) -> Where:
    """What every row fulfils that exists for the reader."""
    marks = live.view.layout.marks_deleted
    visible = sql.SQL("{} IS NOT TRUE").format(sql.Identifier(DELETED)) if marks else sql.SQL("true")
    where = Where((visible,))
    for condition in live.conditions:
        where = where.and_(matching(condition))
    return where


def matching(condition: Condition, clear: Collection[str] = ()) -> Where:
    """The condition in SQL; a null satisfies none but `is_null`. clear: the columns that are compared in clear."""
    if isinstance(condition, AnyOf):
        parts = [matching(filter_, clear) for filter_ in condition.filters]
        either = sql.SQL("({})").format(sql.SQL(" OR ").join(part.text for part in parts))
        return Where((either,), tuple(value for part in parts for value in part.values))
    name = clear_name(condition.column) if condition.column in clear else condition.column
    column, values = sql.Identifier(name), list(condition.values)
    match condition.operator:
        case "is_null":
            return Where((sql.SQL("{} IS NULL" if values[0] else "{} IS NOT NULL").format(column),))
        case "in" if len(values) == 1:  # of one value, an index also has the order by its next column
            text = sql.SQL("{} = %s")
        case "in":
            text, values = sql.SQL("{} = ANY(%s)"), [values]
        case "not_in":
            text, values = sql.SQL("{} <> ALL(%s)"), [values]
        case "prefix":
            text, values = sql.SQL("{} ^@ ANY(%s)"), [values]
        case "sealed_with" | "sealed_copy" as operator:
            text_of = quoted if operator == "sealed_with" else begun_with_quote
            return Where((sql.SQL(sealed_with_any(text_of(condition.column))),), (values,))
        case "ieq" | "iprefix" as operator:
            end = "$" if operator == "ieq" else ""
            # one pattern: PostgreSQL keeps few compiled ones, and would compile each of many again for each row
            alternatives = "|".join(map(in_either_case, values))
            text, values = sql.SQL("{} ~ %s"), [f"^(?:{alternatives}){end}"]
        case _ as sign:
            return Where((sql.SQL("{} {} %s").format(column, SIGNS[sign]),), tuple(values))
    return Where((text.format(column),), tuple(values))


def _step(step: Order, view: View) -> sql.Composable:
    direction = "{} DESC" if step.descending else "{} ASC"
    # the key is never null, and without NULLS LAST its index serves the order
    nulls = "" if step.column == view.key_name else " NULLS LAST"
    return sql.SQL(direction + nulls).format(sql.Identifier(step.column))
