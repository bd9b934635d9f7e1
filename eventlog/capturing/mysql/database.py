"""A captured MariaDB or MySQL server: queries, and its binary log."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from headwater.eventlog.capturing.declaring import Source
from headwater.eventlog.capturing.errors import SourceProblem
from headwater.eventlog.capturing.mysql.address import TIMEOUT_S, MySqlAddress
from headwater.eventlog.capturing.mysql.sql import LOGS, STATUS
from headwater.eventlog.capturing.naming import SourceNames

if TYPE_CHECKING:
    import pymysql

DENIED: Final = frozenset({1044, 1045, 1142, 1143, 1227, 1698})
"""Error codes: the account lacks a right."""
NO_LOG: Final = 1381
UNKNOWN_SYNTAX: Final = 1064
ADVICE: Final[Mapping[int, str]] = {
    1045: (
        "set the account's password in {variable}; to change it: ALTER USER '{user}'@'%' IDENTIFIED BY '…'; if there "
        "is no such account: CREATE USER '{user}'@'%' IDENTIFIED BY '…'"
    ),
    1698: "let the account use a password: ALTER USER '{user}'@'%' IDENTIFIED BY '…'",
    1130: "allow it from this host: CREATE USER '{user}'@'%' IDENTIFIED BY '…'",
    1040: "raise max_connections, or end connections",
}
"""What helps if the server refuses a connection, by error code."""


SESSION: Final = "SET SESSION time_zone = '+00:00'"
"""Times of the server are those of the log: in UTC."""


class CapturedServer:
    """A connection to the server of one source. Its methods raise SourceProblem."""

    def __init__(self, source: Source, names: SourceNames, connection: pymysql.Connection[Any]) -> None:
        self.source = source
        self.names = names
        self._connection = connection
        self._asking = threading.Lock()
        self._closing = threading.Event()

    def rows(self, query: str, values: Mapping[str, Any] | list[Any] | None = None) -> list[dict[str, Any]]:
        """The rows of a query."""
        return self.try_rows(query, values, refused=frozenset()) or []

    def try_rows(
        self, query: str, values: Mapping[str, Any] | list[Any] | None = None, refused: frozenset[int] = DENIED
    ) -> list[dict[str, Any]] | None:
        """The rows of a query; None if the server refuses it with one of these codes."""
        import pymysql  # noqa: PLC0415 - it is optional, and `open_server` has imported it

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
        threading.Thread(target=self._ask, args=(every_s,), name=f"keeps {self.source.name} held", daemon=True).start()

    def _ask(self, every_s: float) -> None:
        with suppress(SourceProblem):  # whoever uses the connection next gets the error
            while not self._closing.wait(every_s):
                self.rows("SELECT 1")

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


@contextmanager
def open_server(source: Source, names: SourceNames, address: MySqlAddress) -> Iterator[CapturedServer]:
    """Connect to the server of a source; raises SourceProblem with what helps if that fails."""
    try:
        import pymysql  # noqa: PLC0415 - it is optional
        from pymysql.cursors import DictCursor  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise SourceProblem(
            source.name, "PyMySQL, which connects to it, is not installed: run pip install 'headwater[mysql]'"
        ) from error
    try:
        connection = pymysql.connect(**address.for_pymysql(), cursorclass=DictCursor, init_command=SESSION)
    except (pymysql.MySQLError, OSError, RuntimeError) as error:  # the last one if it lacks a way to log in
        raise SourceProblem(source.name, _refusal(source, address, error)) from error
    with closing(CapturedServer(source, names, connection)) as server:
        yield server


def _refusal(source: Source, address: MySqlAddress, error: Exception) -> str:
    advice = ADVICE.get(code_of(error), "start the server, or correct {variable}")
    help_text = advice.format(variable=source.database, user=address.user)
    return f"cannot connect to {address.host}:{address.port} as {address.user} ({one_line(error)}): {help_text}"


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
