"""Views as PostgreSQL tables: rows and ledger in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import islice
from typing import Any, Final

import orjson
import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from headwater.projections.errors import GenerationMissing, StoreUnavailable, Unloadable
from headwater.projections.settings import StoreSettings
from headwater.projections.stores import ledgers
from headwater.projections.stores.clear_columns import ClearColumns
from headwater.projections.stores.documents import by_key
from headwater.projections.stores.groups import Groups
from headwater.projections.stores.names import NUL, table_key, table_name
from headwater.projections.stores.postgres import ddl as postgres_ddl
from headwater.projections.stores.postgres.clear_rows import PostgresClearRows, drop_clear
from headwater.projections.stores.postgres.connection import (
    ANSWER_S,
    LimitedConnection,
    connect,
    holders_of,
    make_schema,
    retrying_locks,
    set_lock_limit,
)
from headwater.projections.stores.postgres.errors import meaning
from headwater.projections.stores.postgres.publish import PlainName
from headwater.projections.stores.postgres.row_json import changed_rows
from headwater.projections.stores.postgres.rows import row_of, select_rows
from headwater.projections.stores.postgres.text import NAME
from headwater.projections.stores.store import Batch, BulkWriter, Ledger, Target, no_fault
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import Patch, places_from_json, places_to_json
from headwater.projections.table.retraction import Retraction

# synchronous_commit: rows and ledger are lost together, and read again from `patches`: no need to wait for the disk.
# enable_seqscan: a statement that was prepared for an empty table keeps its plan until the first ANALYZE, and would
# compare each row with each key; everything here is read by key.
_OPTIONS: Final = "-c search_path={schema} -c synchronous_commit=off -c timezone=UTC -c enable_seqscan=off"


class PostgresStore:
    """Views in one PostgreSQL; for one thread.

    PostgreSQL's text cannot contain the character NUL: it is stored as U+FFFD, in bulk and live.

    fault: called with a name at each moment in `apply` at which a crash must do no harm; for tests.
    """

    name = "postgres"

    def __init__(self, settings: StoreSettings, fault: Callable[[str], None] = no_fault) -> None:
        self._settings, self._fault = settings, fault
        self._connection: LimitedConnection | None = None
        self._groups = Groups()

    def create(self, target: Target, bulk_ends: Mapping[str, int], patch_starts: Mapping[int, int]) -> None:
        self.drop(target)
        clear = self._clear(target)
        erased = clear.last_erasure() if clear else 0
        with self._transaction() as connection:
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
            with self._transaction(answer_s=None) as connection:
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
        with self._transaction() as connection:
            set_lock_limit(connection)
            PlainName(connection, self._settings.environment, target).publish()

    def drop(self, target: Target) -> None:
        retrying_locks(lambda: self._drop(target), lambda: self._lock_holders(target))

    def _drop(self, target: Target) -> None:
        with self._transaction() as connection:
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
        with self._transaction() as connection:
            return holders_of(
                connection, [sql.Identifier(self._settings.environment, name).as_string(connection) for name in names]
            )

    def ledgers(self, target: Target) -> dict[int, Ledger]:
        (found,) = self.all_ledgers([target])
        return found

    def all_ledgers(self, targets: Sequence[Target]) -> list[dict[int, Ledger]]:
        schema, found = self._settings.environment, {target.id: dict[int, Ledger]() for target in targets}
        tables = [sql.Identifier(schema, table_name(*each)).as_string() for each in found]
        values = ([name for name, _ in found], [number for _, number in found], tables)
        try:
            with self._transaction(pipelined=True) as connection:
                rows = connection.execute(self._sql(postgres_ddl.READ_LEDGERS), values).fetchall()
        except psycopg.errors.UndefinedTable:  # never used, or emptied
            rows = []
        for view, generation, partition, after, applied in rows:
            found[view, generation][partition] = Ledger(after, places_from_json(applied))
        return [found[target.id] for target in targets]

    def apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> None:
        try:
            self._apply(targets, batches)
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidColumnReference) as error:  # no primary key
            for target in targets:
                if not self.ledgers(target):
                    raise GenerationMissing(*target.id) from error
            raise

    def _apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> None:
        by_name = {target.id: target for target in targets}
        # two round trips: one to lock and read the ledgers and read the rows, one for all writes; and if the rows are
        # large, one per further group of rows
        with self._transaction(pipelined=True) as connection:
            locked = connection.execute(
                self._sql(postgres_ddl.LOCK_LEDGERS),
                ([name for name, _ in by_name], [number for _, number in by_name], list(batches)),
            )
            keys = {name: self._first_keys(target, batches) for name, target in by_name.items()}
            selected = {name: self._select(connection, target, keys[name]) for name, target in by_name.items()}
            held: dict[tuple[str, int], dict[int, Ledger]] = {name: {} for name in by_name}
            for view, generation, partition, after, applied in locked.fetchall():
                held[view, generation][partition] = Ledger(after, places_from_json(applied))
            for name, target in by_name.items():
                ledgers.check(NAME, target, held[name], batches)
                patches = [
                    _storable(patch)
                    for partition, batch in batches.items()
                    for patch in ledgers.take_new(held[name][partition], batch, target.tag)
                ]
                if patches and target.view.layout.retraction is not None:
                    self._write_counted(connection, target, target.view.layout.retraction, patches)
                elif patches:
                    self._write_rows(connection, target, by_key(patches), keys[name], selected.pop(name))
            self._write_ledgers(connection, held)
            self._fault("ledger written")
        self._fault("committed")

    def _write_counted(
        self, connection: psycopg.Connection[Any], target: Target, retraction: Retraction, patches: Sequence[Patch]
    ) -> None:
        """Write the contributions that patches change, and their groups."""
        stored: dict[str, State] = {}
        for group in self._groups.of(target, by_key(patches)):
            stored |= (row_of(target, row) for row in self._select(connection, target, list(group)))
        groups = [_storable(patch) for patch in retraction.patches(patches, stored)]
        self._write_rows(connection, target, by_key(groups), [], ())
        for group in self._groups.of(target, by_key(patches)):
            self._write_group(connection, target, group, stored)

    def _first_keys(self, target: Target, batches: Mapping[int, Batch]) -> Sequence[str]:
        """The rows that are read together with the ledgers."""
        if target.view.layout.retraction is not None:
            return ()  # groups are known once contributions are read
        keys = {table_key(patch.key) for batch in batches.values() for patch in batch.patches.get(target.tag, ())}
        return sorted(keys)[: self._groups.rows(target)]

    def _select(
        self, connection: psycopg.Connection[Any], target: Target, keys: Sequence[str]
    ) -> Iterable[Sequence[Any]]:
        """The stored rows with these keys; nothing else writes them while the ledgers are locked."""
        if not keys:
            return ()
        return connection.execute(select_rows(self._settings.environment, target), [keys])

    def _write_rows(
        self,
        connection: psycopg.Connection[Any],
        target: Target,
        patches: Mapping[str, list[Patch]],
        keys: Sequence[str],
        found: Iterable[Sequence[Any]],
    ) -> None:
        """Write the rows that patches change, a group at a time.

        patches: by key. keys, found: the first group, and its stored rows.
        """
        # in the order of keys, so that two writers do not deadlock
        left = {key: patches[key] for key in sorted(patches)}
        while left:
            if group := {key: left.pop(key) for key in keys if key in left}:
                self._write_group(connection, target, group, dict(row_of(target, row) for row in found))
            keys = list(islice(left, self._groups.rows(target)))
            found = self._select(connection, target, keys)

    def _write_group(
        self,
        connection: psycopg.Connection[Any],
        target: Target,
        group: Mapping[str, list[Patch]],
        rows: Mapping[str, State],
    ) -> None:
        """rows: as they are stored, by key."""
        with ledgers.loadable(NAME):
            changes = [patch for patches in group.values() for patch in patches]
            document = changed_rows(target, rows, changes, self._clear(target))
        connection.execute(_raw(postgres_ddl.upsert(self._settings.environment, target)), [document])
        self._groups.note(target, len(group), len(document))
        self._fault("rows written")

    def settle(self, *, now: bool = False) -> None:
        """Nothing to do: ledgers are written with the rows."""

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _write_ledgers(
        self, connection: psycopg.Connection[Any], held: Mapping[tuple[str, int], Mapping[int, Ledger]]
    ) -> None:
        rows = [
            {
                "view": view,
                "generation": generation,
                "partition": partition,
                "next": ledger.next_offset,
                "applied": places_to_json(ledger.applied),
            }
            for (view, generation), by_partition in held.items()
            for partition, ledger in by_partition.items()
        ]
        if rows:
            connection.execute(self._sql(postgres_ddl.WRITE_LEDGERS), [orjson.dumps(rows).decode()])

    def _execute_all(self, statements: Sequence[str]) -> list[str]:
        """Execute statements in one transaction; returns the keys that they return."""
        keys: list[str] = []
        with self._transaction(answer_s=None) as connection:  # building an index may take long
            set_lock_limit(connection)
            connection.execute("SET LOCAL synchronous_commit = on")
            for statement in statements:
                cursor = connection.execute(_raw(statement))
                keys += [key for (key,) in cursor] if cursor.description else []
        return keys

    @contextmanager
    def _transaction(
        self, *, pipelined: bool = False, answer_s: float | None = ANSWER_S
    ) -> Iterator[psycopg.Connection[Any]]:
        try:
            if self._connection is None or self._connection.closed:
                options = _OPTIONS.format(schema=self._settings.environment)
                self._connection = connect(self._settings.postgres, autocommit=True, options=options)
            self._connection.answer_s = answer_s
            with self._connection.pipeline() if pipelined else nullcontext(), self._connection.transaction():
                yield self._connection
        except psycopg.Error as error:
            problem = meaning(error)
            if problem is None:
                raise
            if isinstance(problem, StoreUnavailable):
                self.close()
            raise problem from error

    def _sql(self, text: str) -> sql.Composed:
        return sql.SQL(text).format(schema=sql.Identifier(self._settings.environment))


def _raw(statement: str) -> sql.SQL:
    """A statement made of checked names (`postgres_ddl`)."""
    return sql.SQL(statement)


def _storable(patch: Patch) -> Patch:
    return patch._replace(key=table_key(patch.key)) if NUL in patch.key else patch
