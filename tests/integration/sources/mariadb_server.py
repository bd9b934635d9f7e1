"""A MariaDB server of a test's own, from the system's packages."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pymysql
from pymysql.cursors import DictCursor

from headwater.compose.ports import free_port
from headwater.compose.state import own_folder
from tests.support.servers import without_server
from tests.support.waiting import eventually

HOST = "127.0.0.1"
PACKAGES = "mariadb-server-core and mariadb-client-core"
PROGRAMS = ("mariadbd", "mariadb-install-db", "my_print_defaults")
LOGGED = ("--log-bin=binlog", "--binlog-format=ROW", "--server-id=7", "--default-time-zone=+03:00")
"""What capturing needs, and a zone in which times without one are not UTC."""


class MariaDb:
    """A server on a folder and a port; `root` needs no password."""

    def __init__(self, folder: Path, programs: dict[str, str]) -> None:
        self.port = free_port()
        self._folder, self._programs = folder, programs
        self._process: subprocess.Popen[bytes] | None = None
        self._user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        if self._user is not None:
            os.chown(folder, self._user.pw_uid, self._user.pw_gid)
        made = self._run("mariadb-install-db", "--auth-root-authentication-method=normal", "--skip-test-db").wait()
        assert made == 0, self._logged()

    def start(self, *options: str) -> None:
        """Start the server, and return when it answers."""
        self._process = self._run(
            "mariadbd", f"--port={self.port}", f"--bind-address={HOST}", f"--socket={self._folder}/socket", *options
        )
        eventually(self._answers, "MariaDB answers")

    def stop(self) -> None:
        """Stop the server cleanly."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(240)

    def kill(self) -> None:
        """SIGKILL the server, like a crash."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(240)

    def connect(self, user: str = "root", password: str = "") -> pymysql.Connection[Any]:
        """A connection of an application, in UTC; every statement is a transaction."""
        return pymysql.connect(
            host=HOST,
            port=self.port,
            user=user,
            password=password,
            autocommit=True,
            cursorclass=DictCursor,
            init_command="SET time_zone = '+00:00'",
        )

    def sql(self, *statements: str) -> list[dict[str, Any]]:
        """Run statements; returns the rows of the last one."""
        rows: list[dict[str, Any]] = []
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                rows = list(cursor.fetchall())
        return rows

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._logged()
        with suppress(pymysql.OperationalError):
            self.connect().close()
            return True
        return False

    def _logged(self) -> str:
        return (self._folder / "server.log").read_text(errors="replace")[-2000:]

    def _run(self, program: str, *options: str) -> subprocess.Popen[bytes]:
        user = self._user
        with (self._folder / "server.log").open("ab") as log:
            return subprocess.Popen(
                [self._programs[program], "--no-defaults", f"--datadir={self._folder}/data", *options],
                stdout=log,
                stderr=log,
                user=None if user is None else user.pw_uid,
                group=None if user is None else user.pw_gid,
            )


@contextmanager
def mariadb() -> Iterator[MariaDb]:
    """A server that is not started yet; see `without_server` if MariaDB is not installed."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
    programs = {name: shutil.which(name, path=path) for name in PROGRAMS}
    found = {name: program for name, program in programs.items() if program}
    if found.keys() != programs.keys():
        without_server(f"MariaDB's server is not installed: install the packages {PACKAGES} to run this test")
    with own_folder() as folder:
        server = MariaDb(folder, found)
        try:
            yield server
        finally:
            server.stop()
