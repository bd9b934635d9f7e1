"""When an observation is late, as a property of its record, and how long Spark's watermark must wait for that.

An observation is late if `recordedtime - time` is more than the source's `late_after`, live and in any replay. Spark
drops rows by its watermark, which depends on how records fall into batches. So the watermark waits so long that it
never passes an admitted record:

- A batch reads everything that is in the topic when it begins. So a record of a later batch was appended after every
  record of earlier batches, and recorded at most APPENDED_WITHIN before it was appended.
- No record's time is more than MAX_AHEAD after its recording: the API refuses such times, and `event_time` limits
  those of earlier releases.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from commands.declaring.observation import MAX_AHEAD

APPENDED_WITHIN: Final = timedelta(seconds=60)
"""From an observation's recording to its append: how long its producer tries, and how far clocks differ."""
_MILLISECOND: Final = timedelta(milliseconds=1)
_NEVER: Final = "9999-01-01 00:00:00"


def milliseconds(time: timedelta) -> int:
    """A duration in whole milliseconds."""
    return time // _MILLISECOND


def watermark_delay(admitted: timedelta) -> str:
    """The delay of Spark's watermark for a source whose records are admitted up to so late."""
    return f"{milliseconds(admitted + MAX_AHEAD + APPENDED_WITHIN)} milliseconds"


def event_time(time: str, recorded: str, is_heartbeat: str, started: datetime) -> str:
    """Spark SQL of the time of a record: at most MAX_AHEAD after it was recorded, and never null, as in earlier states.

    A record of an earlier release has no time of recording, and was there before the query started; the watermark must
    not follow it into the future. Unlike `started`, `current_timestamp()` would be another number in the code of each
    batch, and Spark would compile the query each time. Heartbeats have no time of recording, and no limit.
    """
    ahead = f"interval {milliseconds(MAX_AHEAD)} milliseconds"
    unknown = f"if({is_heartbeat}, timestamp'{_NEVER}', timestamp_millis({int(started.timestamp() * 1000)}))"
    return f"least({time}, coalesce({recorded}, {unknown}) + {ahead})"


def lateness_ms(time: str, recorded: str) -> str:
    """Spark SQL of how much later than it was observed a record was accepted; 0 if that is not known."""
    return f"coalesce(unix_millis({recorded}) - unix_millis({time}), 0)"
