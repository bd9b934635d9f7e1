"""Views as PostgreSQL tables: rows and ledger in one transaction, and the columns that are in plaintext."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.json import Jsonb

from headwater.eventlog.access import Program, account
from headwater.projections.errors import GenerationMissing, Unloadable
from headwater.projections.settings import StoreSettings
from headwater.projections.stores import ledgers
from headwater.projections.stores.backend import Backend, ClearGeneration, clear_comparison
from headwater.projections.stores.clear_columns import KEYS, ClearColumns
from headwater.projections.stores.names import table_key, table_name
from headwater.projections.stores.postgres import schema as ddl
from headwater.projections.stores.postgres.client import (
    ANSWER_S,
    NAME,
    Client,
    connected,
    holders_of,
    make_schema,
    retrying_locks,
    set_lock_limit,
)
from headwater.projections.stores.postgres.online_schema import PlainName, lacking_indexes
from headwater.projections.stores.postgres.rows import ClearPostgresRows, HasNul, PostgresRows, without_nul
from headwater.projections.stores.store import Batch, BulkWriter, Target, ViewStore, no_fault
from headwater.projections.stores.writer import StoredRows, Writer
from headwater.projections.table.patch import places_to_json

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
# the id of the key is the third part of a ciphertext
VALUE: Final = "{clear} = CASE WHEN split_part({sealed}, ':', 3) = ANY(%(ids)s::text[]) THEN NULL ELSE {clear} END"

# synchronous_commit: rows and ledger are lost together, and read again from `patches`: no need to wait for the disk.
# enable_seqscan: a statement that was prepared for an empty table keeps its plan until the first ANALYZE, and would
# compare each row with each key; everything here is read by key.
# lock_timeout, statement_timeout: who holds a lock, or a table that cannot be read, delays the other views that long.
_OPTIONS: Final = (
    f"-c synchronous_commit=off -c enable_seqscan=off -c lock_timeout=5s -c statement_timeout={ANSWER_S:.0f}s"
)
SHOWN: Final = re.compile(r'"?(?P<column>[a-z][a-z0-9_]*)"? > [^>]*make_interval\(secs => [(\']*(?P<seconds>[0-9]+)')
"""What `not_expired` of the schema gives, as PostgreSQL writes it."""
OWNER: Final = "owner"
"""End of the name of the role that owns the tables. Nobody logs in as it; it keeps one owner for the tables that the
read side and the operator make, because only the owner of a table may drop it."""
WRITERS: Final = (Program.PROJECTIONS, Program.OPERATOR)
READER: Final = Program.API
GRANTS: Final = """\
-- Run it with psql as a superuser, in the database {shown}.
-- Then give each role a password: \\password {api}
SELECT format('CREATE ROLE %I %s', name, kind) FROM (VALUES
    ('{owner}', 'NOLOGIN'), ('{projections}', 'LOGIN'), ('{operator}', 'LOGIN'), ('{api}', 'LOGIN')
) AS wanted(name, kind) WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) \\gexec
GRANT "{owner}" TO "{projections}", "{operator}";
ALTER ROLE "{projections}" IN DATABASE {database} SET role = '{owner}';
ALTER ROLE "{operator}" IN DATABASE {database} SET role = '{owner}';
GRANT CONNECT ON DATABASE {database} TO "{projections}", "{operator}", "{api}";
CREATE SCHEMA IF NOT EXISTS "{schema}";
-- what another role has made before
SELECT format('ALTER TABLE %s OWNER TO %I', made.oid::regclass, '{owner}')
FROM pg_class AS made JOIN pg_namespace ON pg_namespace.oid = made.relnamespace
WHERE nspname = '{schema}' AND nspowner <> '{owner}'::regrole
  AND made.relowner = nspowner AND made.relkind IN ('r', 'v')
