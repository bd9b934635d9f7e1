"""What changes in PostgreSQL while a generation is read: its SQL view under the alias, indexes, and expiry."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import sql
from psycopg.rows import class_row

from headwater.projections.errors import CannotPublish, StillUsed, StoreUnavailable
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.names import table_name
from headwater.projections.stores.postgres.client import LACKED, NAME, connected, meaning
from headwater.projections.stores.postgres.schema import (
    index_definition,
    indexes_of,
    publish_query,
    sealed_definition,
    sealed_name,
    sealed_texts,
)
from headwater.projections.stores.store import Target

# owner: null if it is our role, which creates the view. options: as in CREATE VIEW … WITH (…)
FOUND = """
SELECT pg_class.oid, nullif(pg_get_userbyid(relowner), current_user) AS owner, relowner AS owner_oid,
       coalesce(reloptions, '{{}}') AS options
FROM pg_class WHERE oid = to_regclass({name})
"""

# privileges of others than the owner on the view (column: null) and on single columns; grantee null: everyone
PRIVILEGES = """
SELECT attname AS column, rolname AS grantee, privilege_type AS privilege, is_grantable AS grantable
FROM (
    SELECT NULL::name AS attname, (aclexplode(relacl)).* FROM pg_class WHERE oid = %(oid)s
    UNION ALL
    SELECT attname, (aclexplode(attacl)).* FROM pg_attribute WHERE attrelid = %(oid)s AND NOT attisdropped
) AS granted
LEFT JOIN pg_roles ON pg_roles.oid = grantee
WHERE grantee <> %(owner)s
"""

COLUMNS = "SELECT attname FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped"

DEFINITION = "SELECT pg_get_viewdef(to_regclass({name}))"

# whether the SQL view is made from this table
READS = """
SELECT EXISTS (
    SELECT FROM pg_rewrite
    JOIN pg_depend ON classid = 'pg_rewrite'::regclass AND objid = pg_rewrite.oid
    WHERE ev_class = to_regclass({name}) AND refclassid = 'pg_class'::regclass AND refobjid = to_regclass({table})
)
"""

# indoption: 1 is DESC, 2 is NULLS FIRST; `-` as in a declaration
DECLARABLE: Final = """
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


class Found(NamedTuple):
    """The existing SQL view."""

    oid: int
    owner: str | None
    owner_oid: int
    options: Sequence[str]


class Privilege(NamedTuple):
    """One privilege of one role; of everyone, if `grantee` is None; on the whole view, if `column` is None."""

    column: str | None
    grantee: str | None
    privilege: str
    grantable: bool


