"""A connection to a captured MariaDB or MySQL server: its address, queries, and its binary log."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

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
from headwater.eventlog.capturing.mysql.types import BinlogColumn
from headwater.eventlog.capturing.naming import SourceNames
from headwater.eventlog.errors import SettingError

if TYPE_CHECKING:
    import pymysql

TIMEOUT_S: Final = 10
TLS_MODES: Final[Mapping[str, Mapping[str, str]]] = {
    "mariadb": {"disable": "disable", "require": "trust", "verify-ca": "verify-ca", "verify-full": "verify-full"},
    "mysql": {"disable": "disabled", "require": "required", "verify-ca": "verify_ca", "verify-full": "verify_identity"},
}
"""By engine: the values of `sslmode`, which are libpq's, each with Debezium's word for it."""
OPTIONS: Final = frozenset({"sslmode", "sslrootcert"})
DENIED: Final = frozenset({1044, 1045, 1142, 1143, 1227, 1698})
"""Error codes: the account lacks a right."""
NO_TABLE: Final = 1146
NO_LOG: Final = 1381
_JSON_CHECK: Final = re.compile(r"json_valid\(`([^`]+)`\)")
UNKNOWN_SYNTAX: Final = 1064

SERVER: Final = """
-- the server, and who asks
SELECT @@version AS version, @@server_id AS server_id, CURRENT_USER() AS account, @@log_bin AS log_bin,
       @@global.binlog_format AS binlog_format, @@global.binlog_row_image AS binlog_row_image
"""

VARIABLES: Final = """
-- settings that only one of both servers has
SHOW GLOBAL VARIABLES WHERE Variable_name IN
    ('gtid_mode', 'enforce_gtid_consistency', 'log_bin_compress', 'binlog_row_value_options', 'binlog_legacy_event_pos')
"""

TABLE: Final = """
-- a table; no row if there is none of this name that the account may see
SELECT TABLE_TYPE AS kind, CREATE_TIME AS created FROM information_schema.TABLES
WHERE TABLE_SCHEMA = %(schema)s AND BINARY TABLE_NAME = %(name)s
"""

COLUMNS: Final = """
-- its columns
SELECT COLUMN_NAME AS name, DATA_TYPE AS type, COLUMN_TYPE AS shown, IS_NULLABLE = 'YES' AS nullable,
       EXTRA LIKE '%%VIRTUAL%%' AS is_virtual
FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = %(schema)s AND BINARY TABLE_NAME = %(name)s ORDER BY ORDINAL_POSITION
"""

UNREADABLE_COLUMNS: Final = """
-- columns of any table of these databases, captured or not, at whose definition Debezium's connector for MariaDB stops
SELECT CONCAT(TABLE_SCHEMA, '.', TABLE_NAME) AS name, COLUMN_NAME AS `column`, DATA_TYPE AS type
FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA IN %(databases)s
AND (DATA_TYPE = 'inet6' OR COLUMN_TYPE LIKE '%%*/' AND COLUMN_TYPE LIKE '%% COMPRESSED%%')
ORDER BY 1, ORDINAL_POSITION
"""

TABLES: Final = """
-- the tables of these databases
SELECT CONCAT(TABLE_SCHEMA, '.', TABLE_NAME) AS name FROM information_schema.TABLES
WHERE TABLE_SCHEMA IN %(databases)s AND TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') ORDER BY 1
"""

_INNODB_PARTS: Final = """
-- the numbers of a table's partitions, by the end of their names, or that of the table itself
SELECT TABLE_ID AS id, SUBSTRING(NAME, CHAR_LENGTH(SUBSTRING_INDEX(NAME, '#', 1)) + 1) AS part
FROM information_schema.{view}
WHERE BINARY SUBSTRING_INDEX(NAME, '#', 1) = CONCAT(%(schema)s, '/', %(name)s)
ORDER BY 2
"""
INNODB_PARTS: Final = {
    "mariadb": _INNODB_PARTS.format(view="INNODB_SYS_TABLES"),
    "mysql": _INNODB_PARTS.format(view="INNODB_TABLES"),
}
"""By the `engine` of a Source."""

IDENTITY: Final = """
-- which MySQL server this is, and the transactions that it has: `UUID:1-16,UUID:1-3`
SELECT @@GLOBAL.server_uuid AS identifier, @@GLOBAL.gtid_executed AS gtids
"""
VERSION: Final = "SELECT @@version AS version"
GRANTS: Final = "SHOW GRANTS"
LOGS: Final = "SHOW BINARY LOGS"
STATUS: Final = ("SHOW MASTER STATUS", "SHOW BINARY LOG STATUS")
"""Where the log ends: MySQL 8.4 has another word for it."""

HOLD: Final = """
-- one command at a time works with a connector that is stopped: the lock ends with its connection. If the machine of
-- the command is gone, the server finds that out within a minute: it is asked more often than that, see KEEP_S
SELECT GET_LOCK(CONCAT('headwater ', MD5(%(name)s)), 0) AS held
"""
HOLD_SESSION: Final = "SET SESSION wait_timeout = {seconds}"
"""How long the server keeps the connection with the lock, and with it the lock, if it is asked nothing."""


@dataclass(frozen=True, slots=True)
class MySqlAddress(Address):
    """A server and the account that captures it. engine: `mariadb` or `mysql`. ca: file with trusted certificates."""

    engine: str
    sslmode: str = ""
    ca: str = ""

    @classmethod
    def read(cls, engine: str, variable: str, value: str) -> MySqlAddress:
        """Read the value of an environment variable; raises SettingError naming the variable, never the password."""
        form = f"a connection such as {engine}://headwater:password@db:3306"
        if not value:
            raise SettingError(variable, "", form)
        try:
            parts = urlsplit(value)
            options = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
            port = parts.port or 3306
        except ValueError:  # its text may have the password
            raise SettingError(variable, "…", form) from None
        if parts.scheme != engine or not parts.hostname or not parts.username:
            raise SettingError(variable, "…", f"{form}, with {engine}://, a user and a host")
        if parts.path not in ("", "/"):
            raise SettingError(variable, "…", f"{form}, without a database: the tables of the source name theirs")
        sslmode = options.get("sslmode", "")
        if options.keys() - OPTIONS or (sslmode and sslmode not in TLS_MODES[engine]):
            raise SettingError(variable, "…", f"{form}?sslmode=verify-full&sslrootcert=/ca.pem, with no other option")
        return cls(
            engine=engine,
            host=parts.hostname,
            port=port,
            user=unquote(parts.username),
            password=unquote(parts.password or ""),
            sslmode=sslmode,
            ca=options.get("sslrootcert", ""),
        )

    def for_pymysql(self) -> dict[str, Any]:
        """The arguments of a connection on the socket of `reach`."""
        options: dict[str, Any] = {
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "password": self.password,
            "defer_connect": True,
            "charset": "utf8mb4",
            "autocommit": True,
        }
        if self.sslmode == "disable":
            return {**options, "ssl_disabled": True}
        if self.sslmode:
            verifies = self.sslmode != "require"
            tls = {"ca": self.ca or None, "verify_mode": verifies, "check_hostname": self.sslmode == "verify-full"}
            return {**options, "ssl": tls}
        return options

    def reach(self) -> socket.socket:
        """Connect to the server, which gives up after TIMEOUT_S; a host that vanishes later is noticed, too. Raises
        OSError."""
        connection = socket.create_connection((self.host, self.port), TIMEOUT_S)
        connection.settimeout(None)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        options = {"TCP_KEEPIDLE": KEEPALIVE_S, "TCP_KEEPINTVL": KEEPALIVE_RETRY_S, "TCP_KEEPCNT": KEEPALIVES}
        for name, value in options.items():
            if (option := getattr(socket, name, None)) is not None:  # not every system has all
                connection.setsockopt(socket.IPPROTO_TCP, option, value)
        return connection

    def for_debezium(self) -> dict[str, str]:
        """Connect's workers trust the authorities that their Java does."""
        mode = {"database.ssl.mode": TLS_MODES[self.engine][self.sslmode]} if self.sslmode else {}
        return {**Address.for_debezium(self), **mode}


