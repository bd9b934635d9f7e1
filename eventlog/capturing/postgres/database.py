"""A captured PostgreSQL database: its publication and its replication slot."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from headwater.eventlog.capturing.declaring import Captured, Source
from headwater.eventlog.capturing.errors import SourceProblem
from headwater.eventlog.capturing.naming import SourceNames
from headwater.eventlog.capturing.ports import Server
from headwater.eventlog.capturing.postgres.address import PostgresAddress
from headwater.eventlog.capturing.postgres.sql import COLUMNS, IDENTIFIER, PUBLICATION, SLOT, TABLE, WAL_END, WAL_LIMIT

PUBLISHED: Final = "publish = 'insert, update, delete', publish_via_partition_root = true"
GENERATED: Final = "publish_generated_columns = stored"
GENERATED_VERSION: Final = 18
"""From this version on, PostgreSQL refuses updates if the old row has generated columns that are not published."""
SLOT_FREE_S: Final = 15.0
"""How long a connector takes to release its slot."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A replication slot.

    wal_status: `reserved` or `extended` (all is there), `unreserved` (may be lost soon) or `lost`.
    invalidation: why the server gave it up; None if it did not.
    lag_bytes: of write-ahead log that has not been captured.
    retained_bytes: that the server keeps for it.
    safe_bytes: that can still be written before it is lost; None without a limit.

    Sizes are None if the slot is lost.
    """

    plugin: str
    database: str
    active: bool
    active_pid: int | None
    wal_status: str | None
    invalidation: str | None
    lag_bytes: int | None
    retained_bytes: int | None
    safe_bytes: int | None

    @property
    def is_lost(self) -> bool:
        """Whether the server has removed changes that were not captured."""
        return self.wal_status == "lost" or bool(self.invalidation)


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication.

    everything: of all tables.
    complete: of inserts, updates and deletes.
    refuses_updates: with it, PostgreSQL refuses updates of a table with generated columns.
    owns: may be altered.
    filtered: tables of which it leaves out rows.
    columns: that it has of each table; none before PostgreSQL 15, where it has all.
    """

    everything: bool
    complete: bool
    refuses_updates: bool
    owns: bool
    filtered: Sequence[str]
    columns: Mapping[str, Sequence[str]]
    tables: Sequence[str]

    def has(self, table: str, columns: Collection[str]) -> bool:
        """Whether it has all changes of all rows of a table, with these columns."""
        published = self.columns.get(table, columns)
        return self.complete and table in self.tables and table not in self.filtered and set(columns) <= set(published)


