"""MariaDB and MySQL as kinds of databases that can be captured."""

from __future__ import annotations

import hashlib
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, time
from decimal import Decimal
from typing import Any, ClassVar, Final
from zlib import crc32

import msgspec

from headwater.eventlog.capturing.columns import Kind
from headwater.eventlog.capturing.database import (
    Checked,
    Layout,
    Missed,
    Part,
    Server,
    Standing,
    StoredOffset,
    StoredStatements,
    missed_columns,
)
from headwater.eventlog.capturing.declaring import Captured, Source
from headwater.eventlog.capturing.errors import SourceProblem
from headwater.eventlog.capturing.mysql.captured_log import has_captured, past_statements
from headwater.eventlog.capturing.mysql.checks import account_sql, check_server, losing
from headwater.eventlog.capturing.mysql.database import (
    COLUMNS,
    HOLD,
    HOLD_SESSION,
    IDENTITY,
    INNODB_PARTS,
    SERVER,
    TABLE,
    VERSION,
    BinlogConnection,
    MySqlAddress,
    code_of,
    one_line,
)
from headwater.eventlog.capturing.naming import HEARTBEATS, SourceNames


class _Heartbeat(msgspec.Struct):
    ts_ms: int


HOLD_S: Final = 60
KEEP_S: Final = 10.0
"""Seconds between two questions on the connection with the lock."""
_HEARTBEAT: Final = msgspec.json.Decoder(_Heartbeat)
_WHOLE: Final = ""
"""The only part of a table that has no partitions."""
_COUNTER: Final = re.compile(r" AUTO_INCREMENT=\d+")
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
SESSION: Final = "SET SESSION time_zone = '+00:00'"
"""Times of the server are those of the log: in UTC."""
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


