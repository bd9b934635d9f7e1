"""Whether a MariaDB or MySQL server can be captured as declared: every problem, with the SQL that solves it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from headwater.eventlog.capturing.column_checks import column_problems, value_problems
from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.capturing.mysql.database import CapturedServer, quoted
from headwater.eventlog.capturing.mysql.misread_values import misread_values
from headwater.eventlog.capturing.mysql.properties import databases, server_id
from headwater.eventlog.capturing.mysql.sql import COLUMNS, GRANTS, SERVER, TABLE, TABLES, UNREADABLE_COLUMNS, VARIABLES
from headwater.eventlog.capturing.mysql.types import TableColumn, type_problem
from headwater.eventlog.capturing.ports import Checked

OLDEST: Final[Mapping[str, tuple[int, int]]] = {"mariadb": (10, 5), "mysql": (8, 0)}
TITLES: Final[Mapping[str, str]] = {"mariadb": "MariaDB", "mysql": "MySQL"}
_GRANT: Final = re.compile(r"GRANT (.+?) ON (\S+) TO ")
_JSON_CHECK: Final = re.compile(r"json_valid\(`([^`]+)`\)")
_PERIOD: Final = re.compile(r"^ +PERIOD FOR (`(?:[^`]|``)+`|SYSTEM_TIME)", re.MULTILINE)
EVERYTHING: Final = "ALL PRIVILEGES"


def check_server(server: CapturedServer, registered: bool) -> Checked:
    """Check the server, the account and the tables of a source; raises SourceProblem if the server does not answer.

    registered: whether the source's connector is, so that its tables have been read.
    """
    (found,) = server.rows(SERVER)
    variables = {each["Variable_name"].lower(): each["Value"] for each in server.rows(VARIABLES)}
    version = tuple(map(int, re.findall(r"\d+", found["version"])[:2]))
    kind = "mariadb" if "mariadb" in found["version"].lower() else "mysql"
    account = account_sql(found["account"])
    problems = (
        *_version_problems(server.source.engine, kind, version),
        *_log_problems(server, kind, found, variables),
        *_right_problems(server, account),
        *(_unreadable_tables(server) if kind == "mariadb" else ()),
        *(each for table in server.source.tables for each in _table_problems(server, table, account, registered)),
    )
    return Checked(version[0], problems)


def _version_problems(engine: str, kind: str, version: tuple[int, ...]) -> Iterator[str]:
    if kind != engine:
        yield f'the server is {TITLES[kind]}: declare the source with engine="{kind}"'
    elif version < OLDEST[kind]:
        oldest = ".".join(map(str, OLDEST[kind]))
        yield f"{TITLES[kind]} {'.'.join(map(str, version))} is too old: capture from version {oldest} or later"


def _log_problems(
    server: CapturedServer, kind: str, found: Mapping[str, Any], variables: Mapping[str, str]
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
    if found["server_id"] in (0, server_id(server.names)):
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
    yield from _filter_problems(server)


def _filter_problems(server: CapturedServer) -> Iterator[str]:
    """Databases whose changes the server leaves out of its log."""
    status = server.log_status() or {}
    only, ignored = (
        {each for each in (status.get(name) or "").split(",") if each} for name in ("Binlog_Do_DB", "Binlog_Ignore_DB")
    )
    for database in databases(server.source):
        if (only and database not in only) or database in ignored:
            yield (
                f'the binary log leaves out the database "{database}": change binlog_do_db and binlog_ignore_db in the '
                "server's configuration, and restart it"
            )


def _unreadable_tables(server: CapturedServer) -> Iterator[str]:
    """Tables at whose definitions Debezium stops: it reads those of all tables of a captured database."""
    place = {"databases": databases(server.source)}
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


def _right_problems(server: CapturedServer, account: str) -> Iterator[str]:
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
        for database in databases(server.source)
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


def _table_problems(server: CapturedServer, declared: type[Captured], account: str, registered: bool) -> Iterator[str]:
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
    columns = _columns(server, place, definition["Create Table"])
    yield from column_problems(declared, columns, type_problem)
    yield from _key_type_problems(declared, columns)
    if not registered:
        yield from value_problems(declared, misread_values(server, declared))


def _key_type_problems(declared: type[Captured], columns: Mapping[str, TableColumn]) -> Iterator[str]:
    """Types of which Debezium writes a text in a snapshot, and another one in a change: a row would have two keys."""
    for name in declared.key:
        if name in columns and columns[name].shown.startswith("timestamp("):
            shown = columns[name].shown
            yield (
                f'column "{name}" of table "{declared.table}" is {shown}, whose texts in a snapshot differ from those '
                f"in changes, so that a row would have two keys: declare another key, or run ALTER TABLE "
                f"{declared.table} MODIFY {name} {shown.replace('timestamp', 'datetime')} NOT NULL"
            )


def _columns(server: CapturedServer, place: Mapping[str, str], definition: str) -> dict[str, TableColumn]:
    """The columns of a table; in MariaDB, JSON is a text with a check, which its definition has."""
    documents = set(_JSON_CHECK.findall(definition)) if server.source.engine == "mariadb" else set()
    found = {}
    for each in server.rows(COLUMNS, place):
        kind = "json" if each["name"] in documents else each["type"].lower()
        shown = each["shown"].lower() if kind != "enum" else each["shown"]
        found[each["name"]] = TableColumn(each["name"], kind, shown, bool(each["nullable"]), bool(each["is_virtual"]))
    return found