class CapturedDatabase:
    """A connection to the database of one source. Its methods raise SourceProblem."""

    def __init__(
        self,
        source: Source,
        names: SourceNames,
        address: PostgresAddress,
        connection: psycopg.Connection[dict[str, Any]],
    ) -> None:
        self.source = source
        self.names = names
        self.address = address
        self._connection = connection

    def row(self, query: str, **values: Any) -> dict[str, Any] | None:
        """The first row of a query."""
        with self._translated():
            return self._connection.execute(query, values).fetchone()

    def rows(self, query: str | sql.Composed, values: Mapping[str, Any] | Sequence[Any]) -> list[dict[str, Any]]:
        """The rows of a query."""
        with self._translated():
            return self._connection.execute(query, values).fetchall()

    def text(self, composed: sql.Composed) -> str:
        """SQL as text, with names and values quoted for this database."""
        return composed.as_string(self._connection)

    def quoted(self, table: type[Captured]) -> str:
        """The table's name in SQL."""
        return self.text(sql.SQL("{}").format(sql.Identifier(*table.table.split("."))))

    def columns(self, table: type[Captured]) -> dict[str, dict[str, Any]]:
        """The columns of a table by name, as COLUMNS describes them."""
        schema, name = table.table.split(".")
        found = self.row(TABLE, schema=schema, name=name)
        columns = self.rows(COLUMNS, {"oid": found["oid"]}) if found else []
        return {each["name"]: each for each in columns}

    def column_types(self, table: type[Captured]) -> dict[str, str]:
        """The type of each column of a table, as SQL writes it."""
        return {name: each["shown"] for name, each in self.columns(table).items()}

    def wal_position(self) -> int:
        """Where the write-ahead log ends, in bytes; 0 on a standby, whose log is another server's."""
        found = self.row(WAL_END)
        return int(found["lsn"] or 0) if found else 0

    def identity(self) -> Server | None:
        """Which server it is; None if the role may not ask."""
        may_ask = self.row("SELECT has_function_privilege('pg_control_system()', 'EXECUTE') AS may")
        found = self.row(IDENTIFIER) if may_ask and may_ask["may"] else None
        return Server(**found) if found else None

    def slot(self) -> Slot | None:
        """The source's slot; None if it does not exist yet."""
        found = self.row(SLOT, slot=self.names.slot)
        return Slot(**found) if found else None

    def wal_limit_bytes(self) -> int | None:
        """How much write-ahead log the server keeps for slots; None without a limit."""
        found = self.row(WAL_LIMIT)
        return None if found is None else int(next(iter(found.values())))

    def publication(self) -> Publication | None:
        """The source's publication; None if it does not exist yet."""
        found = self.row(PUBLICATION, name=self.names.slot)
        return Publication(**found) if found else None

    def is_published(self) -> bool:
        """Whether the publication has exactly the declared tables."""
        found = self.publication()
        if found is None or found.everything or found.refuses_updates or self.unpublished():
            return False
        return set(found.tables) == {table.table for table in self.source.tables}

    def unpublished(self) -> list[str]:
        """Declared tables of which the publication leaves out changes; empty if there is none."""
        found = self.publication()
        if found is None:
            return []
        return [table.table for table in self.source.tables if not found.has(table.table, table.columns)]

    def publish(self) -> None:
        """Create the publication, or give it exactly the declared tables."""
        if self.is_published():
            return
        with self._connection.transaction():
            for statement in self._publication_statements():
                self._execute(statement)

    def publication_sql(self) -> str:
        """What `publish` does, for somebody with the right to run it: a transaction, so that no change is left out."""
        statements = [self.text(each) for each in self._publication_statements()]
        return "; ".join(["BEGIN", *statements, "COMMIT"] if len(statements) > 1 else statements)

    def drop_publication(self) -> None:
        """Drop the publication."""
        self._execute(sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(self.names.slot)))

    def drop_slot(self) -> bool:
        """Drop the slot once its connector has released it; False if there is none."""
        if self.slot() is None:
            return False
        with self._translated():
            for attempt in Retrying(
                retry=retry_if_exception_type(psycopg.errors.ObjectInUse),
                stop=stop_after_delay(SLOT_FREE_S),
                wait=wait_fixed(0.2),
                reraise=True,
            ):
                with attempt:
                    self._connection.execute("SELECT pg_drop_replication_slot(%s)", (self.names.slot,))
        return True

    def _tables(self) -> sql.Composed:
        return sql.SQL(", ").join(sql.Identifier(*table.table.split(".")) for table in self.source.tables)

    def _publication_statements(self) -> list[sql.Composed]:
        """What makes the publication as declared."""
        name, found = sql.Identifier(self.names.slot), self.publication()
        version = self._connection.info.server_version // 10_000
        options = sql.SQL(f"{PUBLISHED}, {GENERATED}" if version >= GENERATED_VERSION else PUBLISHED)
        if found is not None and not found.everything:
            return [
                sql.SQL("ALTER PUBLICATION {} SET TABLE {}").format(name, self._tables()),
                sql.SQL("ALTER PUBLICATION {} SET ({})").format(name, options),
            ]
        drop = [] if found is None else [sql.SQL("DROP PUBLICATION {}").format(name)]
        create = sql.SQL("CREATE PUBLICATION {} FOR TABLE {} WITH ({})")
        return [*drop, create.format(name, self._tables(), options)]

    def _execute(self, statement: sql.Composed) -> None:
        with self._translated():
            self._connection.execute(statement)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise SourceProblem(self.source.name, f"PostgreSQL refuses: {one_line(error)}") from error


@contextmanager
def open_database(source: Source, names: SourceNames, address: PostgresAddress) -> Iterator[CapturedDatabase]:
    """Connect to the database of a source; raises SourceProblem with what helps if that fails."""
    try:
        connection = psycopg.connect(address.for_psycopg(), autocommit=True, row_factory=dict_row)
    except psycopg.OperationalError as error:
        raise SourceProblem(source.name, _refusal(source, address, one_line(error))) from error
    try:
        with connection:
            yield CapturedDatabase(source, names, address, connection)
    except psycopg.Error as error:  # the connection was lost before its end
        raise SourceProblem(source.name, f"PostgreSQL refuses: {one_line(error)}") from error


ADVICE: Final[Mapping[str, str]] = {
    "password": "set the role's password in {variable}; to change it: ALTER ROLE {role} PASSWORD '…'",
    'role "': "CREATE ROLE {role} LOGIN REPLICATION PASSWORD '…'",
    'database "': "name an existing database in {variable}",
    "pg_hba.conf": "allow it in pg_hba.conf: host {database} {role} <address> scram-sha-256",
    "is not permitted to log in": "ALTER ROLE {role} LOGIN",
    "too many": "raise max_connections, or end connections",
}


def _refusal(source: Source, address: PostgresAddress, reason: str) -> str:
    """Why the server refuses a connection, with the setting or the SQL that helps."""
    advice = next(
        (each for words, each in ADVICE.items() if words in reason), "start the server, or correct {variable}"
    )
    help_text = advice.format(variable=source.database, role=address.user, database=address.database)
    return f"cannot connect to {address.host}:{address.port} as {address.user} ({reason}): {help_text}"


def one_line(error: Exception) -> str:
    """The text of an error of PostgreSQL in one line."""
    return " ".join(str(error).split())