class BinlogDatabase(BinlogConnection):
    """An open database with a binary log, whose connector only reads.

    After a failover to another server, the connector finds its place by its GTID; `lost` finds a binary log that ends
    before its place, and no record is ever incomplete. MariaDB has no `identity`: nothing of its servers is unique.
    engine: as a Source declares it.
    """

    engine: ClassVar[str]
    heartbeats = HEARTBEATS

    @classmethod
    def read_address(cls, variable: str, value: str) -> MySqlAddress:
        return MySqlAddress.read(cls.engine, variable, value)

    @classmethod
    @contextmanager
    def open(
        cls, source: Source, names: SourceNames, address: MySqlAddress, offset: StoredOffset
    ) -> Iterator[BinlogDatabase]:
        try:
            import pymysql  # noqa: PLC0415 - it is optional
            from pymysql.cursors import DictCursor  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise SourceProblem(
                source.name, "PyMySQL, which connects to it, is not installed: run pip install 'headwater[mysql]'"
            ) from error
        try:
            connection = pymysql.connect(**address.for_pymysql(), cursorclass=DictCursor, init_command=SESSION)
            connection.connect(address.reach())
        except (pymysql.MySQLError, OSError, RuntimeError) as error:  # the last one if it lacks a way to log in
            advice = ADVICE.get(code_of(error), "start the server, or correct {variable}")
            helps = advice.format(variable=source.database, user=address.user)
            where = f"{address.host}:{address.port} as {address.user}"
            raise SourceProblem(source.name, f"cannot connect to {where} ({one_line(error)}): {helps}") from error
        with closing(cls(source, names, offset, connection)) as server:
            yield server

    @staticmethod
    def heartbeat_s(value: bytes) -> float | None:
        """When the connector wrote it, by the clock of Connect's worker."""
        try:
            return _HEARTBEAT.decode(value).ts_ms / 1000
        except msgspec.MsgspecError:
            return None

    @staticmethod
    def why_lost(error: str) -> str | None:
        return next((why for words, why in _LOST.items() if words in error), None)

    @classmethod
    def lost_changes(cls, source: str, names: SourceNames, why: str | None) -> str:  # noqa: ARG003 - it has no slot
        is_removed = why != _UNKNOWN_TABLE
        return (
            f"changes are missing ({why or 'the binary log was removed before it was captured'}): run "
            f"headwater sources remove {source}, then apply, which reads all tables again, then sweep, which "
            "deletes rows that were deleted meanwhile"
            + ("; raise binlog_expire_logs_seconds to prevent it" if is_removed else "")
        )

    def check(self, registered: bool) -> Checked:
        return check_server(self, registered)

    def lost(self) -> str | None:
        return next(iter(self.standing(is_running=True).problems), None)

    def ahead(self) -> str | None:
        """By its GTID, which a server that was restored to an earlier state does not have until its log has grown."""
        gtids = str((self._offset() or {}).get("gtids") or "")
        if not gtids or self.has_gtids(gtids):
            return None
        return (
            f"the connector has captured up to {gtids}, which the server does not have, so it was restored to an "
            "earlier state, or is a replica that lacks the last changes"
        )

    @abstractmethod
    def has_gtids(self, gtids: str) -> bool:
        """Whether the server has had all of these, as Debezium stores them."""

    def standing(self, is_running: bool) -> Standing:
        """The place is read before the logs, which grow; and again if no log has it, which may be one that was removed
        after the connector had captured it. Otherwise changes would be said to be lost that are not.
        """
        while True:
            place, logs = self._offset(), self.logs()
            if logs is None:
                return Standing()
            if place is None:
                return Standing(retained_bytes=sum(logs.values()))
            lag, why = lag_bytes(place, logs), gap(place, logs, self._server_id())
            if why is None:
                return Standing(lag, sum(logs.values()))
            if place == self._offset():
                return Standing(
                    lag, sum(logs.values()), problems=(self.lost_changes(self.source.name, self.names, why),)
                )

    def _offset(self) -> Mapping[str, Any] | None:
        """Where the connector goes on; None during its first snapshot, which begins anew."""
        offset = self.offset()
        return None if offset is None or "file" not in offset or "snapshot" in offset else offset

    def _offset_here(self) -> Mapping[str, Any] | None:
        """Likewise; None after a failover: until it has captured something, its place is one of the earlier server."""
        offset = self._offset()
        return None if offset is None or offset.get("server_id") not in (None, self._server_id()) else offset

    def _server_id(self) -> int:
        return int(self.rows("SELECT @@server_id AS id")[0]["id"])

    def warnings(self) -> list[str]:
        warnings = []
        if self.past_statements(frozenset) is not None:
            warnings.append(
                "the last statement in the binary log changed no rows, and nothing has changed since. If Kafka Connect "
                "starts its connector anew before anything does, Debezium may skip changes that come then: run "
                f"headwater sources watch, which prevents it, or headwater sources restart {self.source.name}"
            )
        if self.try_rows(INNODB_PARTS[self.engine], {"schema": "", "name": ""}) is None:
            account = account_sql(self.rows(SERVER)[0]["account"])
            warnings.append(
                f"account {account} lacks PROCESS, without which TRUNCATE and rows that ALTER TABLE writes anew are "
                f"not noticed: run GRANT PROCESS ON *.* TO {account}"
            )
        return warnings

    def layouts(self) -> dict[str, Layout]:
        """InnoDB gives a table, or a partition, another number when it is truncated, rebuilt or made again, and takes
        the number along when it is renamed. An account without the right PROCESS does not see numbers. MariaDB also
        says when a definition was last written: by each ALTER TABLE, also one that keeps all rows, and by each RENAME.
        """
        version = int("".join(f"{int(part):02}" for part in re.findall(r"\d+", self.rows(VERSION)[0]["version"])[:3]))
        layouts, lossy = {}, losing(self)
        for table in self.source.tables:
            schema, name = table.table.split(".")
            place = {"schema": schema, "name": name}
            stored, shown = self.rows(TABLE, place), self.try_rows(f"SHOW CREATE TABLE {self.quoted(table.table)}")
            if not stored or not shown or "Create Table" not in shown[0]:
                continue
            columns = self.rows(COLUMNS, place)
            definition = _COUNTER.sub("", shown[0]["Create Table"])
            layouts[table.table] = Layout(
                version,
                0,
                parts=self._parts(table, place),
                columns={
                    column["name"]: (1, crc32(column["type"].lower().encode()))
                    for column in columns
                    if column["name"] in table.columns
                },
                named=str(stored[0]["created"] or ""),
                order=[column["name"] for column in columns],
                shown=hashlib.sha256(definition.encode()).hexdigest()[:16],
                losing=lossy.get(schema, ""),
            )
        return layouts

    def _parts(self, table: type[Captured], place: dict[str, str]) -> dict[str, Part]:
        parts = self.try_rows(INNODB_PARTS[self.engine], place) or []
        names = [row["part"].rpartition("#")[2] for row in parts]
        # a partition whose name the server encodes counts as if it had rows
        plain = [name for name in names if name.isidentifier()] if len(parts) > 1 else []
        empty = set()
        if plain:
            asked = ", ".join(
                f"(SELECT 1 FROM {self.quoted(table.table)} PARTITION (`{name}`) LIMIT 1) AS part_{number}"  # noqa: S608 - its own names
                for number, name in enumerate(plain)
            )
            (rows,) = self.rows(f"SELECT {asked}")
            empty = {name for number, name in enumerate(plain) if rows[f"part_{number}"] is None}
        return {
            row["part"]: Part(name or table.table, int(row["id"]), is_empty=name in empty)
            for row, name in zip(parts, names, strict=True)
        }

    @staticmethod
    def missed(was: Layout, now: Layout) -> list[Missed]:
        """An ALTER TABLE that only adds or only drops columns, or changes something else, explains a new definition. A
        server may say when a definition was written by the second only, or not at all.
        """
        missed = list(_missed_parts(was, now))
        if was.version == now.version and was.shown == now.shown:
            if was.named != now.named:
                missed.append(Missed("had another name for a time, or was altered and altered back"))
        elif was.version == now.version and not (_is_within(was.order, now.order) or _is_within(now.order, was.order)):
            missed.append(Missed("had columns renamed or moved, or dropped and others added"))
        return [*missed, *missed_columns(was, now)]

    def plan(self, table: type[Captured], where: str) -> None:
        self.rows(f"EXPLAIN SELECT 1 FROM {self.quoted(table.table)} WHERE {where}")  # noqa: S608 - it is the user's SQL

    def absent(self, table: type[Captured], keys: Sequence[Sequence[str]]) -> list[int]:
        """Texts are compared exactly, whatever the column's collation says."""
        kinds = [table.columns[name].kind for name in table.key]
        names = [f"`{name}`" for name in table.key]
        marks = ", ".join(["%s"] * len(names))
        shown = ", ".join(f"CAST({name} AS CHAR) AS key_{number}" for number, name in enumerate(names))
        query = (
            f"SELECT {shown} "  # noqa: S608 - names are declared, and values are sent apart
            f"FROM {self.quoted(table.table)} WHERE ({', '.join(names)}) IN ({', '.join([f'({marks})'] * len(keys))})"
        )
        # the server compares a time with a text as it is written
        values = [
            text if kind is Kind.TIME else _value(kind, text)
            for key in keys
            for kind, text in zip(kinds, key, strict=True)
        ]
        there = {tuple(map(_value, kinds, row.values())) for row in self.rows(query, values)}
        return [number for number, key in enumerate(keys) if tuple(map(_value, kinds, key)) not in there]

    def has_captured(self, place: Mapping[str, Any], stored: StoredStatements) -> bool:
        offset = self._offset_here()
        return offset is not None and has_captured(self, offset, place, stored)

    def past_statements(self, stored: StoredStatements) -> dict[str, Any] | None:
        offset = self._offset_here()
        return None if offset is None else past_statements(self, offset, stored)

    def place(self) -> dict[str, Any]:
        status = self.log_status() or {}
        return {"file": status.get("File", ""), "pos": int(status.get("Position", 0)), "row": 0}

    def hold(self) -> bool:
        self.rows(HOLD_SESSION.format(seconds=HOLD_S))
        held = bool(self.rows(HOLD, {"name": self.names.connector})[0]["held"])
        if held:  # a table may be read for hours before `still_holds` is called
            self.keep_alive(KEEP_S)
        return held


