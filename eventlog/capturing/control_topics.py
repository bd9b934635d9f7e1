"""The topics between a connector and its operator: notes about it, which are kept until the source is removed, and what
it reports."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeVar

import msgspec

from headwater.eventlog.capturing.database import Database, Layout, Missed, Server
from headwater.eventlog.capturing.naming import NOTIFICATIONS, SIGNALS, SourceNames
from headwater.eventlog.capturing.schema_history import Searched
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.kafka.writer import Appender
from headwater.eventlog.settings import LogSettings

RECENT: Final = 500
"""How many records from the end of a topic are read."""
ALL: Final = sys.maxsize
"""How many are read to find tables that were noted, however long ago."""
SCANS: Final = 50_000
"""How many are read to find tables that were not read: a snapshot reports each of its chunks."""

Note = Literal[
    "unread",  # tables that are to be read, and of which the connector was not told yet
    "execute-snapshot",  # tables that the connector was told to read
    "reading",  # tables that are to be read again, each with the signal that says so
    "first-snapshot",  # the tables that a new connector is to read, each with where its topic ended
    "failed",  # tables whose last snapshot failed, each with why; `since`: a signal after which they must be read
    "read",  # tables whose rows were read
    "layouts",  # how tables are stored in the database, since when all their changes are captured
    "missed",  # tables with changes that were not captured, each with these; a later change may hide them
    "searched",  # how far the history of definitions was searched for statements that no other note is about
    "mended",  # tables that were noted as to be read or swept because of such changes
    "unswept",  # tables whose topics may have rows that the tables no longer have; `starts`: of the first snapshot
    "swept",  # tables that were swept
    "server",  # which server is captured
    "skipped-changes",  # changes are missing; `reason`: why
    "stopped",  # a command stops the connector; `before`: the state to which it brings it back
    "brought-back",  # it has done so
]
"""What is noted, by the names of the notes."""
VERDICTS: Final = frozenset({"layouts", "missed", "searched", "server", "skipped-changes"})
"""The notes about what a database has, and has not."""
DATA_COLLECTIONS: Final = "data-collections"
"""The tables in a note."""

Kind = Literal["initial", "incremental"]
KINDS: Final[Mapping[str, Kind]] = {"Initial Snapshot": "initial", "Incremental Snapshot": "incremental"}
"""Of snapshots, by their names in Debezium's notifications."""
SKIPPED: Final = "SKIPPED"
"""What a restarted connector reports of the snapshot that it has made before, or takes for made."""
STARTED: Final = "STARTED"
COMPLETED: Final = "COMPLETED"
SCANNED: Final = "TABLE_SCAN_COMPLETED"
"""What it reports of each table of a snapshot at its end, with how that went."""
PART: Final = "-part"
"""The ids of signals to read some rows of a table end with this. A connector reports the id of its last signal with the
end of each table, whichever that was about."""
READ: Final = frozenset({"SUCCEEDED", "EMPTY"})
"""How it went if the table was read. Otherwise its rows are missing, although the snapshot goes on, and completes."""


class _Notification(msgspec.Struct):
    aggregate_type: str
    type: str
    id: str = ""
    additional_data: dict[str, str] | None = None


class _Signal(msgspec.Struct):
    type: str
    data: dict[str, Any] = {}


Form = TypeVar("Form")
_NOTIFICATION: Final = msgspec.json.Decoder(_Notification)
_SIGNAL: Final = msgspec.json.Decoder(_Signal)


