"""Views in PostgreSQL: rows by key, by filters in any order, and the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from psycopg import sql

from api.cursor import typed_beyond
from api.filters import AnyOf, Condition, in_either_case
from api.ports import Applied, Live, Page, Row
from api.query import Order, Query
from api.reads.database import Database
from projections.stores.names import LEDGER, table_key, table_name
from projections.table.patch import places_from_json
from projections.table.shown import DELETED
from projections.table.types import ColumnType
from projections.view import View

LEDGER_OF = sql.SQL("SELECT partition, applied FROM {ledger} WHERE view = %s AND generation = %s")
NEXT_OFFSETS_OF = sql.SQL("SELECT partition, next FROM {ledger} WHERE view = %s AND generation = %s")
COUNT = sql.SQL("SELECT count(*) FROM {table} WHERE {conditions}")
ROWS = sql.SQL("SELECT {columns} FROM {table} WHERE {conditions} ORDER BY {order} LIMIT {limit}")

SIGNS: Mapping[str, sql.SQL] = {
    "gt": sql.SQL(">"),
    "gte": sql.SQL(">="),
    "lt": sql.SQL("<"),
    "lte": sql.SQL("<="),
}


class PostgresReader:
    """Reads the tables of the environment's schema."""

    name = "postgres"

    def __init__(self, database: Database, environment: str) -> None:
        self._database, self._schema = database, environment

    async def get(self, live: Live, key: str) -> Row | None:
        """The row of this key."""
        condition = sql.SQL("{} = %s").format(sql.Identifier(live.view.key_name))
        rows = await self._select(live, [condition, _visible(live.view)], sql.SQL("1"), 1, [key])
        return show(live.view, rows[0]) if rows else None

    async def get_many(self, live: Live, keys: Sequence[str], columns: Sequence[str] = ()) -> Mapping[str, Row]:
        """The rows of these keys, with the columns and the key."""
        condition = sql.SQL("{} = ANY(%s)").format(sql.Identifier(live.view.key_name))
        stored = {key: table_key(key) for key in keys}
        names = list(dict.fromkeys(stored.values()))
        shown = tuple(dict.fromkeys((live.view.key_name, *(columns or live.view.types))))
        rows = await self._select(live, [condition, _visible(live.view)], sql.SQL("1"), len(names), [names], shown)
        found = {row[0]: show(live.view, row, shown) for row in rows}
        return {key: found[name] for key, name in stored.items() if name in found}

    async def find(self, live: Live, query: Query) -> Page:
        """One page of rows."""
        conditions: list[sql.Composable] = [_visible(live.view)]
        values: list[Any] = []
        for each in query.filters:
            condition, more = matching(each)
            conditions.append(condition)
            values += more
        total = await self._count(live, conditions, values) if query.count else None
        if query.beyond is not None:
            condition, more = beyond(query.order, typed_beyond(live.view, query))
            conditions.append(condition)
            values += more
        order = sql.SQL(", ").join(_step(step, live.view) for step in query.order)
        shown = query.stored(live.view)
        columns = tuple(dict.fromkeys((*shown, *(step.column for step in query.order))))
        rows = await self._select(live, conditions, order, query.limit + 1, values, columns)
        page = rows[: query.limit]
        places = {name: number for number, name in enumerate(columns)}
        last = [_plain(page[-1][places[step.column]]) for step in query.order] if len(rows) > len(page) else None
        return Page([show(live.view, row, shown) for row in page], last, total)

    async def guard(self, live: Live, key: str) -> Applied:
        """Nothing to do: rows and ledger are written in one transaction."""
        return {}

    async def ledger(self, live: Live) -> Mapping[int, Applied]:
        """What the generation has applied, by patches partition."""
        statement = LEDGER_OF.format(ledger=sql.Identifier(self._schema, LEDGER))
        rows = await self._database.rows(statement, (live.view.name, live.generation))
        return {partition: places_from_json(applied) for partition, applied in rows}

    async def next_offsets(self, live: Live) -> Mapping[int, int]:
        """The loader's next `patches` offset, by partition."""
        statement = NEXT_OFFSETS_OF.format(ledger=sql.Identifier(self._schema, LEDGER))
        return dict(await self._database.rows(statement, (live.view.name, live.generation)))

    async def _count(self, live: Live, conditions: Sequence[sql.Composable], values: Sequence[Any]) -> int:
        statement = COUNT.format(table=self._table(live), conditions=sql.SQL(" AND ").join(conditions))
        ((total,),) = await self._database.rows(statement, values)
        return int(total)

    async def _select(
        self,
        live: Live,
        conditions: Sequence[sql.Composable],
        order: sql.Composable,
        limit: int,
        values: Sequence[Any],
        columns: Sequence[str] = (),
    ) -> list[tuple[Any, ...]]:
        statement = ROWS.format(
            columns=sql.SQL(", ").join(map(sql.Identifier, columns or live.view.types)),
            table=self._table(live),
            conditions=sql.SQL(" AND ").join(conditions),
            order=order,
            limit=sql.Literal(limit),
        )
        return await self._database.rows(statement, values)

    def _table(self, live: Live) -> sql.Identifier:
        return sql.Identifier(self._schema, table_name(live.view.name, live.generation))