class BinlogConnection(Database):
    """What checks and commands ask of the server of one source."""

    quote = "`"

    def __init__(
        self, source: Source, names: SourceNames, offset: StoredOffset, connection: pymysql.Connection[Any]
    ) -> None:
        super().__init__(source, names, offset)
        self._connection = connection
        self._asking = threading.Lock()
        self._closing = threading.Event()

    def rows(self, query: str, values: Mapping[str, Any] | list[Any] | None = None) -> list[dict[str, Any]]:
        return self.try_rows(query, values, refused=frozenset()) or []

    def try_rows(
        self, query: str, values: Mapping[str, Any] | list[Any] | None = None, refused: frozenset[int] = DENIED
    ) -> list[dict[str, Any]] | None:
        """The rows of a query; None if the server refuses it with one of these codes."""
        import pymysql  # noqa: PLC0415 - it is optional, and `open` has imported it

        try:
            with self._asking, self._connection.cursor() as cursor:
                cursor.execute(query, values)
                return list(cursor.fetchall())
        except pymysql.MySQLError as error:
            if code_of(error) in refused:
                return None
            raise SourceProblem(self.source.name, f"the server refuses: {one_line(error)}") from error

    def keep_alive(self, every_s: float) -> None:
        """From now on until it is closed, ask the server something that often, in a thread: it closes a connection that
        is idle for longer than its `wait_timeout`.
        """

        def ask() -> None:
            with suppress(SourceProblem):  # whoever uses the connection next gets the error
                while not self._closing.wait(every_s):
                    self.rows("SELECT 1")

        threading.Thread(target=ask, name=f"keeps {self.source.name} held", daemon=True).start()

    def close(self) -> None:
        """End the connection; does not wait long for an answer that is on its way."""
        self._closing.set()
        is_quiet = self._asking.acquire(timeout=TIMEOUT_S)
        if self._connection.open:
            self._connection.close()
        if is_quiet:
            self._asking.release()

    def logs(self) -> dict[str, int] | None:
        """The size in bytes of each binary log, oldest first; None if there is none that the account sees."""
        log_rows = self.try_rows(LOGS, refused=DENIED | {NO_LOG})
        return None if log_rows is None else {file["Log_name"]: int(file["File_size"]) for file in log_rows}

    def log_status(self) -> dict[str, Any] | None:
        """Where the binary log ends, and which databases it leaves out; None if the account may not see it."""
        for query in STATUS:
            status_rows = self.try_rows(query, refused=DENIED | {UNKNOWN_SYNTAX})
            if status_rows:
                return status_rows[0]
        return None

    def columns(self, table: type[Captured]) -> dict[str, BinlogColumn]:
        schema, name = table.table.split(".")
        # in MariaDB, JSON is a text with a check
        definitions = self.try_rows(f"SHOW CREATE TABLE {self.quoted(table.table)}", refused=DENIED | {NO_TABLE}) or []
        is_mariadb = self.source.engine == "mariadb"
        documents = [
            name for definition in definitions if is_mariadb for name in _JSON_CHECK.findall(definition["Create Table"])
        ]
        columns = {}
        for row in self.rows(COLUMNS, {"schema": schema, "name": name}):
            kind = "json" if row["name"] in documents else row["type"].lower()
            shown = row["shown"].lower() if kind != "enum" else row["shown"]
            columns[row["name"]] = BinlogColumn(
                row["name"], kind, shown, bool(row["nullable"]), bool(row["is_virtual"])
            )
        return columns


def code_of(error: Exception) -> int:
    """The number of an error of the server; 0 if it has none."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def one_line(error: Exception) -> str:
    """The text of an error in one line."""
    text = error.args[1] if len(error.args) > 1 else error
    return " ".join(str(text).split())
