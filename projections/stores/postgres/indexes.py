"""Indexes that the declaration of a view got after its table was built."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Final, NamedTuple

from psycopg import sql

from headwater.projections.settings import StoreSettings
from headwater.projections.stores.names import table_name
from headwater.projections.stores.postgres.connection import LimitedConnection, connected
from headwater.projections.stores.postgres.ddl import (
    index_definition,
    indexes_of,
    sealed_definition,
    sealed_name,
    sealed_texts,
)
from headwater.projections.stores.store import Target

# indoption: 1 is DESC, 2 is NULLS FIRST; `-` as in a declaration
FOUND: Final = """
SELECT class.relname, index.indisvalid, array(
    SELECT CASE index.indoption[place] WHEN 0 THEN '' WHEN 1 THEN '-' ELSE '?' END || attribute.attname
    FROM generate_subscripts(index.indkey, 1) AS place
    JOIN pg_attribute AS attribute ON (attribute.attrelid, attribute.attnum) = (index.indrelid, index.indkey[place])
    ORDER BY place
)
FROM pg_index AS index JOIN pg_class AS class ON class.oid = index.indexrelid
WHERE index.indrelid = to_regclass(%s) AND NOT index.indisprimary AND index.indpred IS NULL AND index.indexprs IS NULL
"""
# of an index by its name: whether it was built to its end
NAMED: Final = """
SELECT index.indisvalid FROM pg_index AS index JOIN pg_class AS class ON class.oid = index.indexrelid
WHERE index.indrelid = to_regclass(%s) AND class.relname = %s
"""
SEALED: Final = "index by persons"
LOCK: Final = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"


class _Found(NamedTuple):
    """An index of a table. is_valid: whether it was built to its end."""

    name: str
    is_valid: bool
    columns: list[str]


def missing_indexes(settings: StoreSettings, target: Target) -> Sequence[str]:
    """The indexes that a view declares and a generation lacks; raises StoreUnavailable."""
    if not _has_any(target):
        return []
    with _connected(settings, target) as table:
        missing = [_shown(columns) for columns in _missing(_found(table), target)]
        return missing if _is_sealed_valid(table, target) else [*missing, SEALED]


def add_indexes(settings: StoreSettings, target: Target) -> Sequence[str]:
    """Create them while the table is read and written, and return them.

    One whose creation was broken off is dropped and created again. Those that the view no longer declares stay until
    its next rebuild: code of an earlier deployment may use them. If another process is at it, nothing is done. Raises
    StoreUnavailable, and Unloadable if a row is too long for an index.
    """
    if not _has_any(target):
        return []
    with _connected(settings, target) as table:
        if not _locked(table):
            return []
        found = _found(table)
        missing = _missing(found, target)
        for each in found:
            if not each.is_valid and each.columns in missing:
                table.execute("DROP INDEX CONCURRENTLY {}", sql.Identifier(settings.environment, each.name))
        taken = {each.name for each in found}
        names = (name for number in count() if (name := f"{table.name}_i{number}") not in taken)
        for columns, name in zip(missing, names, strict=False):
            table.execute(f"CREATE INDEX CONCURRENTLY {index_definition(settings.environment, target, name, columns)}")
        return [*map(_shown, missing), *_with_sealed(table, settings.environment, target)]


class _Table(NamedTuple):
    """The table of a generation. place: its name with its schema, quoted."""

    connection: LimitedConnection
    name: str
    place: str

    def execute(self, statement: str, *names: sql.Identifier) -> None:
        self.connection.execute(sql.SQL(statement).format(*names) if names else sql.SQL(statement))


@contextmanager
def _connected(settings: StoreSettings, target: Target) -> Iterator[_Table]:
    name = table_name(*target.id)
    # creating an index may take as long as reading the table
    with connected(settings, autocommit=True, answer_s=None) as connection:
        yield _Table(connection, name, sql.Identifier(settings.environment, name).as_string())


def _found(table: _Table) -> list[_Found]:
    return [_Found(*row) for row in table.connection.execute(FOUND, [table.place])]


def _missing(found: Sequence[_Found], target: Target) -> list[list[str]]:
    there = [each.columns for each in found if each.is_valid]
    return [list(columns) for columns in indexes_of(target) if list(columns) not in there]


def _has_any(target: Target) -> bool:
    return bool(indexes_of(target) or sealed_texts(target))


def _is_sealed_valid(table: _Table, target: Target) -> bool | None:
    """Whether the index by sealed texts was built to its end, or is not declared; None if it is not there."""
    if not sealed_texts(target):
        return True
    found = table.connection.execute(NAMED, [table.place, sealed_name(target)]).fetchone()
    return None if found is None else bool(found[0])


def _with_sealed(table: _Table, schema: str, target: Target) -> Sequence[str]:
    """Create the index by sealed texts, if it is declared and missing."""
    texts, is_valid = sealed_texts(target), _is_sealed_valid(table, target)
    if not texts or is_valid:
        return []
    if is_valid is False:
        table.execute("DROP INDEX CONCURRENTLY {}", sql.Identifier(schema, sealed_name(target)))
    table.execute(f"CREATE INDEX CONCURRENTLY {sealed_definition(schema, target, texts)}")
    return [SEALED]


def _shown(columns: Sequence[str]) -> str:
    return f"index ({', '.join(columns)})"


def _locked(table: _Table) -> bool:
    """Whether this connection has the lock on the indexes of a table; it is released when the connection closes."""
    row = table.connection.execute(LOCK, [f"indexes of {table.place}"]).fetchone()
    return row is not None and bool(row[0])