def beyond(order: Sequence[Order], values: Sequence[Any]) -> tuple[sql.Composable, list[Any]]:
    """The condition for rows after one with these values, nulls last; and its parameters.

    Of (a, b): a is after, or a is equal and b is after.
    """
    cases: list[sql.Composable] = []
    parameters: list[Any] = []
    for length, (step, value) in enumerate(zip(order, values, strict=True)):
        if value is None:  # nulls are last: nothing comes after one
            continue
        equal = [
            sql.SQL("{} IS NOT DISTINCT FROM %s" if each is None else "{} = %s").format(sql.Identifier(s.column))
            for s, each in zip(order[:length], values[:length], strict=True)
        ]
        further = sql.SQL("({column} {sign} %s OR {column} IS NULL)").format(
            column=sql.Identifier(step.column), sign=SIGNS["lt" if step.descending else "gt"]
        )
        cases.append(sql.SQL("({})").format(sql.SQL(" AND ").join([*equal, further])))
        parameters += [*values[:length], value]
    return sql.SQL("({})").format(sql.SQL(" OR ").join(cases)), parameters


def show(view: View, values: Sequence[Any], columns: Sequence[str] = ()) -> Row:
    """The columns (empty: all) in the order of `values`, in the JSON types of `projections.table.reference.finish`."""
    names = columns or tuple(view.types)
    return {name: _show(view.types[name], value) for name, value in zip(names, values, strict=False)}


def _show(kind: ColumnType, value: Any) -> Any:
    if value is None:
        return None
    if kind is ColumnType.TIME:
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if kind is ColumnType.POINT:
        longitude, latitude = str(value).strip("()").split(",")
        return {"lat": float(latitude), "lon": float(longitude)}
    return value


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _visible(view: View) -> sql.Composable:
    return sql.SQL("{} IS NOT TRUE").format(sql.Identifier(DELETED)) if view.layout.marks_deleted else sql.SQL("true")


def matching(condition: Condition) -> tuple[sql.Composable, list[Any]]:
    """The condition in SQL, and its parameters; a null satisfies none but `is_null`."""
    if isinstance(condition, AnyOf):
        parts = [matching(each) for each in condition.filters]
        text = sql.SQL("({})").format(sql.SQL(" OR ").join(part for part, _ in parts))
        return text, [value for _, values in parts for value in values]
    column, values = sql.Identifier(condition.column), list(condition.values)
    match condition.operator:
        case "is_null":
            return sql.SQL("{} IS NULL" if values[0] else "{} IS NOT NULL").format(column), []
        case "in":
            return sql.SQL("{} = ANY(%s)").format(column), [values]
        case "not_in":
            return sql.SQL("{} <> ALL(%s)").format(column), [values]
        case "prefix":
            return sql.SQL("{} ^@ ANY(%s)").format(column), [values]
        case "ieq" | "iprefix" as operator:
            end = "$" if operator == "ieq" else ""
            return sql.SQL("{} ~ ANY(%s)").format(column), [[f"^{in_either_case(each)}{end}" for each in values]]
        case _ as sign:
            return sql.SQL("{} {} %s").format(column, SIGNS[sign]), values


def _step(step: Order, view: View) -> sql.Composable:
    direction = "{} DESC" if step.descending else "{} ASC"
    # the key is never null, and without NULLS LAST its index serves the order
    nulls = "" if step.column == view.key_name else " NULLS LAST"
    return sql.SQL(direction + nulls).format(sql.Identifier(step.column))
