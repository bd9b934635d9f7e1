"""Whether a MariaDB or MySQL server can be captured as declared: every problem, with the SQL that solves it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headwater.eventlog.capturing.columns import WORDS, Column, Hashed, Kind
from headwater.eventlog.capturing.database import Checked, column_problems, digits_problem, value_problems
from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.capturing.mysql.database import (
    COLUMNS,
    GRANTS,
    SERVER,
    TABLE,
    TABLES,
    UNREADABLE_COLUMNS,
    VARIABLES,
    BinlogConnection,
    quoted,
)

OLDEST: Final[Mapping[str, tuple[int, int]]] = {"mariadb": (10, 5), "mysql": (8, 0)}
TITLES: Final[Mapping[str, str]] = {"mariadb": "MariaDB", "mysql": "MySQL"}
_GRANT: Final = re.compile(r"GRANT (.+?) ON (\S+) TO ")
_JSON_CHECK: Final = re.compile(r"json_valid\(`([^`]+)`\)")
_PERIOD: Final = re.compile(r"^ +PERIOD FOR (`(?:[^`]|``)+`|SYSTEM_TIME)", re.MULTILINE)
EVERYTHING: Final = "ALL PRIVILEGES"
_TEXTS: Final = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
_BYTES: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
FITTING: Final[Mapping[str, frozenset[Kind]]] = {
    **dict.fromkeys(_TEXTS, frozenset({Kind.TEXT, Kind.ENUM})),
    **dict.fromkeys(("char", "varchar"), frozenset({Kind.TEXT, Kind.ENUM, Kind.UUID})),
    **dict.fromkeys(_BYTES, frozenset({Kind.BYTES})),
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint"), frozenset({Kind.INTEGER, Kind.DECIMAL})),
    **dict.fromkeys(("float", "double"), frozenset({Kind.FLOAT})),
    **dict.fromkeys(("datetime", "timestamp"), frozenset({Kind.TIMESTAMP})),
    "bit": frozenset({Kind.BYTES}),
    "decimal": frozenset({Kind.DECIMAL, Kind.FLOAT, Kind.INTEGER}),
    "year": frozenset({Kind.INTEGER}),
    "date": frozenset({Kind.DATE}),
    "time": frozenset({Kind.TIME}),
    "enum": frozenset({Kind.ENUM, Kind.TEXT}),
    "set": frozenset({Kind.TEXT}),
    "json": frozenset({Kind.JSON, Kind.ARRAY}),
}
"""By the type's name. JSON in MariaDB is a text with a check."""
SINGLE: Final[Mapping[str, frozenset[Kind]]] = {
    "tinyint(1)": frozenset({Kind.BOOLEAN, Kind.INTEGER}),
    "bit(1)": frozenset({Kind.BOOLEAN}),
}
"""By the whole type: what holds a truth value."""
INTEGERS: Final = {"tinyint": 3, "smallint": 5, "mediumint": 8, "int": 10, "bigint": 20}
"""The digits of types of integers, with a sign or without one."""
HASHABLE: Final = frozenset(_TEXTS)
_DECIMAL: Final = re.compile(r"decimal\(([0-9]+),([0-9]+)\).*")
_LABEL: Final = re.compile(r"'((?:[^']|'')*)'")


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column as the server has it.

    type: such as `int`, or `json` for what MariaDB checks to be JSON. shown: the whole type, such as
    `int(10) unsigned`. is_virtual: whether its values are computed when they are read.
    """

    name: str
    type: str
    shown: str
    nullable: bool
    is_virtual: bool


def type_problem(column: Column, found: TableColumn) -> str | None:
    """Why values of this column cannot be captured as declared, and what to declare; None if they can."""
    fits = SINGLE.get(found.shown) or FITTING.get(found.type, frozenset())
    if found.is_virtual:
        return "is a virtual generated column, which the binary log need not have: make it STORED, or leave it out"
    if not fits:
        return f"is {found.shown}, which is not captured: leave it out, or capture a generated column beside it"
    if isinstance(column.mask, Hashed) and found.type not in HASHABLE:
        return f"is {found.shown}, which Debezium does not hash: leave it out, or capture a generated text column"
    if column.kind not in fits:
        return f"is {found.shown}: declare it as {' or '.join(sorted(WORDS[each] for each in fits))}"
    labels = {label.replace("''", "'") for label in _LABEL.findall(found.shown)} if found.type == "enum" else set()
    if column.kind is Kind.ENUM and (unknown := labels - set(column.choices)):
        return f"may be {', '.join(sorted(unknown))}, which its Enum lacks: add it there"
    if found.nullable and not column.nullable:
        return "may be NULL: add | None to its type, or run ALTER TABLE {table} MODIFY {column} " + (
            f"{found.shown} NOT NULL".replace("{", "{{").replace("}", "}}")
        )
    if digits := INTEGERS.get(found.type):
        return digits_problem(column, found.shown, digits, 0)
    decimal = _DECIMAL.fullmatch(found.shown)
    return digits_problem(column, found.shown, int(decimal[1]), int(decimal[2])) if decimal else None


def check_server(server: BinlogConnection, registered: bool) -> Checked:
    """Check the server, the account and the tables of a source; raises SourceProblem if the server does not answer.

    registered: whether the source's connector is, so that its tables have been read.
    """
    (found,) = server.rows(SERVER)
    variables = {each["Variable_name"].lower(): each["Value"] for each in server.rows(VARIABLES)}
    version = tuple(map(int, re.findall(r"\d+", found["version"])[:2]))
    kind = "mariadb" if "mariadb" in found["version"].lower() else "mysql"
    account, wrong_server = account_sql(found["account"]), list[str]()
    if kind != server.source.engine:
        wrong_server.append(f'the server is {TITLES[kind]}: declare the source with engine="{kind}"')
    elif version < OLDEST[kind]:
        oldest, given = (".".join(map(str, each)) for each in (OLDEST[kind], version))
        wrong_server.append(f"{TITLES[kind]} {given} is too old: capture from version {oldest} or later")
    problems = (
        *wrong_server,
        *_log_problems(server, kind, found, variables),
        *_right_problems(server, account),
        *(_unreadable_tables(server) if kind == "mariadb" else ()),
        *(each for table in server.source.tables for each in _table_problems(server, table, account, registered)),
    )
    return Checked(version[0], problems)


def _log_problems(
    server: BinlogConnection, kind: str, found: Mapping[str, Any], variables: Mapping[str, str]
) -> Iterator[str]:
    if not found["log_bin"]:
        yield "the server writes no binary log: set log_bin and server_id in its configuration, and restart it"
        return
    for name, wanted in (("binlog_format", "ROW"), ("binlog_row_image", "FULL")):
        if found[name].upper() != wanted:
            yield (
                f"{name} is {found[name]}: run SET GLOBAL {name} = '{wanted}', write {name}={wanted} into the server's "
                "configuration, and let applications connect again, because a session keeps its setting"
            )
    if found["server_id"] in (0, server.names.server_id):
        yield f"server_id is {found['server_id']}: give the server another one in its configuration, and restart it"
    if variables.get("log_bin_compress", "OFF") == "ON":
        yield "log_bin_compress is ON, which Debezium does not read: run SET GLOBAL log_bin_compress = OFF"
    if variables.get("binlog_row_value_options"):
        yield (
            f"binlog_row_value_options is {variables['binlog_row_value_options']}, so updates lack values: run "
            "SET GLOBAL binlog_row_value_options = ''"
        )
    if kind == "mysql" and variables.get("gtid_mode", "ON") != "ON":
        yield (
            f"gtid_mode is {variables['gtid_mode']}, without which tables cannot be read again: set gtid_mode=ON and "
            "enforce_gtid_consistency=ON in the server's configuration, and restart it"
        )
    status = server.log_status() or {}
    only, ignored = (
        {each for each in (status.get(name) or "").split(",") if each} for name in ("Binlog_Do_DB", "Binlog_Ignore_DB")
    )
    for database in server.source.databases:
        if (only and database not in only) or database in ignored:
            yield (
                f'the binary log leaves out the database "{database}": change binlog_do_db and binlog_ignore_db in the '
                "server's configuration, and restart it"
            )


def _unreadable_tables(server: BinlogConnection) -> Iterator[str]:
    """Tables at whose definitions Debezium stops: it reads those of all tables of a captured database."""
    place = {"databases": server.source.databases}
    for each in server.rows(UNREADABLE_COLUMNS, place):
        name, column = each["name"], each["column"]
        what, other = ("inet6", "varchar(39)") if each["type"] == "inet6" else ("COMPRESSED", f"{each['type']} …")
        yield _unreadable(
            name, f'the column "{column}", which is {what}', f"ALTER TABLE {quoted(name)} MODIFY `{column}` {other}"
        )
    for each in server.rows(TABLES, place):
        name = each["name"]
        shown = server.try_rows(f"SHOW CREATE TABLE {quoted(name)}") or []
        for period in _PERIOD.findall(shown[0].get("Create Table", "") if shown else ""):
            yield _unreadable(name, f"the period {period}", f"ALTER TABLE {quoted(name)} DROP PERIOD FOR {period}")


def _unreadable(table: str, what: str, solution: str) -> str:
    return (
        f'table "{table}" has {what}, at which Debezium stops, whether or not the table is captured: run {solution}, '
        "or move the table to a database without captured tables"
    )


def _right_problems(server: BinlogConnection, account: str) -> Iterator[str]:
    rights = rights_of(next(iter(each.values())) for each in server.rows(GRANTS))
    everywhere = rights.get("*.*", frozenset())
    if EVERYTHING in everywhere:
        return
    lacking = [
        name
        for name, others in (("REPLICATION SLAVE", ()), ("REPLICATION CLIENT", ("BINLOG MONITOR", "SUPER")))
        if not everywhere.intersection((name, *others))
    ]
    if "RELOAD" not in everywhere and not all(
        {"LOCK TABLES", EVERYTHING} & (everywhere | rights.get(database, frozenset()))
        for database in server.source.databases
    ):
        lacking.append("RELOAD")
    if lacking:
        names = ", ".join(lacking)
        yield f"account {account} lacks {names}: run GRANT {names} ON *.* TO {account}"


def rights_of(grants: Iterable[str]) -> dict[str, frozenset[str]]:
    """The rights in the lines of SHOW GRANTS, by `*.*`, the name of a database, or that of a table."""
    found: dict[str, frozenset[str]] = {}
    for line in grants:
        if match := _GRANT.match(line):
            scope = match[2].replace("`", "").replace("\\_", "_")
            scope = scope if scope == "*.*" else scope.removesuffix(".*")
            found[scope] = found.get(scope, frozenset()) | frozenset(match[1].upper().split(", "))
    return found


def account_sql(account: str) -> str:
    """An account as SQL writes it: `'capture'@'%'`."""
    user, _, host = account.rpartition("@")
    return f"'{user}'@'{host}'"


def _table_problems(
    server: BinlogConnection, declared: type[Captured], account: str, registered: bool
) -> Iterator[str]:
    schema, name = declared.table.split(".")
    place = {"schema": schema, "name": name}
    found = server.rows(TABLE, place)
    if not found:
        yield (
            f'there is no table "{declared.table}", or account {account} may not see it: correct the declaration of '
            f"{declared.__name__}, or run GRANT SELECT ON {declared.table} TO {account}"
        )
        return
    if found[0]["kind"] == "SYSTEM VERSIONED":
        yield (
            f'table "{declared.table}" is system-versioned, and its connector stops at the first update: run ALTER '
            f"TABLE {quoted(declared.table)} DROP SYSTEM VERSIONING, or leave it out"
        )
        return
    if found[0]["kind"] != "BASE TABLE":
        yield f'"{declared.table}" is not a table: capture the tables behind it'
        return
    if server.try_rows(f"SELECT * FROM {quoted(declared.table)} LIMIT 0") is None:  # noqa: S608 - a declared name
        yield f'account {account} may not read "{declared.table}": run GRANT SELECT ON {declared.table} TO {account}'
        return
    (definition,) = server.rows(f"SHOW CREATE TABLE {quoted(declared.table)}")
    # in MariaDB, JSON is a text with a check
    documents = _JSON_CHECK.findall(definition["Create Table"]) if server.source.engine == "mariadb" else []
    columns = {}
    for each in server.rows(COLUMNS, place):
        kind = "json" if each["name"] in documents else each["type"].lower()
        shown = each["shown"].lower() if kind != "enum" else each["shown"]
        columns[each["name"]] = TableColumn(each["name"], kind, shown, bool(each["nullable"]), bool(each["is_virtual"]))
    yield from column_problems(declared, columns, type_problem)
    for name in declared.key:
        # Debezium writes another text of them in a snapshot than in a change
        if name in columns and columns[name].shown.startswith("timestamp("):
            shown = columns[name].shown
            yield (
                f'column "{name}" of table "{declared.table}" is {shown}, whose texts in a snapshot differ from those '
                f"in changes, so that a row would have two keys: declare another key, or run ALTER TABLE "
                f"{declared.table} MODIFY {name} {shown.replace('timestamp', 'datetime')} NOT NULL"
            )
    if not registered:
        yield from value_problems(declared, server.misread_values(declared))