class MariaDatabase(BinlogDatabase):
    """An open MariaDB database."""

    engine = "mariadb"
    title = "MariaDB"
    artifact = "debezium-connector-mariadb"
    connector_class = "io.debezium.connector.mariadb.MariaDbConnector"

    def has_gtids(self, gtids: str) -> bool:
        """The last one of each domain: `0-7-16`."""
        (row,) = self.rows("SELECT @@GLOBAL.gtid_binlog_pos AS binlog, @@GLOBAL.gtid_current_pos AS current")
        last: dict[str, int] = {}
        for gtid in filter(None, f"{row['binlog']},{row['current']}".split(",")):
            domain, _, number = gtid.strip().split("-")
            last[domain] = max(last.get(domain, 0), int(number))
        given = (gtid.strip().split("-") for gtid in gtids.split(","))
        return all(last.get(domain, 0) >= int(number) for domain, _, number in given)


class MySqlDatabase(BinlogDatabase):
    """An open MySQL database."""

    engine = "mysql"
    title = "MySQL"
    artifact = "debezium-connector-mysql"
    connector_class = "io.debezium.connector.mysql.MySqlConnector"

    def identity(self) -> Server:
        """Without its version: a newer server without the transactions of the captured one is another database."""
        (found,) = self.rows(IDENTITY)
        origins = {entry.strip().partition(":")[0] for entry in found["gtids"].split(",")} - {""}
        return Server(found["identifier"], version=0, origins=tuple(sorted(origins)))

    def has_gtids(self, gtids: str) -> bool:
        asked = "SELECT GTID_SUBSET(%(gtids)s, @@GLOBAL.gtid_executed) AS has"
        return bool(self.rows(asked, {"gtids": gtids})[0]["has"])


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


