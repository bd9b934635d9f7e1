"""A connection to a captured PostgreSQL database: its address, its tables, its publication and its replication slot."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headwater.eventlog.capturing.database import (
    KEEPALIVE_RETRY_S,
    KEEPALIVE_S,
    KEEPALIVES,
    Address,
    Database,
    StoredOffset,
)
from headwater.eventlog.capturing.declaring import Captured, Source
from headwater.eventlog.capturing.errors import SourceProblem
from headwater.eventlog.capturing.naming import SourceNames
from headwater.eventlog.capturing.postgres.sql import COLUMNS, PUBLICATION, SLOT, TABLE
from headwater.eventlog.capturing.postgres.types import PostgresColumn
from headwater.eventlog.errors import SettingError

FORM: Final = "a connection such as postgresql://headwater:password@db:5432/shop"
TLS: Final = ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword")
"""Parameters of libpq that Debezium takes as `database.<name>`."""
TIMEOUT_S: Final = 10
PUBLISHED: Final = "publish = 'insert, update, delete', publish_via_partition_root = true"
GENERATED: Final = "publish_generated_columns = stored"
GENERATED_VERSION: Final = 18
"""From this version on, PostgreSQL refuses updates if the old row has generated columns that are not published."""


@dataclass(frozen=True, slots=True)
class PostgresAddress(Address):
    """A database and the role that captures it. tls: parameters of libpq by name, those in TLS."""

    database: str
    tls: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, variable: str, value: str) -> PostgresAddress:
        """Read the value of an environment variable; raises SettingError naming the variable, never the password."""
        if not value:
            raise SettingError(variable, "", FORM)
        try:
            parts = {name: str(part) for name, part in conninfo_to_dict(value).items()}
        except (psycopg.ProgrammingError, UnicodeError):
            raise SettingError(variable, "…", FORM) from None  # its text may have the password
        missing = [name for name in ("host", "dbname", "user") if not parts.get(name)]
        port = parts.get("port", "5432")
        if missing or "," in parts["host"] or not (port.isascii() and port.isdigit() and 0 < int(port) < 2**16):
            lacks = f", which lacks {' and '.join(missing)}" if missing else ", with one host and one port"
            raise SettingError(variable, "…", FORM + lacks)
        return cls(
            host=parts["host"],
            port=int(port),
            database=parts["dbname"],
            user=parts["user"],
            password=parts.get("password", ""),
            tls=tuple((name, parts[name]) for name in TLS if name in parts),
        )

    def for_psycopg(self) -> str:
        """The connection for psycopg, which gives up after TIMEOUT_S.

        A query fails instead of leaving out rows that a policy hides: `sweep` would delete them.
        """
        return make_conninfo(
            host=self.host,
            port=self.port,
            dbname=self.database,
            user=self.user,
            password=self.password or None,
            connect_timeout=TIMEOUT_S,
            keepalives_idle=KEEPALIVE_S,
            keepalives_interval=KEEPALIVE_RETRY_S,
            keepalives_count=KEEPALIVES,
            tcp_user_timeout=1000 * (KEEPALIVE_S + KEEPALIVES * KEEPALIVE_RETRY_S),
            application_name="headwater",
            options="-c row_security=off",
            **dict(self.tls),
        )

    def for_debezium(self) -> dict[str, str]:
        return {
            **Address.for_debezium(self),
            "database.dbname": self.database,
            **{f"database.{name}": value for name, value in self.tls},
        }


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


class PostgresConnection(Database):
    """What checks and commands ask of the database of one source."""

    def __init__(
        self,
        source: Source,
        names: SourceNames,
        offset: StoredOffset,
        address: PostgresAddress,
        connection: psycopg.Connection[dict[str, Any]],
    ) -> None:
        super().__init__(source, names, offset)
        self.address, self.connection = address, connection

    def row(self, query: str, **values: Any) -> dict[str, Any] | None:
        """The first row of a query."""
        return next(iter(self.rows(query, values)), None)

    def rows(self, query: str, values: Any = None) -> list[dict[str, Any]]:
        with self.translated():
            return self.connection.execute(query, values).fetchall()

    def columns(self, table: type[Captured]) -> dict[str, PostgresColumn]:
        schema, name = table.table.split(".")
        row = self.row(TABLE, schema=schema, name=name)
        columns = self.rows(COLUMNS, {"oid": row["oid"]}) if row else []
        return {column["name"]: PostgresColumn(**column) for column in columns}

    def slot(self) -> Slot | None:
        """The source's slot; None if it does not exist yet."""
        row = self.row(SLOT, slot=self.names.slot)
        return Slot(**row) if row else None

    def publication(self) -> Publication | None:
        """The source's publication; None if it does not exist yet."""
        row = self.row(PUBLICATION, name=self.names.slot)
        return Publication(**row) if row else None

    def is_published(self) -> bool:
        """Whether the publication has exactly the declared tables, and all of their changes."""
        publication, tables = self.publication(), self.source.tables
        if publication is None or publication.everything or publication.refuses_updates:
            return False
        has_all = all(publication.has(table.table, table.columns) for table in tables)
        return has_all and set(publication.tables) == {table.table for table in tables}

    def publication_sql(self) -> list[str]:
        """What makes the publication as declared; in one transaction, so that no change is left out."""
        name, publication = self.quoted(self.names.slot), self.publication()
        tables = ", ".join(self.quoted(table.table) for table in self.source.tables)
        version = self.connection.info.server_version // 10_000
        options = f"{PUBLISHED}, {GENERATED}" if version >= GENERATED_VERSION else PUBLISHED
        if publication is not None and not publication.everything:
            return [f"ALTER PUBLICATION {name} SET TABLE {tables}", f"ALTER PUBLICATION {name} SET ({options})"]
        create = f"CREATE PUBLICATION {name} FOR TABLE {tables} WITH ({options})"
        return [create] if publication is None else [f"DROP PUBLICATION {name}", create]

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raise an error of PostgreSQL as SourceProblem."""
        try:
            yield
        except psycopg.Error as error:
            raise SourceProblem(self.source.name, f"PostgreSQL refuses: {one_line(error)}") from error


def one_line(error: Exception) -> str:
    """The text of an error of PostgreSQL in one line."""
    return " ".join(str(error).split())
