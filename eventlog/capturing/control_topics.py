"""The topics between a connector and its operator: signals to it, and what it reports."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeVar

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from eventlog.capturing.naming import NOTIFICATIONS, SIGNALS, SourceNames
from eventlog.capturing.ports import Engine
from eventlog.errors import LogUnavailable
from eventlog.kafka_client import EOF, READER, TIMEOUT_S, WRITER, client_config
from eventlog.settings import LogSettings

ABSENT: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC})
RECENT: Final = 500
"""How many records from the end of a topic are read."""


Kind = Literal["initial", "incremental"]
KINDS: Final[Mapping[str, Kind]] = {"Initial Snapshot": "initial", "Incremental Snapshot": "incremental"}
"""Of snapshots, by their names in Debezium's notifications."""
SKIPPED: Final = "SKIPPED"
"""What a restarted connector reports of the snapshot that it has made before."""
COMPLETED: Final = "COMPLETED"


class _Notification(msgspec.Struct):
    aggregate_type: str
    type: str
    additional_data: dict[str, str] | None = None


Form = TypeVar("Form")
_NOTIFICATION: Final = msgspec.json.Decoder(_Notification)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The last snapshot that a connector reported.

    kind: `initial` or `incremental`. state: as Debezium calls it, such as `IN_PROGRESS` or `COMPLETED`. table: that it
    reads, or has read last. rows: of that table, as far as reported.
    """

    kind: Kind
    state: str
    table: str = ""
    rows: int | None = None

    @property
    def is_running(self) -> bool:
        """Whether rows are still to be read."""
        return self.state in ("STARTED", "IN_PROGRESS", "TABLE_SCAN_COMPLETED", "RESUMED")


def signal(settings: LogSettings, names: SourceNames, kind: str, data: Mapping[str, Any]) -> None:
    """Send a signal to the connector of a source; raises LogUnavailable."""
    producer = Producer(client_config(settings, **WRITER))
    document = {"id": f"{names.connector}-{time.time_ns()}", "type": kind, "data": data}
    errors: list[KafkaError] = []
    producer.produce(
        names.topic(SIGNALS),
        key=names.connector,
        value=json.dumps(document),
        on_delivery=lambda error, _: errors.append(error) if error else None,
    )
    if producer.flush(TIMEOUT_S) or errors:
        raise LogUnavailable("sending a signal", errors[0].str() if errors else "no answer")


def last_snapshot(settings: LogSettings, names: SourceNames) -> Snapshot | None:
    """The last snapshot that the connector reported; None if it reported none. Raises LogUnavailable.

    A connector that failed after the last row, before it reported the end, reports at its next start that it skips the
    initial snapshot: it is completed.
    """
    is_complete = False
    for value in reversed(_recent(settings, names.topic(NOTIFICATIONS))):
        report = _decoded(_NOTIFICATION, value)
        kind = KINDS.get(report.aggregate_type) if report else None
        if report and kind and report.type == SKIPPED:
            is_complete |= kind == "initial"
        elif report and kind:
            more = report.additional_data or {}
            rows = more.get("total_rows_scanned", "")
            table = more.get("current_collection_in_progress") or more.get("scanned_collection") or ""
            found = Snapshot(kind, report.type, table, int(rows) if rows.isdigit() else None)
            return replace(found, state=COMPLETED) if is_complete and kind == "initial" and found.is_running else found
    return None


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


def _recent(settings: LogSettings, topic: str) -> list[bytes]:
    """The last values of a topic with one partition, oldest first."""
    consumer = Consumer(client_config(settings, **READER, **{"group.id": f"{settings.environment}.sources"}))
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)
        consumer.assign([TopicPartition(topic, 0, max(low, high - RECENT) or OFFSET_BEGINNING)])
        return _until_end(consumer, topic)
    except KafkaException as error:
        if error.args[0].code() in ABSENT:
            return []
        raise LogUnavailable(f'reading "{topic}"', error.args[0].str()) from error
    finally:
        consumer.close()


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
