"""Views as PostgreSQL tables: rows and ledger in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from headwater.projections.errors import Unloadable
from headwater.projections.settings import StoreSettings
from headwater.projections.stores import ledgers
from headwater.projections.stores.clear_columns import ClearColumns
from headwater.projections.stores.names import table_key, table_name
from headwater.projections.stores.postgres import ddl as postgres_ddl
from headwater.projections.stores.postgres.clear_rows import PostgresClearRows, drop_clear
from headwater.projections.stores.postgres.connection import holders_of, make_schema, retrying_locks, set_lock_limit
from headwater.projections.stores.postgres.errors import NAME
from headwater.projections.stores.postgres.publish import PlainName
from headwater.projections.stores.postgres.row_json import HasNul, without_nul
from headwater.projections.stores.postgres.rows import PostgresRows
from headwater.projections.stores.store import Batch, BulkWriter, Ledger, Target, no_fault
from headwater.projections.stores.writer import Writer
from headwater.projections.table.patch import places_to_json

# synchronous_commit: rows and ledger are lost together, and read again from `patches`: no need to wait for the disk.
# enable_seqscan: a statement that was prepared for an empty table keeps its plan until the first ANALYZE, and would
# compare each row with each key; everything here is read by key.
_OPTIONS: Final = "-c synchronous_commit=off -c enable_seqscan=off"


class PostgresStore:
    """Views in one PostgreSQL; for one thread.

    PostgreSQL's text cannot contain the character NUL: it is stored as U+FFFD, in bulk and live.

    fault: called with a name at each moment in `apply` at which a crash must do no harm; for tests.
    """

    name = "postgres"

    def __init__(self, settings: StoreSettings, fault: Callable[[str], None] = no_fault) -> None:
        self._settings, self._fault = settings, fault
        self._rows = PostgresRows(settings, _OPTIONS)
        self._client, self._sql = self._rows.client, self._rows.client.sql
        self._writer = Writer(self._rows, NAME, fault)

    def create(self, target: Target, bulk_ends: Mapping[str, int], patch_starts: Mapping[int, int]) -> None:
        self.drop(target)
        clear = self._clear(target)
        erased = clear.last_erasure() if clear else 0
        with self._client.transaction() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [self._settings.environment])
            make_schema(connection, self._settings.environment)
            connection.execute(self._sql(postgres_ddl.SCHEMA))
            connection.execute(_raw(postgres_ddl.create_table(self._settings.environment, target)))
            for partition, offset in patch_starts.items():
                applied = Jsonb(places_to_json(ledgers.initial_ledger(bulk_ends, offset).applied))
                values = (*target.id, partition, offset, applied)
                connection.execute(self._sql(postgres_ddl.CREATE_LEDGER), values)
            if clear:
                connection.execute(self._sql(postgres_ddl.CLEAR_SCHEMA))
                connection.execute(self._sql(postgres_ddl.DROP_CLEAR), target.id)
                connection.execute(self._sql(postgres_ddl.ADD_CLEAR), (*target.id, list(clear.names), erased))

    def bulk_writer(self, target: Target) -> BulkWriter:
        from headwater.projections.stores.postgres.bulk import PostgresWriter  # noqa: PLC0415 - with Arrow, for rebuilds only

        table = table_name(*target.id)
        view = target.view
        kinds = {field.name: field.type for field in view.layout.fields}
        derived = {name: (shown, view.types[name]) for name, shown in view.layout.derived.items()}
        clear = self._clear(target)
        return PostgresWriter(self._settings.postgres, self._settings.environment, table, kinds, derived, clear)

    def finish(self, target: Target, at_least: int = 0) -> Collection[str]:
        if at_least:
            with self._client.transaction(answer_s=None) as connection:
                counted = connection.execute(_raw(postgres_ddl.count_rows(self._settings.environment, target)))
                ledgers.check_rows(NAME, target, sum(number for (number,) in counted), at_least)
        clear, rows = self._clear(target), PostgresClearRows(self._settings)
        # as of its creation: once it has indexes, erasures are noted that may have come before the last rows of bulk
        made = rows.generation(target) if clear else None
        deleted = self._indexed(target)
        if made is not None and (key_ids := clear.erased_since(made.erased)):
            rows.empty(made, key_ids)
        return deleted

    def _indexed(self, target: Target) -> Collection[str]:
        try:
            self._index(target, [])
        except Unloadable as error:
            if not isinstance(error.__cause__, psycopg.errors.ProgramLimitExceeded):
                raise
            return self._index(target, postgres_ddl.without_long_rows(self._settings.environment, target))
        return ()

    def _clear(self, target: Target) -> ClearColumns:
        return ClearColumns.of(target.view, "postgres", self._settings.environment)

    def _index(self, target: Target, before: Sequence[str]) -> list[str]:
        """Build the indexes after these statements; returns the keys that they return.

        The primary key marks the generation as complete: a table without one was left by a rebuild, or restored.
        """
        schema = self._settings.environment
        statements = postgres_ddl.index_statements(schema, target)
        try:
            return self._execute_all([*before, *statements])
        except Unloadable as error:
            if not isinstance(error.__cause__, psycopg.errors.UniqueViolation):
                raise
            return self._execute_all([*before, postgres_ddl.drop_duplicates(schema, target), *statements])

    def publish(self, target: Target) -> None:
        retrying_locks(lambda: self._publish(target), lambda: self._lock_holders(target))

    def _publish(self, target: Target) -> None:
        with self._client.transaction() as connection:
            set_lock_limit(connection)
            PlainName(connection, self._settings.environment, target).publish()

    def drop(self, target: Target) -> None:
        retrying_locks(lambda: self._drop(target), lambda: self._lock_holders(target))

    def _drop(self, target: Target) -> None:
        with self._client.transaction() as connection:
            set_lock_limit(connection)
            ledger = connection.execute("SELECT to_regclass(%s)", [f"{self._settings.environment}.ledger"]).fetchone()
            if ledger is not None and ledger[0] is not None:
                values = target.id
                connection.execute(self._sql(postgres_ddl.DROP_LEDGER), values)
            drop_clear(connection, self._settings.environment, target)
            PlainName(connection, self._settings.environment, target).drop()

    def _lock_holders(self, target: Target) -> str:
        """Who holds locks on a generation's table, or on the SQL view of its plain name."""
        names = target.view.name, table_name(*target.id)
        with self._client.transaction() as connection:
            return holders_of(
                connection, [sql.Identifier(self._settings.environment, name).as_string(connection) for name in names]
            )

    def ledgers(self, target: Target) -> dict[int, Ledger]:
        (found,) = self.all_ledgers([target])
        return found

    def all_ledgers(self, targets: Sequence[Target]) -> list[dict[int, Ledger]]:
        return self._rows.all_ledgers(targets)

    def apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> None:
        # two round trips: one to lock and read the ledgers and read the rows, one for all writes; and if the rows are
        # large, one per further group of rows
        try:
            self._writer.apply(targets, batches)
        except HasNul:
            self._writer.apply(targets, {partition: _without_nul(batch) for partition, batch in batches.items()})
        self._fault("committed")

    def settle(self, *, now: bool = False) -> None:
        """Nothing to do: ledgers are written with the rows."""

    def close(self) -> None:
        self._client.close()

    def _execute_all(self, statements: Sequence[str]) -> list[str]:
        """Execute statements in one transaction; returns the keys that they return."""
        keys: list[str] = []
        with self._client.transaction(answer_s=None) as connection:  # building an index may take long
            set_lock_limit(connection)
            connection.execute("SET LOCAL synchronous_commit = on")
            for statement in statements:
                cursor = connection.execute(_raw(statement))
                keys += [key for (key,) in cursor] if cursor.description else []
        return keys


def _raw(statement: str) -> sql.SQL:
    """A statement made of checked names (`postgres_ddl`)."""
    return sql.SQL(statement)


def _without_nul(batch: Batch) -> Batch:
    patches = {
        tag: [patch._replace(key=table_key(patch.key), fields=without_nul(patch.fields)) for patch in some]
        for tag, some in batch.patches.items()
    }
    return replace(batch, patches=patches)
