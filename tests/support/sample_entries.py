"""What the API and the handlers append for the traffic of samples."""

from __future__ import annotations

import orjson

from headwater.commands.declaring.observation import ObservationRegistry, to_entry
from headwater.compose.samples.observed import Report
from headwater.compose.samples.sales import Fact
from headwater.eventlog.envelope import Envelope, encode_event, format_time, timestamp_ms
from headwater.eventlog.ports import Entry
from headwater.eventlog.topics import EVENTS


def entry_of_report(registry: ObservationRegistry, report: Report) -> Entry:
    """The record of an observation, as the API appends it."""
    read = registry.read(report.type, orjson.dumps(report.request.body))
    return to_entry(read, report.recorded, None, None)


def entry_of_fact(fact: Fact) -> Entry:
    """The record of an event, as a handler appends it."""
    key = f"{fact.stream}/{fact.sequence}"
    cause = Envelope(f"c/{key}", "command", fact.stream, fact.time, {})
    times = format_time(fact.time), format_time(fact.recorded)
    value = encode_event(cause, *times, "/headwater", fact.type, 1, fact.sequence, orjson.dumps(fact.data))
    return Entry(EVENTS, key, value, timestamp_ms(fact.time))
