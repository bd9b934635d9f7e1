"""Whether a connector has captured the binary log up to a place, although it goes on behind the last change of a row.

Debezium stores where it goes on after each change, after a commit only with the next sign of life of the server, and
never after a statement such as TRUNCATE. So what follows its place is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from eventlog.capturing.mysql.database import CapturedServer
from eventlog.capturing.mysql.positions import file_number

WITHOUT_ROWS: Final = frozenset({
    "Format_desc", "Gtid_list", "Previous_gtids", "Binlog_checkpoint", "Start_encryption", "Rotate", "Stop",
    "Gtid", "Anonymous_Gtid", "Query",
})  # fmt: skip
"""Types of events, of which none has or commits changes of rows: those have others beside them."""
NO_EVENT: Final = 1220
"""There is no event at this position, or no such file."""
EVENTS: Final = 500
"""How many are read at once."""


def has_captured(server: CapturedServer, offset: Mapping[str, Any], end: Mapping[str, Any]) -> bool:
    """Whether no changes of rows are between where a connector goes on and `end`; False if that is not known.

    offset, end: each with the `file` and the `pos` of the log. Raises SourceProblem.
    """
    file, pos = str(offset.get("file", "")), int(offset.get("pos", 0))
    if (file_number(file), pos) >= (file_number(str(end["file"])), int(end["pos"])):
        return True
    logs = list(server.logs() or {})
    if file not in logs or end["file"] not in logs:
        return False
    for name in logs[logs.index(file) : logs.index(str(end["file"])) + 1]:
        for kind in _kinds(server, name, pos if name == file else 4, int(end["pos"]) if name == end["file"] else None):
            if kind not in WITHOUT_ROWS:
                return False
    return True


def _kinds(server: CapturedServer, file: str, pos: int, end: int | None) -> Iterator[str | None]:
    """The types of the events of a log from a position on, up to another one; None if they cannot be read."""
    query = "SHOW BINLOG EVENTS IN %(file)s FROM %(pos)s LIMIT %(events)s"
    while end is None or pos < end:
        events = server.try_rows(query, {"file": file, "pos": pos, "events": EVENTS}, refused=frozenset({NO_EVENT}))
        if events is None:
            yield None
            return
        for event in events:
            if end is None or int(event["Pos"]) < end:
                yield str(event["Event_type"])
        if len(events) < EVENTS:
            return
        pos = int(events[-1]["End_log_pos"])
