"""Looks up rows of a captured PostgreSQL table by their keys, which are given as texts per column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from psycopg import sql

from headwater.eventlog.capturing.column_checks import why_misread
from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.capturing.postgres.database import CapturedDatabase
from headwater.eventlog.capturing.postgres.misread_values import misread_values
from headwater.eventlog.capturing.postgres.sql import READ_APART

UNCOMPARED: Final = frozenset({"timestamptz", "timestamp", "time", "timetz"})
"""Debezium 3.6 compares keys of these types with texts if it reads a table in chunks, which PostgreSQL refuses."""

ARRAYS: Final = frozenset({
    "text", "varchar", "bpchar", "int2", "int4", "int8", "oid", "bool", "float4", "float8", "numeric", "uuid", "date",
    "timestamp", "timestamptz", "time", "timetz",
})  # fmt: skip
"""Arrays that Debezium 3.6 reads in chunks. Those of enums, addresses, ranges and others may be null after a start."""


def read_apart(database: CapturedDatabase) -> dict[type[Captured], list[str]]:
    """Tables whose long values the connector reads by itself if an update leaves them, each with its partitions, or
    itself.
    """
    found = {}
    for table in database.source.tables:
        schema, name = table.table.split(".")
        parts = database.rows(READ_APART, {"schema": schema, "name": name, "columns": list(table.columns)})
        if parts:
            found[table] = [each["name"] for each in parts]
    return found


def absent(database: CapturedDatabase, table: type[Captured], keys: Sequence[Sequence[str]]) -> list[int]:
    """Which of these keys, given as texts per column, have no row; the database compares them as values."""
    columns = [list(values) for values in zip(*keys, strict=True)]
    names = [sql.Identifier(f"key_{number}") for number in range(len(table.key))]
    types = database.column_types(table)
    same = sql.SQL(" AND ").join(
        sql.SQL("there.{} = asked.{}::{}").format(sql.Identifier(column), name, sql.SQL(types[column]))
        for column, name in zip(table.key, names, strict=True)
    )
    query = sql.SQL(
        "SELECT asked.number::int - 1 AS number FROM unnest({}) WITH ORDINALITY asked({}, number) "
        "WHERE NOT EXISTS (SELECT FROM {} there WHERE {})"
    ).format(
        sql.SQL(", ").join([sql.SQL("%s::text[]")] * len(names)),
        sql.SQL(", ").join(names),
        sql.Identifier(*table.table.split(".")),
        same,
    )
    return [row["number"] for row in database.rows(query, columns)]


def condition(database: CapturedDatabase, table: type[Captured], keys: Sequence[Sequence[str]]) -> str:
    """SQL for the rows with these keys, given as texts per column."""
    types = database.column_types(table)
    rows = (
        sql.SQL("({})").format(
            sql.SQL(", ").join(
                sql.SQL("{}::{}").format(sql.Literal(value), sql.SQL(types[column]))
                for column, value in zip(table.key, key, strict=True)
            )
        )
        for key in keys
    )
    columns = sql.SQL(", ").join(map(sql.Identifier, table.key))
    return database.text(sql.SQL("({}) IN ({})").format(columns, sql.SQL(", ").join(rows)))


def unchunked(database: CapturedDatabase, table: type[Captured]) -> str | None:
    """Why Debezium cannot read the rows of a table in chunks; None if it can."""
    columns = database.columns(table)
    for name in table.key:
        if name in columns and columns[name]["type"] in UNCOMPARED:
            return f'its key column "{name}" is {columns[name]["shown"]}, which Debezium cannot compare'
    if why := why_misread(misread_values(database, table)):
        return why
    for name in table.columns:
        if name in columns and columns[name]["item"] and columns[name]["item"] not in ARRAYS:
            return f'its column "{name}" is {columns[name]["shown"]}, which Debezium would read as null'
    return None