\\gexec
ALTER SCHEMA "{schema}" OWNER TO "{owner}";
GRANT USAGE ON SCHEMA "{schema}" TO "{api}";
GRANT SELECT ON ALL TABLES IN SCHEMA "{schema}" TO "{api}";
ALTER DEFAULT PRIVILEGES FOR ROLE "{owner}" IN SCHEMA "{schema}" GRANT SELECT ON TABLES TO "{api}";
"""
"""Statements for psql, which may be repeated."""
INDEXED_PER_S: Final = 500_000.0
"""Of integers five times as many, on two cores shared with the servers; of long texts fewer."""
_ROWS: Final = partial(StoredRows, PostgresRows, NAME)


class PostgresClearRows:
    """See ClearRows."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings

    def generations(self) -> Sequence[ClearGeneration]:
        with self._transaction() as connection:
            if not has_table(connection, self._settings.environment, "_clear_columns"):
                return ()
            rows = connection.execute(self._sql(GENERATIONS)).fetchall()
            generations = [
                ClearGeneration(view, number, tuple(columns), erased) for view, number, columns, erased in rows
            ]
            return [
                generation
                for generation in generations
                if has_table(connection, self._settings.environment, table_name(*generation.id))
            ]

    def count(self, of: ClearGeneration, key_ids: Collection[str]) -> int:
        with self._transaction() as connection:
            if not has_table(connection, self._settings.environment, table_name(*of.id)):  # dropped meanwhile
                return 0
            row = connection.execute(self._statement(COUNT, of), {"ids": list(key_ids)}).fetchone()
        return int(row[0]) if row else 0

    def empty(self, of: ClearGeneration, key_ids: Collection[str]) -> int:
        with self._transaction() as connection:
            if not has_table(connection, self._settings.environment, table_name(*of.id)):
                return 0
            connection.execute(self._sql(LOCK), of.id)
            return connection.execute(self._statement(EMPTY, of), {"ids": list(key_ids)}).rowcount

    def note_erased(self, of: ClearGeneration, number: int) -> None:
        with self._transaction() as connection:
            table = sql.Identifier(self._settings.environment, table_name(*of.id)).as_string(connection)
            connection.execute(self._sql(NOTE), (number, *of.id, table))

    def generation(self, target: Target) -> ClearGeneration:
        """What is known of a generation with plaintext columns."""
        with self._transaction() as connection:
            row = connection.execute(self._sql(OF_GENERATION), target.id).fetchone()
        if row is None:
            raise GenerationMissing(*target.id)
        return ClearGeneration(*target.id, tuple(row[0]), row[1])

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


class PostgresStore(PostgresRows, ViewStore):
    """Views in one PostgreSQL; for one thread.

    PostgreSQL's text cannot contain the character NUL: it is stored as U+FFFD, in bulk and live.

    fault: called with a name at each moment in `apply` at which a crash must do no harm; for tests.
    """

    name = "postgres"

    def __init__(self, settings: StoreSettings, fault: Callable[[str], None] = no_fault) -> None:
        super().__init__(settings, _OPTIONS)
        self._settings, self._fault = settings, fault
        self._writer = Writer(self, NAME, fault)

    def create(self, target: Target, bulk_ends: Mapping[str, int], patch_starts: Mapping[int, int]) -> None:
        self.drop(target)
        clear = self._clear(target)
        erased = clear.last_erasure() if clear else 0
        with self.client.transaction() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [self._environment])
            make_schema(connection, self._environment)
            connection.execute(self.client.sql(ddl.SCHEMA))
            connection.execute(sql.SQL(ddl.create_table(self._environment, target)))
            for partition, offset in patch_starts.items():
                applied = Jsonb(places_to_json(ledgers.initial_ledger(bulk_ends, offset).applied))
                values = (*target.id, partition, offset, applied)
                connection.execute(self.client.sql(ddl.CREATE_LEDGER), values)
            if clear:
                connection.execute(self.client.sql(ddl.CLEAR_SCHEMA))
                connection.execute(self.client.sql(ddl.DROP_CLEAR), target.id)
                connection.execute(self.client.sql(ddl.ADD_CLEAR), (*target.id, list(clear.names), erased))

    def bulk_writer(self, target: Target) -> BulkWriter:
        from headwater.projections.stores.postgres.bulk import PostgresWriter  # noqa: PLC0415 - with Arrow, for rebuilds only

        table = table_name(*target.id)
        view = target.view
        kinds = {field.name: field.type for field in view.layout.fields}
        derived = {name: (shown, view.types[name]) for name, shown in view.layout.derived.items()}
        clear = self._clear(target)
        return PostgresWriter(self._settings.postgres, self._environment, table, kinds, derived, clear)

    def finish(self, target: Target, at_least: int = 0) -> Collection[str]:
        if at_least:
            with self.client.transaction(answer_s=None) as connection:
                counted = connection.execute(sql.SQL(ddl.count_rows(self._environment, target)))
                ledgers.check_rows(NAME, target, sum(number for (number,) in counted), at_least)
        clear, rows = self._clear(target), PostgresClearRows(self._settings)
        # as of its creation: once it has indexes, erasures are noted that may have come before the last rows of bulk
        generation = rows.generation(target) if clear else None
        deleted = self._indexed(target)
        if generation is not None and (key_ids := clear.erased_since(generation.erased)):
            rows.empty(generation, key_ids)
        return deleted

    def _indexed(self, target: Target) -> Collection[str]:
        """Build the indexes; returns the keys of rows that were removed for them.

        The primary key marks the generation as complete: a table without one was left by a rebuild, or restored.
        """
        statements = ddl.index_statements(self._environment, target)
        shorter, unique = list[str](), list[str]()
        while True:
            try:
                return self._execute_all([*shorter, *unique, *statements])
            except Unloadable as error:
                if isinstance(error.__cause__, psycopg.errors.UniqueViolation) and not unique:
                    unique = [ddl.drop_duplicates(self._environment, target)]
                elif isinstance(error.__cause__, psycopg.errors.ProgramLimitExceeded) and not shorter:
                    shorter = ddl.without_long_rows(self._environment, target)
                else:
                    raise

    def _clear(self, target: Target) -> ClearColumns:
        return ClearColumns.of(target.view, self.name, self._environment)

    def publish(self, target: Target) -> None:
        self._change_tables(target, lambda connection: PlainName(connection, self._environment, target).publish())

    def drop(self, target: Target) -> None:
        def drop(connection: psycopg.Connection[Any]) -> None:
            for table, statement in (("ledger", ddl.DROP_LEDGER), ("_clear_columns", ddl.DROP_CLEAR)):
                if has_table(connection, self._environment, table):
                    connection.execute(self.client.sql(statement), target.id)
            PlainName(connection, self._environment, target).drop()

        self._change_tables(target, drop)

    def _change_tables(self, target: Target, change: Callable[[psycopg.Connection[Any]], None]) -> None:
        """Make a change in a transaction, again and again if others hold locks; raises StoreLocked, which says who."""

        def changed() -> None:
            with self.client.transaction() as connection:
                set_lock_limit(connection)
                change(connection)

        def holders() -> str:
            names = target.view.name, table_name(*target.id)
            with self.client.transaction() as connection:
                return holders_of(
                    connection, [sql.Identifier(self._environment, name).as_string(connection) for name in names]
                )

        retrying_locks(changed, holders)

    def apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> None:
        # two round trips: one to lock and read the ledgers and read the rows, one for all writes; and if the rows are
        # large, one per further group of rows
        try:
            self._writer.apply(targets, batches)
        except HasNul:
            fitting = dict[int, Batch]()
            for partition, batch in batches.items():
                patches = {
                    tag: [patch._replace(key=table_key(patch.key), fields=without_nul(patch.fields)) for patch in some]
                    for tag, some in batch.patches.items()
                }
                fitting[partition] = replace(batch, patches=patches)
            self._writer.apply(targets, fitting)
        self._fault("committed")

    def _execute_all(self, statements: Sequence[str]) -> list[str]:
        """Execute statements in one transaction; returns the keys that they return."""
        keys: list[str] = []
        with self.client.transaction(answer_s=None) as connection:  # building an index may take long
            set_lock_limit(connection)
            connection.execute("SET LOCAL synchronous_commit = on")
            for statement in statements:
                cursor = connection.execute(sql.SQL(statement))
                keys += [key for (key,) in cursor] if cursor.description else []
        return keys


