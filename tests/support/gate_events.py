"""Events of gates and their records: what `tests.support.observed` has as observations."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
from pyspark.sql import Row

from headwater import StreamView, events, rename, upcast
from headwater.commands.declaring.aggregate import Event
from headwater.commands.handling.command_task import heartbeat
from headwater.eventlog.envelope import Envelope, encode_event, format_time, timestamp_ms
from tests.support.observed import Report, gate_view
from tests.support.spark_rows import record

CAME = "gate.came"


class Entered(Event, type="gate.entered", version=2, history=[upcast(1, rename("load", "weight"), recorded_as=CAME)]):
    """Before version 2 the weight was called a load, and the event `gate.came`."""

    gate: str
    weight: int | None


class Locked(Event, type="gate.locked"):
    """A gate was locked."""

    gate: str
    verdict: str


def entered_view(**changes: Any) -> StreamView:
    """The view `gates` over events; the argument of its query keeps its name."""
    return gate_view(**{"sources": {"passed": events(Entered, late_after="10m")}} | changes)


def document(report: Report, sequence: int, kind: type[Event] = Entered, **data: Any) -> bytes:
    """What a handler writes for a command that was accepted at `time` and decided at `recorded`.

    Every other one has the first version.
    """
    command = Envelope(f"c{report.number}", "gate.enter", f"gate/{report.gate}", report.time, {})
    version = 1 + report.number % 2 if kind is Entered else kind.version
    fields = data or {"gate": report.gate, "weight" if version == 2 else "load": report.weight}
    times = format_time(report.time), format_time(report.recorded)
    return encode_event(
        command, *times, "/headwater/gate", kind.history.type_of(version), version, sequence, orjson.dumps(fields)
    )


def event_of(report: Report, partition: int = 0) -> Row:
    """The record of an event; its sequence is the report's number, from 1."""
    sequence = report.number + 1
    value = document(report, sequence)
    return raw_event(f"gate/{report.gate}/{sequence}", value, report.time, partition)


def raw_event(key: str | None, value: bytes | None, time: datetime, partition: int = 0) -> Row:
    """A record of `events`."""
    return record(partition, 0, key, value, timestamp_ms(time))


def owner_s_beat(time: datetime, partition: int = 0) -> Row:
    """The heartbeat of a partition's owner."""
    entry = heartbeat(partition, time)
    at = datetime.fromtimestamp(entry.timestamp_ms / 1000, UTC)
    return raw_event(entry.key, entry.value, at, partition)
