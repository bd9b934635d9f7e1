"""What is said of a connector's place while the server writes, and removes what was captured, between two looks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from headwater.eventlog.capturing import Captured, Source
from headwater.eventlog.capturing.mysql.database import CapturedServer
from headwater.eventlog.capturing.mysql.engine import MARIADB, BinlogSession
from headwater.eventlog.capturing.naming import SourceNames

SIZE: Final = 1000
"""Of a binary log that is followed by another."""


class Person(Captured, table="crm.people", key="id"):
    id: int


SOURCE = Source("crm", (Person,), engine="mariadb")
NAMES = SourceNames.of(SOURCE, "test")


@dataclass
class BusyServer:
    """A server, and a connector that has captured everything when somebody looks at its place.

    step: how many bytes are written before each look.
    """

    step: int
    source: Source = SOURCE
    names: SourceNames = NAMES
    written: int = 4

    def logs(self) -> dict[str, int]:
        """Only the last one is left, for the others are captured."""
        file, pos = self._write()
        return {file: pos}

    def offset(self) -> dict[str, Any]:
        file, pos = self._write()
        return {"file": file, "pos": pos, "server_id": 7}

    def rows(self, _query: str) -> list[dict[str, Any]]:
        return [{"id": 7}]

    def _write(self) -> tuple[str, int]:
        self.written += self.step
        return f"binlog.{self.written // SIZE:06}", self.written % SIZE


def session(server: BusyServer | SimpleNamespace) -> BinlogSession:
    return BinlogSession(MARIADB, cast("CapturedServer", server), server.offset)


def lost_of(found: BinlogSession) -> str | None:
    return found.lost()


def problem_of(found: BinlogSession) -> str | None:
    return next(iter(found.standing(is_running=True).problems), None)


@pytest.mark.parametrize("look", [lost_of, problem_of])
@pytest.mark.parametrize("step", [1, 300, 999])
def test_nothing_is_lost_while_the_server_writes_and_removes_logs(
    look: Callable[[BinlogSession], str | None], step: int
) -> None:
    busy = session(BusyServer(step))
    for _ in range(20):
        assert look(busy) is None


@pytest.mark.parametrize("look", [lost_of, problem_of])
def test_a_place_in_no_log_is_named(look: Callable[[BinlogSession], str | None]) -> None:
    server = SimpleNamespace(
        source=SOURCE,
        names=NAMES,
        rows=lambda _: [{"id": 7}],
        logs=lambda: {"binlog.000002": 10},
        offset=lambda: {"file": "binlog.000001", "pos": 4, "server_id": 7},
    )
    said = look(session(server))
    assert said is not None and "no longer has binary log binlog.000001" in said
