"""What helps if a connector stops at a value or a row: Debezium names neither table nor column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headwater.eventlog.limits import MAX_RECORD_BYTES

TOO_LARGE: Final = (
    f"a row needs more than {MAX_RECORD_BYTES:,} bytes: shorten a long column with Truncated(…), or take it out of its "
    "class, and run headwater sources apply, which goes on where it stopped, and loses nothing; if it is a "
    "command in the write-ahead log, declare outbox=False, apply, and apply with outbox=True again: commands that were "
    "written up to then are left out"
)
ADVICE: Final[Mapping[str, str]] = {
    "max.request.size": TOO_LARGE,  # of Connect's producer
    "larger than the max message size": TOO_LARGE,  # of the topic
    "unparsed text found": (
        "a time with time zone has an offset with seconds: take its column out of its class, and run "
        "headwater sources apply, which goes on where it stopped"
    ),
    "Conversion of interval failed": (
        "an interval has 2147483648 hours or more: take its column out of its class, and run "
        "headwater sources apply, which goes on where it stopped"
    ),
}
"""By words in the reason."""


def with_advice(reason: str) -> str:
    """The reason for which a connector failed, with what helps if that is known."""
    return next((f"{reason}; {advice}" for words, advice in ADVICE.items() if words in reason), reason)
