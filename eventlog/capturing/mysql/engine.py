"""MariaDB and MySQL as kinds of databases that can be captured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from headwater.eventlog.capturing.column_checks import why_misread
from headwater.eventlog.capturing.declaring import Captured, Source
from headwater.eventlog.capturing.errors import SourceProblem
from headwater.eventlog.capturing.mysql.address import MySqlAddress
from headwater.eventlog.capturing.mysql.captured_log import Stored, has_captured, past_statements
from headwater.eventlog.capturing.mysql.checks import account_sql, check_server
from headwater.eventlog.capturing.mysql.database import CapturedServer, open_server, quoted
from headwater.eventlog.capturing.mysql.layouts import missed, read_layouts, sees_parts
from headwater.eventlog.capturing.mysql.misread_values import misread_values
from headwater.eventlog.capturing.mysql.properties import properties
from headwater.eventlog.capturing.mysql.rows import absent
from headwater.eventlog.capturing.mysql.sql import HOLD, HOLD_SESSION, SERVER
from headwater.eventlog.capturing.naming import HEARTBEATS, SourceNames
from headwater.eventlog.capturing.ports import Address, Checked, Layout, Missed, Server, Standing, StoredOffset


class _Heartbeat(msgspec.Struct):
    ts_ms: int


HOLD_S: Final = 60
KEEP_S: Final = 10.0
"""Seconds between two questions on the connection with the lock."""
_HEARTBEAT: Final = msgspec.json.Decoder(_Heartbeat)
_NO_PLACE: Final = "the connector does not find its place in the binary log"
_UNKNOWN_TABLE: Final = (
    "the connector has another definition of a table than the server, as after an ALTER TABLE that swaps names of "
    "columns, or drops and adds one while the table is read again"
)
_LOST: Final[Mapping[str, str]] = {
    "no longer available on the server": _NO_PLACE,
    "Could not find first log file name": _NO_PLACE,
    "could not find GTID state": _NO_PLACE,
    "purged": _NO_PLACE,
    "internal schema": _UNKNOWN_TABLE,  # ... size 4, but row size 5; ... representation is probably out of sync
    "whose schema isn't known to this connector": _UNKNOWN_TABLE,
}
"""Why changes are lost, by words in the connector's errors."""


@dataclass(frozen=True, slots=True)
class BinlogEngine:
    """A kind of database with a binary log; see `Engine`. name: as a Source declares it."""

    name: str
    title: str
    artifact: str
    connector_class: str
    heartbeats: str = HEARTBEATS

    def read_address(self, variable: str, value: str) -> MySqlAddress:
        return MySqlAddress.read(self.name, variable, value)

    def properties(self, source: Source, names: SourceNames, version: int, kafka: Mapping[str, str]) -> dict[str, str]:
        return properties(source, names, kafka)

    @contextmanager
    def open(
        self, source: Source, names: SourceNames, address: Address, offset: StoredOffset
    ) -> Iterator[BinlogSession]:
        assert isinstance(address, MySqlAddress)  # noqa: S101 - `read_address` made it
        with open_server(source, names, address) as server:
            yield BinlogSession(self, server, offset)

    def heartbeat_s(self, value: bytes) -> float | None:
        """When the connector wrote it, by the clock of Connect's worker."""
        try:
            return _HEARTBEAT.decode(value).ts_ms / 1000
        except msgspec.MsgspecError:
            return None

    def lost_changes(self, source: str, names: SourceNames, why: str | None) -> str:
        is_removed = why != _UNKNOWN_TABLE
        return (
            f"changes are missing ({why or 'the binary log was removed before it was captured'}): run "
            f"headwater sources remove {source}, then apply, which reads all tables again, then sweep, which "
            "deletes rows that were deleted meanwhile"
            + ("; raise binlog_expire_logs_seconds to prevent it" if is_removed else "")
        )

    def why_lost(self, error: str) -> str | None:
        return next((why for words, why in _LOST.items() if words in error), None)


MARIADB: Final = BinlogEngine(
    "mariadb", "MariaDB", "debezium-connector-mariadb", "io.debezium.connector.mariadb.MariaDbConnector"
)
MYSQL: Final = BinlogEngine("mysql", "MySQL", "debezium-connector-mysql", "io.debezium.connector.mysql.MySqlConnector")


class _Read(NamedTuple):
    """Where a connector goes on, the size in bytes of each log after that, and why what follows is gone, if it is."""

    place: Mapping[str, Any] | None
    logs: Mapping[str, int] | None
    lost: str | None = None