@dataclass(slots=True)
class Notes:
    """What the notes say together.

    unread: tables that were declared later and not read. first: tables that a first snapshot is to read, each with
    where the partitions of its topic ended. failed: tables whose last snapshot failed, with the reason.
    failed_since: the signals after which some of these must be read, because the connector reported no end.
    reading: tables that the connector was told to read and that are not known to be read, each with the signal.
    unswept: tables whose topics may have rows that are gone. starts: of the first snapshot, as far as noted.
    layouts: of tables, as they were noted last. missed: changes of tables that were not captured, as they were
    found. searched: how far the history of definitions was searched for such statements. server: that is captured.
    skipped: why changes are missing. before: to which state a command brings the connector back that it has stopped.
    """

    unread: set[str] = field(default_factory=set)
    first: dict[str, dict[int, int]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    failed_since: dict[str, str] = field(default_factory=dict)
    reading: dict[str, str] = field(default_factory=dict)
    unswept: set[str] = field(default_factory=set)
    starts: int = 1
    layouts: dict[str, Layout] = field(default_factory=dict)
    missed: dict[str, list[Missed]] = field(default_factory=dict)
    searched: Searched = field(default_factory=Searched)
    server: Server | None = None
    skipped: str | None = None
    before: str | None = None

    def add(self, kind: str, data: Mapping[str, Any]) -> None:  # noqa: PLR0912 - a branch per kind
        """Take in the next one; raises ValidationError of msgspec if it has another form."""
        collections = data.get(DATA_COLLECTIONS)
        tables, by_table = (
            collections if isinstance(collections, list) else [],
            collections if isinstance(collections, dict) else {},
        )
        match kind:
            case "unread":
                self.unread |= set(tables)
            case "execute-snapshot":
                self.unread -= set(tables)
                _forget(tables, self.first)
            case "reading":
                self.reading |= {name: str(signal) for name, signal in by_table.items()}
            case "first-snapshot":
                self.first = {name: {int(at): end for at, end in ends.items()} for name, ends in by_table.items()}
            case "failed":
                self.failed |= by_table
                since = data.get("since")
                self.failed_since |= dict.fromkeys(by_table, since) if isinstance(since, str) else {}
            case "read":
                _forget(tables, self.first, self.failed, self.failed_since, self.reading)
            case "layouts":
                self.layouts |= msgspec.convert(by_table, dict[str, Layout])
            case "missed":
                for name, changes in msgspec.convert(by_table, dict[str, list[Missed]]).items():
                    self.missed[name] = list(dict.fromkeys([*self.missed.get(name, ()), *changes]))
            case "searched":
                self.searched = msgspec.convert(data, Searched)
            case "mended":
                _forget(tables, self.missed)
            case "unswept":
                self.unswept |= set(tables)
                starts = data.get("starts")
                self.starts = max(self.starts, starts) if isinstance(starts, int) else self.starts
            case "swept":
                self.unswept -= set(tables)
            case "server":
                self.server = msgspec.convert(data, Server)
            case "skipped-changes":
                self.skipped = data.get("reason", self.skipped)
            case "stopped" | "brought-back":
                self.before = data.get("before")


def _forget(tables: Iterable[str], *noted: dict[str, Any]) -> None:
    for by_table in noted:
        for table in tables:
            by_table.pop(table, None)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The last snapshot that a connector reported.

    kind: `initial` or `incremental`.
    state: as Debezium calls it, such as `IN_PROGRESS` or `COMPLETED`.
    table: that it reads, or has read last.
    rows: of that table, as far as reported.
    """

    kind: Kind
    state: str
    table: str = ""
    rows: int | None = None

    @property
    def is_running(self) -> bool:
        """Whether rows are still to be read."""
        return self.state in (STARTED, "IN_PROGRESS", SCANNED, "RESUMED")


@dataclass(frozen=True, slots=True)
class Scan:
    """How the reading of a table ended, as Debezium calls it.

    rows: that it had; None if that is not reported. signal: the last one that the connector was given before, if it was
    told to read it; it may be about some rows of another table, see PART.
    """

    ended: str
    rows: int | None = None
    signal: str = ""

    @property
    def is_read(self) -> bool:
        """Whether its rows were read."""
        return self.ended in READ

    def is_since(self, signal: str) -> bool:
        """Whether it ended after this signal was given."""
        return bool(self.signal) and _number(self.signal) >= _number(signal)


def _number(signal: str) -> int:
    number = signal.removesuffix(PART).rpartition("-")[2]
    return int(number) if number.isascii() and number.isdigit() else 0


@dataclass(slots=True)
class Reports:
    """What a connector reports, as far as that is kept. scans: of each table, in their order. starts: of its first
    snapshot. snapshot: the last one."""

    scans: dict[str, list[Scan]] = field(default_factory=dict)
    starts: int = 0
    snapshot: Snapshot | None = None


class ControlTopics:
    """The topics of one source; its methods raise LogUnavailable. log: where they are."""

    def __init__(self, settings: LogSettings, names: SourceNames) -> None:
        self.log, self._settings, self._names = KafkaLog(settings), settings, names
        self._notes_verdicts = True

    def close(self) -> None:
        """Close the connections."""
        self.log.close()

    @contextmanager
    def noting_no_verdict(self) -> Iterator[None]:
        """A context in which nothing is noted of what a database says: whoever only looks may have a wrong address."""
        self._notes_verdicts = False
        try:
            yield
        finally:
            self._notes_verdicts = True

    def new_signal(self) -> str:
        """The id of a signal that is to be given; those of later ones are greater."""
        return f"{self._names.connector}-{time.time_ns()}"

    def note(self, kind: Note, tables: Sequence[str] | Mapping[str, Any] = (), **data: Any) -> None:
        """Keep a note until the source is removed.

        The connector ignores it, because its key is not the connector's name.
        """
        if kind in VERDICTS and not self._notes_verdicts:
            return
        if tables:
            data[DATA_COLLECTIONS] = tables
        self._send(f"{self._names.connector}.{kind}", {"type": kind, "data": data})

    def notes(self) -> Notes:
        """What was noted since the source was applied."""
        notes = Notes()
        for value in self._recent(SIGNALS, ALL):
            with suppress(msgspec.MsgspecError):  # an application may have written it
                sent = _SIGNAL.decode(value)
                notes.add(sent.type, sent.data)
        return notes

    def reports(self, count: int = SCANS) -> Reports:
        """What the connector says in its last `count` notifications.

        A connector that failed after the last row, before it reported the end, reports at its next start that it skips
        the initial snapshot: it is completed. One that failed before the first row was stored reports the same,
        although it has read nothing: that snapshot is SKIPPED.
        """
        reports, is_skipped = Reports(), False
        for value in self._recent(NOTIFICATIONS, count):
            try:
                report = _NOTIFICATION.decode(value)
            except msgspec.MsgspecError:
                continue
            kind = KINDS.get(report.aggregate_type)
            if kind is None:
                continue
            if report.type == SKIPPED:
                is_skipped |= kind == "initial"
                continue
            more, is_skipped = report.additional_data or {}, False
            total = more.get("total_rows_scanned", "")
            rows = int(total) if total.isdigit() else None
            table = more.get("current_collection_in_progress") or more.get("scanned_collection") or ""
            reports.snapshot = Snapshot(kind, report.type, table, rows)
            reports.starts += report.type == STARTED and kind == "initial"
            if report.type == SCANNED and (ended := more.get("status")):
                reports.scans.setdefault(more.get("scanned_collection", ""), []).append(Scan(ended, rows, report.id))
        last = reports.snapshot
        if last is not None and is_skipped and last.kind == "initial" and last.is_running:
            reports.snapshot = replace(last, state=COMPLETED if last.state == SCANNED else SKIPPED)
        return reports

    def last_snapshot(self) -> Snapshot | None:
        """The last snapshot that the connector reported; None if it reported none."""
        return self.reports(RECENT).snapshot

    def last_heartbeat_s(self, engine: type[Database]) -> float | None:
        """The time, in seconds since 1970, of the last heartbeat that was captured; None if there is none."""
        times = (engine.heartbeat_s(value) for value in reversed(self._recent(engine.heartbeats)))
        return next((time_s for time_s in times if time_s is not None), None)

    def _send(self, key: str, document: Mapping[str, Any]) -> None:
        notes = Appender(self._settings, self._names.topic(SIGNALS), "writing a note")
        notes.put(key, json.dumps(document))
        notes.flush()

    def _recent(self, name: str, count: int = RECENT) -> list[bytes]:
        """The last values of a topic with one partition, oldest first; none if it does not exist."""
        topic = self._names.topic(name).removeprefix(self._settings.topic(""))
        if not self.log.stored_ends(topic):
            return []
        first, end = self.log.first(topic, 0), self.log.end(topic, 0)
        return [record.value or b"{}" for record in self.log.read(topic, 0, max(first, end - count), end)]


def last_snapshot(settings: LogSettings, names: SourceNames) -> Snapshot | None:
    """The last snapshot that the connector of a source reported; None if it reported none. Raises LogUnavailable."""
    with closing(ControlTopics(settings, names)) as topics:
        return topics.last_snapshot()