def _missed_parts(was: Layout, now: Layout) -> Iterator[Missed]:
    if not was.parts or not now.parts:  # it was not seen, or is not of InnoDB
        return
    if was.parts.keys().isdisjoint(now.parts) or (
        _WHOLE in now.parts and was.parts[_WHOLE].file != now.parts[_WHOLE].file
    ):
        yield Missed(
            "was replaced by another one of the same name, or had all rows deleted or written anew, by TRUNCATE, ALTER "
            "TABLE or OPTIMIZE TABLE"
        )
        return
    if gone := [part.name for key, part in was.parts.items() if key not in now.parts]:
        yield Missed(f"has lost the partition {', '.join(gone)}", reads=False)
    for key, part in now.parts.items():
        if key not in was.parts:
            if not part.is_empty:
                yield Missed(f"has got the rows of the partition {part.name}", sweeps=False)
        elif was.parts[key].file != part.file:
            yield Missed(f"had all rows of the partition {part.name} exchanged, deleted or written anew")


def _is_within(some: Sequence[str], all_of_them: Sequence[str]) -> bool:
    """Whether these are in the others, in the same order."""
    rest = iter(all_of_them)
    return all(name in rest for name in some)


def _value(kind: Kind, text: str) -> Any:
    """A value of a key, of a text that Debezium or the server wrote, that the server compares as the type of the
    column: a number with a text would be compared as floats."""
    match kind:
        case Kind.INTEGER | Kind.DECIMAL:
            return Decimal(text)
        case Kind.BOOLEAN:
            return text in ("true", "1")
        case Kind.TIMESTAMP:
            return datetime.fromisoformat(text).replace(tzinfo=None)
        case Kind.TIME:
            return time.fromisoformat(text)
        case _:
            return text
