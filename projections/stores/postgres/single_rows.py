"""Single rows of a generation's table; the row's own version (`xmin` and `ctid`) says whether it has changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

import psycopg
from psycopg import sql

from projections.errors import GenerationMissing
from projections.settings import StoreSettings
from projections.stores import ledgers
from projections.stores.clear_columns import ClearColumns
from projections.stores.names import patch_partition, table_key, table_name
from projections.stores.postgres import ddl
from projections.stores.postgres.connection import connect
from projections.stores.postgres.errors import meaning
from projections.stores.postgres.row_json import rows_json
from projections.stores.postgres.rows import row_of, select_rows
from projections.stores.postgres.text import NAME, without_nul
from projections.stores.row_reader import without_empty
from projections.stores.single_rows import StoredRow, covers
from projections.stores.store import Ledger, Target
from projections.table.monoids import State
from projections.table.patch import places_from_json

# every update of a row makes a new version of it, also one that changes no value
VERSION: Final = sql.SQL("SELECT xmin::text, ctid::text FROM {} WHERE {} = %s")
DELETE: Final = sql.SQL("DELETE FROM {} WHERE {} = %s")


class PostgresSingleRows:
    """See SingleRows."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings

    def read(self, target: Target, key: str) -> StoredRow:
        # rows and ledgers are written together, so one snapshot of both is exact
        with self._transaction(target, "REPEATABLE READ") as connection:
            ledger = self._ledger(connection, target, key, ddl.READ_LEDGERS)
            version = self._version(connection, target, key)
            found = connection.execute(select_rows(self._settings.environment, target), [[table_key(key)]])
            row = found.fetchone()
        return StoredRow(None if row is None else row_of(target, row)[1], ledger.applied, version)

    def as_read(self, state: State) -> State:
        return without_empty(without_nul(state))

    def replace(self, target: Target, key: str, before: StoredRow, state: State | None) -> bool:
        stored = table_key(key)
        with self._transaction(target) as connection:
            connection.execute("SET LOCAL synchronous_commit = on")
            # as loaders do: with it, none of them has read the row and not written it yet
            ledger = self._ledger(connection, target, key, ddl.LOCK_LEDGERS)
            if not covers(ledger, before) or self._version(connection, target, key) != before.version:
                return False
            if state is None:
                connection.execute(DELETE.format(self._table(target), sql.Identifier(target.view.key_name)), [stored])
            else:
                clear = ClearColumns.of(target.view, "postgres", self._settings.environment)
                with ledgers.loadable(NAME):
                    document = rows_json(target, {stored: without_nul(state)}, clear)
                upsert = sql.SQL(ddl.upsert(self._settings.environment, target))
                connection.execute(upsert, [document])
        return True

    def _ledger(self, connection: psycopg.Connection[Any], target: Target, key: str, query: str) -> Ledger:
        partition = patch_partition(target.view, target.tag, key, self._settings.patch_partitions)
        name, number = target.id
        last = partition if query == ddl.LOCK_LEDGERS else self._table(target).as_string(connection)
        values = ([name], [number], [last])
        text = sql.SQL(query).format(schema=sql.Identifier(self._settings.environment))
        for row in connection.execute(text, values):
            found, next_offset, applied = row[-3:]
            if found == partition:
                return Ledger(next_offset, places_from_json(applied))
        raise GenerationMissing(*target.id)

    def _version(self, connection: psycopg.Connection[Any], target: Target, key: str) -> Any:
        query = VERSION.format(self._table(target), sql.Identifier(target.view.key_name))
        return connection.execute(query, [table_key(key)]).fetchone()

    def _table(self, target: Target) -> sql.Identifier:
        return sql.Identifier(self._settings.environment, table_name(*target.id))

    @contextmanager
    def _transaction(self, target: Target, isolation: str = "READ COMMITTED") -> Iterator[psycopg.Connection[Any]]:
        """A transaction that raises Headwater's errors."""
        options = f"-c timezone=UTC -c search_path={self._settings.environment}"
        try:
            with (
                closing(connect(self._settings.postgres, autocommit=True, options=options)) as connection,
                connection.transaction(),
            ):
                connection.execute(sql.SQL("SET TRANSACTION ISOLATION LEVEL " + isolation))
                yield connection
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
            raise GenerationMissing(*target.id) from error
        except psycopg.Error as error:
            problem = meaning(error)
            if problem is None:
                raise
            raise problem from error
