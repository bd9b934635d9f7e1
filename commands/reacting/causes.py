"""What the commands of a process follow from: events, and timers, which are set by them."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from headwater.commands.handling.handler import LAST_TIME_MS
from headwater.eventlog.envelope import timestamp_ms

FIRST_TIME_MS: Final = timestamp_ms(datetime.min.replace(tzinfo=UTC))
"""The first time that Python has, since 1970; LAST_TIME_MS is the last one."""

TIMED_OUT: Final = "headwater.timed_out"
"""Type of the envelope in the dead letter of a timer at which `react` failed, and what spans call its cause."""


class Cause(NamedTuple):
    """The cause of commands: part of their ids, its time, and the ids that they carry on."""

    id: str
    time: datetime
    causation_id: str
    correlation_id: str | None
    traceparent: str | None = None


class Timer(NamedTuple):
    """When a timer fires (ms since 1970), which event set it, and the context of the reaction, if that is sampled."""

    due_ms: int
    causation_id: str
    correlation_id: str | None
    traceparent: str | None = None


def due_ms(time: datetime, within: timedelta) -> int:
    """When a timer fires that was set at `time`; one beyond the years of Python fires at their end."""
    try:
        return timestamp_ms(time + within)
    except OverflowError:
        return LAST_TIME_MS if within > timedelta(0) else FIRST_TIME_MS


def digest(cause_id: str) -> str:
    """Digest of the id of an event or a timer, which may be long."""
    return hashlib.blake2b(cause_id.encode(errors="surrogateescape"), digest_size=8).hexdigest()


def timer_id(key: str, name: str, timer: Timer) -> str:
    """Part of the ids of a timer's commands; it differs each time the timer is set."""
    return f"{key}/{name}@{timer.due_ms}"
