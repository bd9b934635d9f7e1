"""When a record is late, as a property of itself, and how long Spark's watermark must wait for that.

An observation or event is late if `recordedtime - time` is more than the source's `late_after`, live and in any replay.
Spark drops rows by its watermark, which depends on how records fall into batches. So the watermark waits so long that
it never passes an admitted record:

- A batch reads everything that can be read when it begins. So a record of a later batch could be read after every
  record of earlier batches, and was recorded at most READABLE_WITHIN before it could be read.
- No record's time is more than MAX_AHEAD after its recording: the API refuses such times, and `event_time` limits
  those of other records.

An event can be read when its transaction ends, which begins right after the decisions and is aborted by Kafka after
10 s, or by the next owner; then its command is decided again. Of several sources, the slowest watermark counts.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from headwater.commands.declaring.observation import MAX_AHEAD

READABLE_WITHIN: Final = timedelta(seconds=60)
"""From a record's recording until it can be read: how long a producer tries or a handler decides, how long a
transaction takes, and how far clocks differ."""
_MILLISECOND: Final = timedelta(milliseconds=1)
_NEVER: Final = "9999-01-01 00:00:00"


def milliseconds(time: timedelta) -> int:
    """A duration in whole milliseconds."""
    return time // _MILLISECOND


def watermark_delay(admitted: timedelta) -> str:
    """The delay of Spark's watermark for a source whose records are admitted up to so late."""
    return f"{milliseconds(admitted + MAX_AHEAD + READABLE_WITHIN)} milliseconds"


def event_time(time: str, recorded: str, is_heartbeat: str, started: datetime) -> str:
    """Spark SQL of the time of a record: at most MAX_AHEAD after it was recorded, and never null.

    A tombstone, or a record that is no event, has no time of recording; the watermark must not follow it into the
    future. Unlike `started`, `current_timestamp()` would be another
    number in the code of each batch, and Spark would compile the query each time. Heartbeats have no time of recording,
    and no limit.
    """
    ahead = f"interval {milliseconds(MAX_AHEAD)} milliseconds"
    unknown = f"if({is_heartbeat}, timestamp'{_NEVER}', timestamp_millis({int(started.timestamp() * 1000)}))"
    return f"least({time}, coalesce({recorded}, {unknown}) + {ahead})"


def lateness_ms(time: str, recorded: str) -> str:
    """Spark SQL of how much later than its time a record was recorded; 0 if that is not known."""
    return f"coalesce(unix_millis({recorded}) - unix_millis({time}), 0)"