def missing(settings: StoreSettings, target: Target) -> Sequence[str]:
    """The indexes that a generation lacks, and the expiry that its SQL view lacks; raises StoreUnavailable."""
    return [*lacking_indexes(settings, target), *other_expiry(settings, target)]


def other_expiry(settings: StoreSettings, target: Target) -> Sequence[str]:
    """What its SQL view shows rows until, if that is not what is declared; raises StoreUnavailable.

    Nothing if the alias leads elsewhere: to a later version, or nowhere yet.
    """
    with connected(settings, autocommit=False, answer_s=ANSWER_S) as connection:
        name = PlainName(connection, settings.environment, target)
        if not name.leads_to_target():
            return []
        expiry_match = SHOWN.search(name.definition())
    expiry = target.view.expiry
    declared = None if expiry is None else (expiry.column, int(expiry.after.total_seconds()))
    shown = None if expiry_match is None else (expiry_match["column"], int(expiry_match["seconds"]))
    if shown == declared:
        return []
    return ["expiry of the SQL view" if expiry is None else f"expiry of the SQL view by {expiry.column}"]


def add_missing(settings: StoreSettings, target: Target) -> Sequence[str]:
    """Add them, and return them; raises StoreUnavailable, CannotPublish and Unloadable.

    The SQL view shows rows until they expire as it is declared now; grants and users' views on it stay.
    """
    changed = other_expiry(settings, target)
    if changed:
        with closing(PostgresStore(settings)) as store:
            store.publish(target)
    return [*changed, *lacking_indexes(settings, target, add=True)]


def grants(settings: StoreSettings) -> str:
    """The roles, as a script for psql."""
    environment, address = settings.environment, conninfo_to_dict(settings.postgres)
    names = {program.value: account(environment, program) for program in (*WRITERS, READER)}
    database = sql.Identifier(str(address.get("dbname") or address.get("user") or "")).as_string()
    shown = " ".join(database.splitlines())  # a line break would end the comment
    return GRANTS.format(owner=f"{environment}_{OWNER}", schema=environment, database=database, shown=shown, **names)


BACKEND: Final = Backend(
    PostgresStore,
    _ROWS,
    missing=missing,
    add_missing=add_missing,
    added_per_s=INDEXED_PER_S,
    grants=grants,
    single_rows=_ROWS,
    clear_rows=PostgresClearRows,
    beside_rows=partial(clear_comparison, PostgresStore.name, partial(StoredRows, ClearPostgresRows, NAME)),
)
