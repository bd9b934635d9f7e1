"""A connection to a captured MariaDB or MySQL server: queries, and its binary log."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from headwater.eventlog.capturing.database import Database, StoredOffset
from headwater.eventlog.capturing.declaring import Captured, Source
from headwater.eventlog.capturing.errors import SourceProblem
from headwater.eventlog.capturing.mysql.address import TIMEOUT_S
from headwater.eventlog.capturing.mysql.sql import COLUMNS, LOGS, STATUS
from headwater.eventlog.capturing.naming import SourceNames

if TYPE_CHECKING:
    import pymysql

DENIED: Final = frozenset({1044, 1045, 1142, 1143, 1227, 1698})
"""Error codes: the account lacks a right."""
NO_LOG: Final = 1381
UNKNOWN_SYNTAX: Final = 1064
MISREAD: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "datetime": (
        (
            "{0} BETWEEN '1582-10-05' AND '1582-10-14 23:59:59.999999'",
            "times from 1582-10-05 to 1582-10-14, which become other times in a snapshot",
        ),
        (
            "CAST({0} AS CHAR) LIKE '0000-%' AND MONTH({0}) > 0 AND DAY({0}) > 0",
            "times of the year 0, which become those of the year 1 in a snapshot",
        ),
    ),
    "year": (("{0} = 0", "the year 0000, which becomes 2000 in a snapshot, and 1900 in a change"),),
}
"""By the type's name: a condition of the values that are misread, and what becomes of them."""


class BinlogConnection(Database):
    """What checks and commands ask of the server of one source."""

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
        found = self.try_rows(LOGS, refused=DENIED | {NO_LOG})
        return None if found is None else {each["Log_name"]: int(each["File_size"]) for each in found}

    def log_status(self) -> dict[str, Any] | None:
        """Where the binary log ends, and which databases it leaves out; None if the account may not see it."""
        for query in STATUS:
            found = self.try_rows(query, refused=DENIED | {UNKNOWN_SYNTAX})
            if found:
                return found[0]
        return None

    def misread_values(self, table: type[Captured]) -> list[tuple[str, str]]:
        """The columns of a table with values that Debezium reads wrongly, each with what they are and where; it reads
        the table once if it may have some.
        """
        schema, name = table.table.split(".")
        types = {each["name"]: each["type"].lower() for each in self.rows(COLUMNS, {"schema": schema, "name": name})}
        asked = [
            (column, condition.format(f"`{column}`"), what)
            for column in table.columns
            for condition, what in MISREAD.get(types.get(column, ""), ())
        ]
        if not asked:
            return []
        flags = ", ".join(f"COALESCE(MAX({condition}), 0) AS found_{n}" for n, (_, condition, _) in enumerate(asked))
        (found,) = self.rows(f"SELECT {flags} FROM {quoted(table.table)}")  # noqa: S608 - declared names
        return [
            (column, f"{what} (WHERE {condition})")
            for number, (column, condition, what) in enumerate(asked)
            if found[f"found_{number}"]
        ]


def quoted(name: str) -> str:
    """A table's name with its database, as SQL writes it."""
    return ".".join(f"`{part}`" for part in name.split("."))


def code_of(error: Exception) -> int:
    """The number of an error of the server; 0 if it has none."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def one_line(error: Exception) -> str:
    """The text of an error in one line."""
    text = error.args[1] if len(error.args) > 1 else error
    return " ".join(str(text).split())
