"""Rows of PostgreSQL that show personal values in clear, and their erasure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

import psycopg
from psycopg import sql

from headwater.projections.errors import GenerationMissing
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.clear_columns import KEYS
from headwater.projections.stores.names import table_name
from headwater.projections.stores.postgres import ddl
from headwater.projections.stores.postgres.connection import Client
from headwater.projections.stores.rows import ClearGeneration
from headwater.projections.stores.store import Target

EXISTS: Final = "SELECT to_regclass(%s) IS NOT NULL"
GENERATIONS: Final = "SELECT view, generation, columns, erased FROM {schema}._clear_columns ORDER BY view, generation"
OF_GENERATION: Final = "SELECT columns, erased FROM {schema}._clear_columns WHERE view = %s AND generation = %s"
# not while bulk writes, whose rows nobody sees before they are committed: `finish` has the last word about these
NOTE: Final = """
UPDATE {schema}._clear_columns SET erased = greatest(erased, %s) WHERE view = %s AND generation = %s
  AND EXISTS (SELECT FROM pg_index WHERE indrelid = to_regclass(%s) AND indisprimary)
"""
# a loader opens values while it holds the ledgers: after its transaction, its rows are seen here, and the next one
# opens nothing that is erased
LOCK: Final = """
SELECT FROM {schema}.ledger WHERE view = %s AND generation = %s ORDER BY partition FOR UPDATE
"""
COUNT: Final = "SELECT count(*) FROM {table} WHERE {keys} && %(ids)s::text[]"
EMPTY: Final = """
UPDATE {table} SET {values}, {keys} = array(SELECT unnest({keys}) EXCEPT SELECT unnest(%(ids)s::text[]))
WHERE {keys} && %(ids)s::text[]
"""
# the id of the key is the third part of a sealed text
VALUE: Final = "{clear} = CASE WHEN split_part({sealed}, ':', 3) = ANY(%(ids)s::text[]) THEN NULL ELSE {clear} END"


class PostgresClearRows:
    """See ClearRows."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings

    def generations(self) -> Sequence[ClearGeneration]:
        with self._transaction() as connection:
            if not self._has(connection, "_clear_columns"):
                return ()
            rows = connection.execute(self._sql(GENERATIONS)).fetchall()
            found = [ClearGeneration(view, number, tuple(columns), erased) for view, number, columns, erased in rows]
            return [each for each in found if self._has(connection, table_name(*each.id))]

    def count(self, of: ClearGeneration, key_ids: Collection[str]) -> int:
        with self._transaction() as connection:
            if not self._has(connection, table_name(*of.id)):  # dropped meanwhile
                return 0
            row = connection.execute(self._statement(COUNT, of), {"ids": list(key_ids)}).fetchone()
        return int(row[0]) if row else 0

    def empty(self, of: ClearGeneration, key_ids: Collection[str]) -> int:
        with self._transaction() as connection:
            if not self._has(connection, table_name(*of.id)):
                return 0
            connection.execute(self._sql(LOCK), of.id)
            return connection.execute(self._statement(EMPTY, of), {"ids": list(key_ids)}).rowcount

    def note_erased(self, of: ClearGeneration, number: int) -> None:
        with self._transaction() as connection:
            table = sql.Identifier(self._settings.environment, table_name(*of.id)).as_string(connection)
            connection.execute(self._sql(NOTE), (number, *of.id, table))

    def generation(self, target: Target) -> ClearGeneration:
        """What is known of a generation with columns in clear."""
        with self._transaction() as connection:
            found = connection.execute(self._sql(OF_GENERATION), target.id).fetchone()
        if found is None:
            raise GenerationMissing(*target.id)
        return ClearGeneration(*target.id, tuple(found[0]), found[1])

    def _statement(self, text: str, of: ClearGeneration) -> sql.Composed:
        keys = sql.Identifier(KEYS)
        values = [
            sql.SQL(VALUE).format(clear=sql.Identifier(ddl.clear_name(name)), sealed=sql.Identifier(name))
            for name in of.columns
        ]
        table = sql.Identifier(self._settings.environment, table_name(*of.id))
        return sql.SQL(text).format(table=table, keys=keys, values=sql.SQL(", ").join(values))

    def _sql(self, text: str) -> sql.Composed:
        return sql.SQL(text).format(schema=sql.Identifier(self._settings.environment))

    def _has(self, connection: psycopg.Connection[Any], table: str) -> bool:
        return has_table(connection, self._settings.environment, table)

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection[Any]]:
        """Without an index yet, it may read all rows."""
        with closing(Client(self._settings)) as client, client.transaction(answer_s=None) as connection:
            yield connection


def has_table(connection: psycopg.Connection[Any], schema: str, table: str) -> bool:
    """Whether a schema has a table."""
    name = sql.Identifier(schema, table).as_string(connection)
    row = connection.execute(EXISTS, [name]).fetchone()
    return row is not None and bool(row[0])


def drop_clear(connection: psycopg.Connection[Any], schema: str, target: Target) -> None:
    """Forget the columns in clear of a generation that is dropped."""
    if has_table(connection, schema, "_clear_columns"):
        connection.execute(sql.SQL(ddl.DROP_CLEAR).format(schema=sql.Identifier(schema)), target.id)
