"""Whether a MariaDB or MySQL server can be captured as declared: every problem, with the SQL that solves it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from headwater.eventlog.capturing.database import Checked, column_problems, value_problems
from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.capturing.mysql.database import (
    GRANTS,
    SERVER,
    TABLE,
    TABLES,
    UNREADABLE_COLUMNS,
    VARIABLES,
    BinlogConnection,
)

OLDEST: Final[Mapping[str, tuple[int, int]]] = {"mariadb": (10, 5), "mysql": (8, 0)}
LOSSLESS: Final = (("binlog_format", "ROW"), ("binlog_row_image", "FULL"))
"""Settings with which the log has every change, with all values."""
TITLES: Final[Mapping[str, str]] = {"mariadb": "MariaDB", "mysql": "MySQL"}
_GRANT: Final = re.compile(r"GRANT (.+?) ON (\S+) TO ")
_PERIOD: Final = re.compile(r"^ +PERIOD FOR (`(?:[^`]|``)+`|SYSTEM_TIME)", re.MULTILINE)
EVERYTHING: Final = "ALL PRIVILEGES"


def check_server(server: BinlogConnection, registered: bool) -> Checked:
    """Check the server, the account and the tables of a source; raises SourceProblem if the server does not answer.

    registered: whether the source's connector is, so that its tables have been read.
    """
    (server_row,) = server.rows(SERVER)
    variables = {row["Variable_name"].lower(): row["Value"] for row in server.rows(VARIABLES)}
    version = tuple(map(int, re.findall(r"\d+", server_row["version"])[:2]))
    kind = "mariadb" if "mariadb" in server_row["version"].lower() else "mysql"
    account, wrong_server = account_sql(server_row["account"]), list[str]()
    if kind != server.source.engine:
        wrong_server.append(f'the server is {TITLES[kind]}: declare the source with engine="{kind}"')
    elif version < OLDEST[kind]:
        oldest, given = (".".join(map(str, numbers)) for numbers in (OLDEST[kind], version))
        wrong_server.append(f"{TITLES[kind]} {given} is too old: capture from version {oldest} or later")
    problems = (
        *wrong_server,
        *_log_problems(server, kind, server_row, variables),
        *_right_problems(server, account),
        *(_unreadable_tables(server) if kind == "mariadb" else ()),
        *(problem for table in server.source.tables for problem in _table_problems(server, table, account, registered)),
    )
    return Checked(version[0], problems)


def _log_problems(
    server: BinlogConnection, kind: str, server_row: Mapping[str, Any], variables: Mapping[str, str]
) -> Iterator[str]:
    if not server_row["log_bin"]:
        yield "the server writes no binary log: set log_bin and server_id in its configuration, and restart it"
        return
    for name, wanted in LOSSLESS:
        if server_row[name].upper() != wanted:
            yield (
                f"{name} is {server_row[name]}: run SET GLOBAL {name} = '{wanted}', write {name}={wanted} into the "
                "server's configuration, and let applications connect again, because a session keeps its setting"
            )
    if server_row["server_id"] in (0, server.names.server_id):
        number = server_row["server_id"]
        yield f"server_id is {number}: give the server another one in its configuration, and restart it"
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
    for database in _left_out(server):
        yield (
            f'the binary log leaves out the database "{database}": change binlog_do_db and binlog_ignore_db in the '
            "server's configuration, and restart it"
        )


def _left_out(server: BinlogConnection) -> list[str]:
    """The captured databases whose changes are not logged."""
    status = server.log_status() or {}
    only, ignored = (
        {database for database in (status.get(name) or "").split(",") if database}
        for name in ("Binlog_Do_DB", "Binlog_Ignore_DB")
    )
    return [name for name in server.source.databases if (only and name not in only) or name in ignored]


def losing(server: BinlogConnection) -> dict[str, str]:
    """Why the log lacks changes of tables, or values in them, as a clause, by captured database."""
    (server_row,), variables = server.rows(SERVER), server.rows(VARIABLES)
    options = next(
        (variable["Value"] for variable in variables if variable["Variable_name"] == "binlog_row_value_options"), ""
    )
    settings = [f"{name} was {server_row[name]}" for name, wanted in LOSSLESS if server_row[name].upper() != wanted]
    settings += [f"binlog_row_value_options was {options}"] if options else []
    left_out = _left_out(server)
    return {
        name: f"may have changed while {' and '.join([*settings, *out])}"
        for name in server.source.databases
        if (out := ["the binary log left out its database"] if name in left_out else []) or settings
    }


def _unreadable_tables(server: BinlogConnection) -> Iterator[str]:
    """Tables at whose definitions Debezium stops: it reads those of all tables of a captured database."""
    place = {"databases": server.source.databases}
    for row in server.rows(UNREADABLE_COLUMNS, place):
        name, column = row["name"], row["column"]
        what, other = ("inet6", "varchar(39)") if row["type"] == "inet6" else ("COMPRESSED", f"{row['type']} …")
        yield _unreadable(
            name,
            f'the column "{column}", which is {what}',
            f"ALTER TABLE {server.quoted(name)} MODIFY `{column}` {other}",
        )
    for row in server.rows(TABLES, place):
        name = row["name"]
        shown = server.try_rows(f"SHOW CREATE TABLE {server.quoted(name)}") or []
        for period in _PERIOD.findall(shown[0].get("Create Table", "") if shown else ""):
            yield _unreadable(
                name, f"the period {period}", f"ALTER TABLE {server.quoted(name)} DROP PERIOD FOR {period}"
            )


def _unreadable(table: str, what: str, solution: str) -> str:
    return (
        f'table "{table}" has {what}, at which Debezium stops, whether or not the table is captured: run {solution}, '
        "or move the table to a database without captured tables"
    )


def _right_problems(server: BinlogConnection, account: str) -> Iterator[str]:
    rights = rights_of(next(iter(row.values())) for row in server.rows(GRANTS))
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
    rights: dict[str, frozenset[str]] = {}
    for line in grants:
        if match := _GRANT.match(line):
            scope = match[2].replace("`", "").replace("\\_", "_")
            scope = scope if scope == "*.*" else scope.removesuffix(".*")
            rights[scope] = rights.get(scope, frozenset()) | frozenset(match[1].upper().split(", "))
    return rights


def account_sql(account: str) -> str:
    """An account as SQL writes it: `'capture'@'%'`."""
    user, _, host = account.rpartition("@")
    return f"'{user}'@'{host}'"


def _table_problems(
    server: BinlogConnection, declared: type[Captured], account: str, registered: bool
) -> Iterator[str]:
    schema, name = declared.table.split(".")
    place = {"schema": schema, "name": name}
    table_row = server.rows(TABLE, place)
    if not table_row:
        yield (
            f'there is no table "{declared.table}", or account {account} may not see it: correct the declaration of '
            f"{declared.__name__}, or run GRANT SELECT ON {declared.table} TO {account}"
        )
        return
    if table_row[0]["kind"] == "SYSTEM VERSIONED":
        yield (
            f'table "{declared.table}" is system-versioned, and its connector stops at the first update: run ALTER '
            f"TABLE {server.quoted(declared.table)} DROP SYSTEM VERSIONING, or leave it out"
        )
        return
    if table_row[0]["kind"] != "BASE TABLE":
        yield f'"{declared.table}" is not a table: capture the tables behind it'
        return
    if server.try_rows(f"SELECT * FROM {server.quoted(declared.table)} LIMIT 0") is None:  # noqa: S608 - a declared name
        yield f'account {account} may not read "{declared.table}": run GRANT SELECT ON {declared.table} TO {account}'
        return
    columns = server.columns(declared)
    yield from column_problems(declared, columns)
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
        yield from value_problems(server, declared)