class PlainName:
    """The SQL view of one view in `schema`; over a connection in a transaction."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str, target: Target) -> None:
        self._connection, self._target = connection, target
        self._schema, self._name = schema, sql.Identifier(schema, target.view.name)
        self._table = sql.Identifier(schema, table_name(*target.id))

    def publish(self) -> None:
        """Let the view show the target. Its grants, owner, options and dependent objects stay.

        Raises CannotPublish if its columns change and other objects depend on it, or if the server refuses.
        """
        view = self._target.view.name
        try:
            publication = self._found()
            try:
                with self._connection.transaction():
                    self._create("CREATE OR REPLACE VIEW", publication)
            except psycopg.errors.InvalidTableDefinition:
                if publication is None:
                    raise
                self._create_anew(publication)
            if publication is not None and publication.owner is not None:
                # a view reads its table with the rights of its owner
                self._run("GRANT SELECT ON {} TO {}", self._table, sql.Identifier(publication.owner))
        except psycopg.errors.DependentObjectsStillExist as error:
            remedy = f"the columns changed, so drop these, run `replay publish {view}`, and create them again"
            raise CannotPublish(NAME, view, f"{error.diag.message_detail}; {remedy}") from error
        except psycopg.Error as error:
            # a right that is lacking here concerns this view, such as one with another owner
            if error.sqlstate != LACKED and isinstance(meaning(error), StoreUnavailable):
                raise
            raise CannotPublish(NAME, view, str(error).strip()) from error

    def drop(self) -> None:
        """Drop the target's table, and the SQL view if it shows it; raises StillUsed if users' objects depend on it."""
        view, generation = self._target.view.name, self._target.generation
        try:
            if self.leads_to_target():
                self._run("DROP VIEW {}", self._name)
            self._run("DROP TABLE IF EXISTS {}", self._table)
        except psycopg.errors.DependentObjectsStillExist as error:
            raise StillUsed(NAME, view, generation, error.diag.message_detail or str(error)) from error

    def _create_anew(self, before: Found) -> None:
        """If the columns differ, drop the view and create it again in one transaction, so that it is never missing."""
        privileges = self._privileges(before)
        self._run("DROP VIEW {}", self._name)
        self._create("CREATE VIEW", before)
        publication = self._found()
        if publication is None:
            return
        columns = {name for (name,) in self._connection.execute(COLUMNS, [publication.oid])}
        for privilege in self._privileges(
            publication
        ):  # privileges of the schema's defaults that were revoked, or never granted
            self._run("REVOKE ALL ON {} FROM {}", self._name, _role(privilege.grantee))
        for privilege in privileges:
            if privilege.column is None or privilege.column in columns:
                column = sql.SQL(" ({})").format(sql.Identifier(privilege.column)) if privilege.column else sql.SQL("")
                option = sql.SQL(" WITH GRANT OPTION" if privilege.grantable else "")
                what = sql.SQL(privilege.privilege) + column
                self._run("GRANT {} ON {} TO {}{}", what, self._name, _role(privilege.grantee), option)
        if before.owner is not None:  # last, because only the owner grants
            self._run("ALTER VIEW {} OWNER TO {}", self._name, sql.Identifier(before.owner))

    def _create(self, command: str, publication: Found | None) -> None:
        options = f" WITH ({', '.join(publication.options)})" if publication and publication.options else ""
        query = publish_query(self._schema, self._target)
        self._connection.execute(
            sql.SQL("{} {}{} AS {}").format(sql.SQL(command), self._name, sql.SQL(options), sql.SQL(query))
        )

    def definition(self) -> str:
        """Its query, as the catalog has it; empty if there is no view."""
        row = self._connection.execute(sql.SQL(DEFINITION).format(name=self._literal(self._name))).fetchone()
        return row[0] or "" if row is not None else ""

    def _found(self) -> Found | None:
        with self._connection.cursor(row_factory=class_row(Found)) as cursor:
            return cursor.execute(sql.SQL(FOUND).format(name=self._literal(self._name))).fetchone()

    def _privileges(self, view: Found) -> list[Privilege]:
        with self._connection.cursor(row_factory=class_row(Privilege)) as cursor:
            return cursor.execute(PRIVILEGES, {"oid": view.oid, "owner": view.owner_oid}).fetchall()

    def leads_to_target(self) -> bool:
        """Whether the view is there, and shows the target."""
        names = {"name": self._literal(self._name), "table": self._literal(self._table)}
        row = self._connection.execute(sql.SQL(READS).format(**names)).fetchone()
        return row is not None and bool(row[0])

    def _literal(self, name: sql.Identifier) -> sql.Literal:
        """A quoted name as the text argument of `to_regclass`."""
        return sql.Literal(name.as_string(self._connection))

    def _run(self, statement: str, *parts: sql.Composable) -> None:
        self._connection.execute(sql.SQL(statement).format(*parts))


def _role(name: str | None) -> sql.Composable:
    return sql.SQL("PUBLIC") if name is None else sql.Identifier(name)


def lacking_indexes(settings: StoreSettings, target: Target, *, add: bool = False) -> Sequence[str]:
    """The indexes that a view declares and a generation lacks.

    add: create them while the table is read and written. One whose creation was broken off is dropped and created
    again. Those that the view no longer declares stay until its next rebuild: code of an earlier deployment may use
    them. If another process is at it, nothing is done.

    Raises StoreUnavailable, and Unloadable if a row is too long for an index.
    """
    declared, texts = [list(columns) for columns in indexes_of(target)], sealed_texts(target)
    if not declared and not texts:
        return []
    schema, table = settings.environment, table_name(*target.id)
    quoted_table = sql.Identifier(schema, table).as_string()
    # creating an index may take as long as reading the table
    with connected(settings, autocommit=True, answer_s=None) as connection:
        # released when the connection closes
        if add and connection.execute(LOCK, [f"indexes of {quoted_table}"]).fetchone() != (True,):
            return []
        rows = connection.execute(DECLARABLE, [quoted_table]).fetchall()
        valid = [columns for _, is_valid, columns in rows if is_valid]
        missing = [columns for columns in declared if columns not in valid]
        broken = [name for name, is_valid, columns in rows if not is_valid and columns in missing]
        taken = {name for name, *_ in rows}
        names = (name for number in count() if (name := f"{table}_i{number}") not in taken)
        definitions = [
            index_definition(schema, target, name, fields) for fields, name in zip(missing, names, strict=False)
        ]
        lacking = [f"index ({', '.join(columns)})" for columns in missing]
        if texts:
            by_persons = connection.execute(NAMED, [quoted_table, sealed_name(target)]).fetchone()
            if by_persons != (True,):
                lacking.append(SEALED)
                definitions.append(sealed_definition(schema, target, texts))
                broken += [] if by_persons is None else [sealed_name(target)]
        if add:
            for name in broken:
                connection.execute(sql.SQL("DROP INDEX CONCURRENTLY {}").format(sql.Identifier(schema, name)))
            for definition in definitions:
                connection.execute(sql.SQL(f"CREATE INDEX CONCURRENTLY {definition}"))
        return lacking