@dataclass(frozen=True, slots=True)
class BinlogSession:
    """An open connection to a server; see `Database`."""

    engine: BinlogEngine
    server: CapturedServer
    offset: StoredOffset

    def check(self, registered: bool) -> Checked:
        return check_server(self.server, registered)

    def lost(self) -> str | None:
        return self._read().lost

    def ahead(self) -> str | None:
        """Nothing: `lost` finds a binary log that ends before the connector's place."""

    def identity(self) -> Server | None:
        """None: after a failover to another server, the connector finds its place by its GTID."""

    def promoted(self, timeline: int) -> str | None:
        """None: the log has no timelines."""

    def warnings(self) -> list[str]:
        return [*self._skipping(), *self._unseen()]

    def _skipping(self) -> list[str]:
        if self.past_statements(frozenset) is None:
            return []
        name = self.server.source.name
        return [
            "the last statement in the binary log changed no rows, and nothing has changed since. If Kafka Connect "
            "starts its connector anew before anything does, Debezium may skip changes that come then: run headwater "
            f"sources watch, which prevents it, or headwater sources restart {name}"
        ]

    def _unseen(self) -> list[str]:
        if sees_parts(self.server):
            return []
        account = account_sql(self.server.rows(SERVER)[0]["account"])
        return [
            f"account {account} lacks PROCESS, without which TRUNCATE and rows that ALTER TABLE writes anew are "
            f"not noticed: run GRANT PROCESS ON *.* TO {account}"
        ]

    def layouts(self) -> dict[str, Layout]:
        return read_layouts(self.server)

    def missed(self, was: Layout, now: Layout) -> list[Missed]:
        return missed(was, now)

    def unchunked(self, table: type[Captured]) -> str | None:
        """Keys of all types that are captured can be compared, but not all values are read as they are."""
        return why_misread(misread_values(self.server, table))

    def plan(self, table: type[Captured], where: str) -> None:
        self.server.rows(f"EXPLAIN SELECT 1 FROM {quoted(table.table)} WHERE {where}")  # noqa: S608 - it is the user's SQL

    def standing(self, is_running: bool) -> Standing:
        read = self._read()
        if read.logs is None:
            return Standing()
        lag = None if read.place is None else lag_bytes(read.place, read.logs)
        return Standing(lag, sum(read.logs.values()), problems=() if read.lost is None else (read.lost,))

    def _read(self) -> _Read:
        """The place is read before the logs, which grow; and again if no log has it, which may be one that was removed
        after the connector had captured it. Otherwise changes would be said to be lost that are not.
        """
        while True:
            place, logs = self._place(), self.server.logs()
            why = None if place is None or logs is None else gap(place, logs, self._server_id())
            if why is None:
                return _Read(place, logs)
            if place == self._place():
                return _Read(place, logs, self._lost(why))

    def _place(self) -> Mapping[str, Any] | None:
        """Where the connector goes on; None during its first snapshot, which begins anew."""
        offset = self.offset()
        return None if offset is None or "file" not in offset or "snapshot" in offset else offset

    def _server_id(self) -> int:
        return int(self.server.rows("SELECT @@server_id AS id")[0]["id"])

    def _lost(self, why: str) -> str:
        return self.engine.lost_changes(self.server.source.name, self.server.names, why)

    def preparations(self) -> list[str]:
        return []

    def prepare(self) -> None:
        """Nothing: the connector only reads."""

    def beat(self) -> None:
        """Nothing: the server itself sends signs of life to the connector."""

    def clean_up(self) -> list[str]:
        return []

    def read_apart(self) -> dict[type[Captured], str]:
        """None: a binary log has all values of each row."""
        return {}

    def absent(self, table: type[Captured], keys: Sequence[Sequence[str]]) -> list[int]:
        return absent(self.server, table, keys)

    def condition(self, table: type[Captured], keys: Sequence[Sequence[str]]) -> str:
        """All rows: no record is ever incomplete."""
        return ""

    def has_captured(self, place: Mapping[str, Any], stored: Stored) -> bool:
        offset = self._place_here()
        return offset is not None and has_captured(self.server, offset, place, stored)

    def past_statements(self, stored: Stored) -> dict[str, Any] | None:
        offset = self._place_here()
        return None if offset is None else past_statements(self.server, offset, stored)

    def _place_here(self) -> Mapping[str, Any] | None:
        """Likewise; None after a failover: until it has captured something, its place is one of the earlier server."""
        offset = self._place()
        return None if offset is None or offset.get("server_id") not in (None, self._server_id()) else offset

    def hold(self) -> bool:
        self.server.rows(HOLD_SESSION.format(seconds=HOLD_S))
        held = bool(self.server.rows(HOLD, {"name": self.server.names.connector})[0]["held"])
        if held:  # a table may be read for hours before `still_holds` is called
            self.server.keep_alive(KEEP_S)
        return held

    def still_holds(self) -> bool:
        with suppress(SourceProblem):
            return bool(self.server.rows("SELECT 1"))
        return False

    def place(self) -> dict[str, Any]:
        status = self.server.log_status() or {}
        return {"file": status.get("File", ""), "pos": int(status.get("Position", 0)), "row": 0}


def gap(place: Mapping[str, Any], logs: Mapping[str, int], server_id: int) -> str | None:
    """Why the server no longer has what follows a connector's place; None if it has, or if it is another server.

    A place on another server, such as before a failover, is found by its GTID, which only the connector can do.
    """
    file, pos = place["file"], int(place.get("pos", 0))
    if place.get("server_id") not in (None, server_id):
        return None
    if file not in logs:
        return f"the server no longer has binary log {file}, in which the next change is"
    if pos > logs[file]:
        return f"binary log {file} ends before position {pos}, so the server began it anew"
    return None


def lag_bytes(place: Mapping[str, Any], logs: Mapping[str, int]) -> int | None:
    """How much of the binary logs follows a connector's place; None if the server has not that log."""
    file = place["file"]
    if file not in logs:
        return None
    names = list(logs)
    return max(0, sum(logs[name] for name in names[names.index(file) :]) - int(place.get("pos", 0)))
