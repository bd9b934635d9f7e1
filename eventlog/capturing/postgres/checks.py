"""Whether a PostgreSQL database can be captured as declared: every problem, with the SQL that solves it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from headwater.eventlog.capturing.database import Checked, column_problems, value_problems
from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.capturing.postgres.database import PostgresConnection, Slot
from headwater.eventlog.capturing.postgres.sql import (
    SAME_BUT_FOR_CASE,
    SERVER,
    TABLE,
    UNIQUE,
    UNKEYED,
    UNREADABLE_TYPES,
)
from headwater.eventlog.capturing.postgres.types import PostgresColumn

OLDEST_VERSION: Final = 14
"""Logical messages, which heartbeats are, reach subscribers from this version on."""
FITTING_TYPE: Final[Mapping[str, str]] = {
    "an enum without values": "run DROP TYPE {0}, or ALTER TYPE {0} ADD VALUE '…'",
    "a domain over an enum": "give its columns the enum itself as their type, and run DROP DOMAIN {0}",
}
"""What makes a type of UNREADABLE_TYPES readable, or removes it."""
FULL, DEFAULT, INDEX = "f", "d", "i"
PARTITIONED: Final = "p"


def check_database(database: PostgresConnection, registered: bool) -> Checked:
    """Check the server, the role, the tables, the publication and the slot of a source.

    registered: whether the source's connector is, so that it may hold the slot. Raises SourceProblem if the database
    does not answer.
    """
    server = database.row(SERVER)
    assert server is not None  # noqa: S101 - the role that asks is there
    slot = database.slot()
    unreadable = [
        f"type {type_row['name']} is {type_row['what']}, at which Debezium stops when it starts, whether or not a "
        f"captured table has it: {FITTING_TYPE[type_row['what']].format(type_row['name'])}"
        for type_row in database.rows(UNREADABLE_TYPES)
    ]
    tables = [_table_problems(database, table, server["role"], registered) for table in database.source.tables]
    problems = (
        *_server_problems(server, slot),
        *unreadable,
        *(problem for problems in tables for problem in problems),
        *_publication_problems(database, server),
        *_slot_problems(database, server, slot, registered),
    )
    return Checked(server["version"], problems)


def _server_problems(server: dict[str, Any], slot: Slot | None) -> Iterator[str]:
    if server["version"] < OLDEST_VERSION:
        yield f"PostgreSQL {server['version']} is too old: capture from version {OLDEST_VERSION} or later"
    if server["standby"]:
        yield "the server is a standby: name the primary"
    if server["wal_level"] != "logical":
        yield (
            f"wal_level is {server['wal_level']}: run ALTER SYSTEM SET wal_level = 'logical' as a superuser, and "
            "restart PostgreSQL"
        )
    if not server["may_replicate"]:
        yield f"role {server['role']} may not replicate: run ALTER ROLE {server['role']} REPLICATION as a superuser"
    if slot is None and server["slots"] >= server["max_slots"]:
        yield (
            f"all {server['max_slots']} replication slots are in use: drop one of pg_replication_slots that is not "
            "needed, or run ALTER SYSTEM SET max_replication_slots = … and restart PostgreSQL"
        )


def _table_problems(
    database: PostgresConnection, declared: type[Captured], role: str, registered: bool
) -> Iterator[str]:
    schema, name = declared.table.split(".")
    table_row = database.row(TABLE, schema=schema, name=name)
    if table_row is None:
        yield f'there is no table "{declared.table}": correct the declaration of {declared.__name__}, or create it'
        return
    if table_row["kind"] not in "rp":
        yield f'"{declared.table}" is not a table: capture the tables behind it'
        return
    if not table_row["may_use"]:
        yield (
            f'role {role} may not use the schema of "{declared.table}": run GRANT USAGE ON SCHEMA {schema} TO {role} '
            f"as {table_row['schema_owner']}"
        )
    if not table_row["may_select"]:
        yield (
            f'role {role} may not read "{declared.table}": run GRANT SELECT ON {declared.table} TO {role} as '
            f"{table_row['owner']}"
        )
    if table_row["heirs"]:
        without = "; ".join(f"ALTER TABLE {heir} NO INHERIT {declared.table}" for heir in table_row["heirs"])
        yield (
            f'table "{declared.table}" is inherited by {", ".join(table_row["heirs"])}, whose rows are read with it, '
            f"but whose changes are not captured: run {without}, or make it a partitioned table"
        )
    if table_row["unlogged"]:
        yield (
            f'"{declared.table}" has rows in {", ".join(table_row["unlogged"])}, whose changes are not logged, because '
            "it is UNLOGGED or a foreign table: run ALTER TABLE … SET LOGGED, or DETACH PARTITION"
        )
    if table_row["hides_rows"]:
        yield (
            f'row-level security hides rows of "{declared.table}" from role {role}, and changes of all rows would be '
            f"captured: run ALTER ROLE {role} BYPASSRLS as a superuser"
        )
    for other in database.rows(SAME_BUT_FOR_CASE, {"table": declared.table}):
        yield (
            f'table "{other["name"]}" differs from "{declared.table}" by the case of its name only, and Debezium would '
            "capture it too: rename one of them"
        )
    columns = database.columns(declared)
    yield from column_problems(declared, columns)
    yield from _key_problems(database, declared, table_row)
    # if rows exchange their keys, the log has for one of them: insert 2, delete 2. The delete is that of the row which
    # had this key before, and nothing says so. If a key is refused at once, it is deleted before it is inserted again
    if not database.rows(UNIQUE, {"oid": table_row["oid"], "key": list(declared.key)}):
        key = ", ".join(declared.key)
        yield (
            f'two rows of table "{declared.table}" can have the same key ({key}), if only within a transaction, so '
            f"that one of them would be lost: run CREATE UNIQUE INDEX ON {declared.table} ({key}); a DEFERRABLE key "
            "does not count"
        )
    for name in declared.key:
        if name in columns and columns[name].type == "timetz":  # a topic would keep one row of two
            yield (
                f'column "{name}" of table "{declared.table}" is time with time zone, so that keys which differ by '
                "their zone look alike in records: declare another key, or change the column to time"
            )
    yield from _long_value_problems(declared, table_row, columns)
    if not registered and table_row["may_use"] and table_row["may_select"]:
        yield from value_problems(database, declared)


def losing(database: PostgresConnection, declared: type[Captured]) -> str:
    """Why the log lacks changes of a table, or values in them, as a clause; empty if it has all that are captured."""
    schema, name = declared.table.split(".")
    table_row = database.row(TABLE, schema=schema, name=name)
    if table_row is None:
        return ""
    reasons = [f"was inherited by {', '.join(table_row['heirs'])}"] if table_row["heirs"] else []
    if table_row["unlogged"]:
        reasons.append(f"had rows in {', '.join(table_row['unlogged'])}, whose changes are not logged")
    if any(_key_problems(database, declared, table_row)):
        reasons.append("had a REPLICA IDENTITY, or that of a partition, without its key")
    if any(_long_value_problems(declared, table_row, database.columns(declared))):
        reasons.append("had a REPLICA IDENTITY without long values that an update leaves as they are")
    return " and ".join(reasons)


def _key_problems(database: PostgresConnection, declared: type[Captured], table_row: dict[str, Any]) -> Iterator[str]:
    """A key that the log does not have for every change would lose deletes."""
    table, primary, identity = declared.table, table_row["primary_key"], table_row["identity"]
    known = {FULL: declared.key, DEFAULT: primary, INDEX: table_row["identity_key"]}.get(identity, ())
    if not known and table_row["has_deferrable_key"]:
        yield (
            f'the primary key of table "{table}" is deferrable, so PostgreSQL refuses updates and deletes once it is '
            "captured: create the key again as NOT DEFERRABLE"
        )
    elif not known:
        yield (
            f'table "{table}" has no primary key, so PostgreSQL refuses updates once it is captured: run ALTER TABLE '
            f"{table} ADD PRIMARY KEY ({', '.join(declared.key)}), or ALTER TABLE {table} REPLICA IDENTITY FULL"
        )
    elif not set(declared.key) <= set(known):
        yield (
            f'the key of {declared.__name__} is ({", ".join(declared.key)}), but deletes in "{table}" have only '
            f"({', '.join(known)}): declare that as its key, or run ALTER TABLE {table} REPLICA IDENTITY FULL"
        )
    elif table_row["virtual_in_old_rows"]:
        yield (
            f'table "{table}" has REPLICA IDENTITY FULL and the virtual generated column '
            f'"{table_row["virtual_in_old_rows"][0]}", so PostgreSQL refuses updates once it is captured: make the '
            "column STORED or drop it, or give the table another REPLICA IDENTITY"
        )
    elif table_row["kind"] == PARTITIONED:
        values = {"oid": table_row["oid"], "key": list(declared.key)}
        if unkeyed := [row["partition"] for row in database.rows(UNKEYED, values)]:
            yield (
                f'updates and deletes in partitions of "{table}" lack its key, and PostgreSQL may refuse them once it '
                f"is captured: run {with_old_rows(unkeyed)}"
            )


def with_old_rows(tables: Iterable[str]) -> str:
    """The SQL that adds the old row to each update and delete of these tables in the log."""
    return "; ".join(f"ALTER TABLE {table} REPLICA IDENTITY FULL" for table in tables)


def _long_value_problems(
    declared: type[Captured], table_row: dict[str, Any], columns: dict[str, PostgresColumn]
) -> Iterator[str]:
    """Long values that an update leaves unchanged, and that neither the log has nor Debezium can read again."""
    if not table_row["stores_apart"] or not table_row["without_old_rows"]:
        return
    there = [(column, columns[name]) for name, column in declared.columns.items() if name in columns]
    reasons = [
        f'column "{column.name}" {reason}' for column, captured in there if (reason := captured.unfilled(column))
    ]
    if any(captured.apart for _, captured in there):
        reasons += [
            f'key column "{column.name}" or its type is found in SQL only with quotes or its schema'
            for column, captured in there
            if column.name in declared.key and not captured.unquoted
        ]
    if reasons:
        yield (
            f'table "{declared.table}" would lose long values that an update leaves unchanged ({", ".join(reasons)}): '
            f"run {with_old_rows(table_row['without_old_rows'])}"
        )


def _publication_problems(database: PostgresConnection, server: dict[str, Any]) -> Iterator[str]:
    if database.is_published():
        return
    publication, name = database.publication(), database.names.slot
    statements = database.publication_sql()
    statement = "; ".join(["BEGIN", *statements, "COMMIT"] if len(statements) > 1 else statements)
    if publication is not None and (publication.everything or not publication.owns):
        other = "all tables" if publication.everything else "not what is declared, and another owner"
        yield f"publication {name} has {other}: run {statement}, as a superuser"
        return
    foreign = []
    for table in database.source.tables:
        schema, name = table.table.split(".")
        there = database.row(TABLE, schema=schema, name=name)
        if there is not None and not there["owns"]:
            foreign.append(f"{table.table} ({there['owner']})")
    if foreign or not server["may_create"]:
        why = f"does not own {', '.join(foreign)}" if foreign else f"may not create in {server['database']}"
        act = "create" if publication is None else "alter"
        yield f"role {server['role']} {why}, so it cannot {act} the publication: run {statement}, as a superuser"


def _slot_problems(
    database: PostgresConnection, server: dict[str, Any], slot: Slot | None, registered: bool
) -> Iterator[str]:
    name = database.names.slot
    if slot is None:
        return
    drop = f"SELECT pg_drop_replication_slot('{name}')"
    if slot.plugin != "pgoutput" or slot.database != server["database"]:
        yield (
            f"replication slot {name} is another program's (plugin {slot.plugin}, database {slot.database}): use "
            f"another HEADWATER_ENVIRONMENT, or run {drop} if nobody needs it"
        )
    elif slot.active and not registered:
        yield (
            f"replication slot {name} is in use by process {slot.active_pid}, which is not this deployment's "
            f"connector: stop it, or run SELECT pg_terminate_backend({slot.active_pid})"
        )
