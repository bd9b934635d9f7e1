"""What the commands of a process follow from: events, timers, and the places where routers have read them.

The places tell what an instance has handled, however many streams it hears of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import msgspec
from msgspec import structs

from headwater.commands.handling.handler import LAST_TIME_MS
from headwater.commands.handling.refusals import REFUSED
from headwater.eventlog.envelope import Envelope, timestamp_ms
from headwater.eventlog.errors import NotAnEnvelope

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


class Timer(msgspec.Struct, frozen=True):
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


Places = Mapping[str, Mapping[str, int]]
"""By source and by type of the input, the offset of the last record that an instance has handled."""


class SourcePlace(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={"source": "routedfrom", "offset": "routedoffset", "is_retried": "routedagain"},
):
    """The place of one record; as JSON, these are the last members of a record of `process-inbox`.

    source: its topic and partition, `events/3`; of a topic of rows with its id, `views.alerts@AbC/3`; of another topic
    `events` than the first one with its number, `events@1/3`.
    is_retried: whether it is sent again although later records of its source may have been handled.
    """

    source: str
    offset: int
    is_retried: bool = False


_SUFFIX: Final = msgspec.json.Decoder(SourcePlace)
_START: Final = b',"routedfrom":"'
MAX_SUFFIX_BYTES: Final = 1_000


def placed(value: bytes, place: SourcePlace) -> bytes:
    """The JSON document of an envelope with its place, which readers of envelopes ignore."""
    # appended to the text, because reading and writing an event of megabytes costs more than routing it
    return value.rstrip()[:-1] + b"," + msgspec.json.encode(place)[1:]


def place_of(value: bytes | None, envelope: Envelope) -> SourcePlace:
    """The place of a record of `process-inbox`; raises NotAnEnvelope if no router has written it."""
    if envelope.type in (REFUSED, TIMED_OUT):  # these are no copies
        return SourcePlace(envelope.stream, envelope.sequence - 1)
    return _split(value or b"")[1]


def retried(value: bytes) -> bytes:
    """A record of `process-inbox` that its instance handles although it has handled later ones of the same source."""
    copy, place = _split(value)
    return placed(copy, structs.replace(place, is_retried=True))


def _split(value: bytes) -> tuple[bytes, SourcePlace]:
    """A record without its place, and its place; raises NotAnEnvelope if it has none."""
    at = value.rfind(_START, -MAX_SUFFIX_BYTES)
    try:
        place = _SUFFIX.decode(b"{" + value[at + 1 :] if at >= 0 else b"")
    except (msgspec.MsgspecError, UnicodeError) as error:  # there is none, or it is in the data of the record
        raise NotAnEnvelope("it does not say where a router has read it") from error
    return value[:at] + b"}", place


def has_passed(places: Places, place: SourcePlace, kind: str) -> bool:
    """Whether a record of this type at this place was handled, or is older than one that was."""
    return place.offset <= places.get(place.source, {}).get(kind, -1)


def source_of(topic: str, partition: int, number: int) -> str:
    """The source of the records of a partition. number: of the topic of this name, see ReadTopic."""
    return f"{topic}@{number}/{partition}" if number else f"{topic}/{partition}"


def _parts(source: str) -> tuple[str, str]:
    """The topic and the partition of a source, whichever topic of this name it is."""
    topic, _, partition = source.rpartition("/")
    return topic.partition("@")[0], partition


def passed(places: Places, place: SourcePlace, kind: str) -> Places:
    """The places after the record; those of a topic of the same name that was made before it are left out."""
    own = _parts(place.source)
    former = {source for source in places if source != place.source and _parts(source) == own}
    here = places.get(place.source, {})
    last = {kind: max(place.offset, here.get(kind, -1))}
    return {
        **{source: offset for source, offset in places.items() if source not in former},
        place.source: {**here, **last},
    }
