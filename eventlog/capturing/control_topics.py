"""The topics between a connector and its operator: notes about it, and what it reports."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeVar

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from headwater.eventlog.capturing.control_notes import DATA_COLLECTIONS, UNREAD, Notes
from headwater.eventlog.capturing.naming import NOTIFICATIONS, SIGNALS, SourceNames
from headwater.eventlog.capturing.ports import Engine
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.kafka.appender import Appender
from headwater.eventlog.kafka.client import EOF, TIMEOUT_S, reader_config
from headwater.eventlog.settings import LogSettings

ABSENT: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC})
MOVING: Final = frozenset({KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE})
"""A topic that was created a moment ago has no leader yet that everybody knows."""
RECENT: Final = 500
"""How many records from the end of a topic are read."""
ALL: Final = sys.maxsize
"""How many are read to find tables that were noted, however long ago."""
SCANS: Final = 50_000
"""How many are read to find tables that were not read: a snapshot reports each of its chunks."""

Kind = Literal["initial", "incremental"]
KINDS: Final[Mapping[str, Kind]] = {"Initial Snapshot": "initial", "Incremental Snapshot": "incremental"}
"""Of snapshots, by their names in Debezium's notifications."""
SKIPPED: Final = "SKIPPED"
"""What a restarted connector reports of the snapshot that it has made before, or takes for made."""
STARTED: Final = "STARTED"
COMPLETED: Final = "COMPLETED"
SCANNED: Final = "TABLE_SCAN_COMPLETED"
"""What it reports of each table of a snapshot at its end, with how that went."""
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
    told to read it.
    """

    ended: str
    rows: int | None = None
    signal: str = ""

    @property
    def is_read(self) -> bool:
        """Whether its rows were read."""
        return self.ended in READ

    def is_read_since(self, signal: str) -> bool:
        """Whether its rows were read after this signal was given."""
        return self.is_read and bool(self.signal) and _number(self.signal) >= _number(signal)


@dataclass(frozen=True, slots=True)
class Reports:
    """What a connector reports. scans: of each table, the last one. starts: of its first snapshot."""

    scans: Mapping[str, Scan]
    starts: int


def _number(signal: str) -> int:
    number = signal.rpartition("-")[2]
    return int(number) if number.isascii() and number.isdigit() else 0


def new_signal(names: SourceNames) -> str:
    """The id of a signal that is to be given; those of later ones are greater."""
    return f"{names.connector}-{time.time_ns()}"


def note_unread(settings: LogSettings, names: SourceNames, tables: Sequence[str]) -> None:
    """Note that the rows of these tables are to be read, until SNAPSHOT is noted of them; raises LogUnavailable."""
    note(settings, names, UNREAD, {DATA_COLLECTIONS: tables})


def note(settings: LogSettings, names: SourceNames, kind: str, data: Mapping[str, Any]) -> None:
    """Keep a note until the source is removed; raises LogUnavailable.

    The connector ignores it, because its key is not the connector's name.
    """
    _send(settings, names, f"{names.connector}.{kind}", {"type": kind, "data": data})


def last_note(settings: LogSettings, names: SourceNames, *kinds: str) -> Mapping[str, Any] | None:
    """What the last note of one of these kinds says; None if there is none. Raises LogUnavailable."""
    for value in reversed(_recent(settings, names.topic(SIGNALS), ALL)):
        sent = _decoded(_SIGNAL, value)
        if sent is not None and sent.type in kinds:
            return sent.data
    return None


def notes(settings: LogSettings, names: SourceNames) -> Notes:
    """What was noted since the source was applied, and signalled; raises LogUnavailable."""
    found = Notes()
    for value in _recent(settings, names.topic(SIGNALS), ALL):
        sent = _decoded(_SIGNAL, value)
        if sent is not None and "additional-conditions" not in sent.data:  # it reads some of the rows
            found.add(sent.type, sent.data)
    return found


def _send(settings: LogSettings, names: SourceNames, key: str, document: Mapping[str, Any]) -> None:
    notes = Appender(settings, names.topic(SIGNALS), "writing a note")
    notes.put(key, json.dumps(document))
    notes.flush()


def last_snapshot(settings: LogSettings, names: SourceNames) -> Snapshot | None:
    """The last snapshot that the connector reported; None if it reported none. Raises LogUnavailable.

    A connector that failed after the last row, before it reported the end, reports at its next start that it skips the
    initial snapshot: it is completed. One that failed before the first row was stored reports the same, although it has
    read nothing: that snapshot is SKIPPED.
    """
    is_skipped = False
    for value in reversed(_recent(settings, names.topic(NOTIFICATIONS))):
        report = _decoded(_NOTIFICATION, value)
        kind = KINDS.get(report.aggregate_type) if report else None
        if report and kind and report.type == SKIPPED:
            is_skipped |= kind == "initial"
        elif report and kind:
            more = report.additional_data or {}
            rows = more.get("total_rows_scanned", "")
            table = more.get("current_collection_in_progress") or more.get("scanned_collection") or ""
            found = Snapshot(kind, report.type, table, int(rows) if rows.isdigit() else None)
            if is_skipped and kind == "initial" and found.is_running:
                return replace(found, state=COMPLETED if found.state == SCANNED else SKIPPED)
            return found
    return None


def reports(settings: LogSettings, names: SourceNames) -> Reports:
    """What the connector has reported of tables, as far as that is kept; raises LogUnavailable."""
    starts, found = 0, dict[str, Scan]()
    for value in _recent(settings, names.topic(NOTIFICATIONS), SCANS):
        report = _decoded(_NOTIFICATION, value)
        kind = KINDS.get(report.aggregate_type) if report else None
        if report is None or kind is None:
            continue
        if report.type == STARTED and kind == "initial":
            starts += 1
        more = report.additional_data or {}
        rows, ended = more.get("total_rows_scanned", ""), more.get("status", "")
        if report.type == SCANNED and ended:
            found[more.get("scanned_collection", "")] = Scan(ended, int(rows) if rows.isdigit() else None, report.id)
    return Reports(found, starts)


def last_heartbeat_s(settings: LogSettings, names: SourceNames, engine: Engine) -> float | None:
    """The time, in seconds since 1970, of the last heartbeat that was captured; None if there is none.

    Raises LogUnavailable.
    """
    for value in reversed(_recent(settings, names.topic(engine.heartbeats))):
        found = engine.heartbeat_s(value)
        if found is not None:
            return found
    return None


def _decoded(decoder: msgspec.json.Decoder[Form], value: bytes) -> Form | None:
    """What a value says; None if it has another form, as one that an application wrote may have."""
    try:
        return decoder.decode(value)
    except msgspec.MsgspecError:
        return None


def _recent(settings: LogSettings, topic: str, count: int = RECENT) -> list[bytes]:
    """The last values of a topic with one partition, oldest first."""
    consumer = Consumer(reader_config(settings, **{"fetch.wait.max.ms": 10}))
    try:
        low, high = _bounds(consumer, topic)
        consumer.assign([TopicPartition(topic, 0, max(low, high - count) or OFFSET_BEGINNING)])
        return _until_end(consumer, topic)
    except KafkaException as error:
        if error.args[0].code() in ABSENT:
            return []
        raise LogUnavailable(f'reading "{topic}"', error.args[0].str()) from error
    finally:
        consumer.close()


def _bounds(consumer: Consumer, topic: str) -> tuple[int, int]:
    """Where a topic with one partition begins and ends."""
    for attempt in Retrying(
        retry=retry_if_exception(lambda error: isinstance(error, KafkaException) and error.args[0].code() in MOVING),
        stop=stop_after_delay(TIMEOUT_S),
        wait=wait_fixed(0.1),
        reraise=True,
    ):
        with attempt:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)
    return low, high


def _until_end(consumer: Consumer, topic: str) -> list[bytes]:
    found: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        record = consumer.poll(1.0)
        if record is None:
            continue
        error = record.error()
        if error is None:
            found.append(record.value() or b"{}")
        elif error.code() == EOF:
            return found
        else:
            raise KafkaException(error)
    raise LogUnavailable(f'reading "{topic}"', "its end was not reached in time")
