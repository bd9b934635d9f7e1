"""What is said of a connector's place while the server writes, and removes what was captured, between two looks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from headwater.eventlog.capturing import Captured, Source
from headwater.eventlog.capturing.mysql.checks import losing
from headwater.eventlog.capturing.mysql.engine import BinlogDatabase, MariaDatabase
from headwater.eventlog.capturing.naming import SourceNames

SIZE: Final = 1000
"""Of a binary log that is followed by another."""


class Person(Captured, table="crm.people", key="id"):
    id: int


SOURCE = Source("crm", (Person,), engine="mariadb")
NAMES = SourceNames.of(SOURCE, "test")


class Server(MariaDatabase):
    """A server without a connection. place: where its connector goes on."""

    def __init__(self) -> None:
        super().__init__(SOURCE, NAMES, self.place_of_connector, None)

    def rows(self, query: str, values: object = None) -> list[dict[str, Any]]:
        return [{"id": 7}]

    def logs(self) -> dict[str, int]:
        return {"binlog.000002": 10}

    def place_of_connector(self) -> dict[str, Any]:
        return {"file": "binlog.000001", "pos": 4, "server_id": 7}


class BusyServer(Server):
    """A server, and a connector that has captured everything when somebody looks at its place.

    step: how many bytes are written before each look.
    """

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step, self.written = step, 4

    def logs(self) -> dict[str, int]:
        """Only the last one is left, for the others are captured."""
        file, pos = self._write()
        return {file: pos}

    def place_of_connector(self) -> dict[str, Any]:
        file, pos = self._write()
        return {"file": file, "pos": pos, "server_id": 7}

    def _write(self) -> tuple[str, int]:
        self.written += self.step
        return f"binlog.{self.written // SIZE:06}", self.written % SIZE


def lost_of(found: BinlogDatabase) -> str | None:
    return found.lost()


def problem_of(found: BinlogDatabase) -> str | None:
    return next(iter(found.standing(is_running=True).problems), None)


@pytest.mark.parametrize("look", [lost_of, problem_of])
@pytest.mark.parametrize("step", [1, 300, 999])
def test_nothing_is_lost_while_the_server_writes_and_removes_logs(
    look: Callable[[BinlogDatabase], str | None], step: int
) -> None:
    busy = BusyServer(step)
    for _ in range(20):
        assert look(busy) is None


@pytest.mark.parametrize("look", [lost_of, problem_of])
def test_a_place_in_no_log_is_named(look: Callable[[BinlogDatabase], str | None]) -> None:
    said = look(Server())
    assert said is not None and "no longer has binary log binlog.000001" in said


class Restored(Server):
    """A server whose log has grown, after an earlier state was restored. binlog: its last GTIDs."""

    binlog = "0-7-16,1-7-4"

    def rows(self, query: str, values: object = None) -> list[dict[str, Any]]:
        return [{"id": 7, "binlog": self.binlog, "current": "0-7-12"}]

    def place_of_connector(self) -> dict[str, Any]:
        return {"file": "binlog.000002", "pos": 4, "server_id": 7, "gtids": "0-3-17,1-7-4"}


def test_a_server_that_does_not_have_what_was_captured_was_restored() -> None:
    found = Restored()
    assert found.lost() is None, "its log has the place"
    assert "captured up to 0-3-17,1-7-4, which the server does not have" in str(found.ahead())
    found.binlog = "0-7-17,1-7-4"
    assert found.ahead() is None
    assert Server().ahead() is None, "the connector has stored no GTID"


class Settings(Server):
    """A server with settings that lose changes."""

    def rows(self, query: str, values: object = None) -> list[dict[str, Any]]:
        if "binlog_format" in query:
            return [{"binlog_format": "MIXED", "binlog_row_image": "FULL"}]
        return [{"Variable_name": "binlog_row_value_options", "Value": "PARTIAL_JSON"}]

    def log_status(self) -> dict[str, Any]:
        return {"Binlog_Ignore_DB": "crm"}


def test_settings_that_lose_changes_are_named_for_each_database() -> None:
    assert losing(Settings()) == {
        "crm": "may have changed while binlog_format was MIXED and binlog_row_value_options was PARTIAL_JSON and the "
        "binary log left out its database"
    }
