"""What a binary log has between the place where a connector goes on and a later one: changes of rows, or statements.

Debezium stores where it goes on after each change, after a commit only with the next sign of life of the server, and
before a statement such as TRUNCATE or ALTER TABLE until the next transaction. So what follows its place is looked at.

Debezium 3.6 also counts signs of life as events of such a statement, and skips as many events of the next transactions
when it starts again: rows that changed then would be lost. And when it starts before a statement, it reads rows by the
definition from before it. So a connector that is started goes on behind the statements that it has read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from headwater.eventlog.capturing.database import StoredStatements
from headwater.eventlog.capturing.mysql.database import BinlogConnection
from headwater.eventlog.capturing.positions import file_number

BETWEEN: Final = frozenset({
    "Format_desc", "Gtid_list", "Previous_gtids", "Binlog_checkpoint", "Start_encryption", "Rotate", "Stop",
})  # fmt: skip
"""Types of events that belong to no transaction."""
BEGINNINGS: Final = frozenset({"Gtid", "Anonymous_Gtid"})
STATEMENT: Final = "Query"
"""The type of an event that has no changes of rows: those have others beside them."""
NO_EVENT: Final = 1220
"""There is no event at this position, or no such file."""
EVENTS: Final = 500
"""How many are read at once."""
READ_EVENTS: Final = 2
"""A statement is read once so many of its events are: that with its GTID, and itself."""
_GTID: Final = re.compile(r"(?:(BEGIN) )?GTID (\d+-\d+-\d+)|SET @@SESSION\.GTID_NEXT= '([^':]+:\d+)'")
"""How MariaDB, and MySQL, show the GTID of a transaction; MariaDB's begins with BEGIN if it is no statement."""


@dataclass(slots=True)
class _Transaction:
    """A part of the log, as far as it was read. gtid: empty if it has none. file, end: where it ends."""

    gtid: str
    file: str
    end: int
    is_statement: bool = False
    has_rows: bool = False


def has_captured(
    server: BinlogConnection, offset: Mapping[str, Any], end: Mapping[str, Any], stored: StoredStatements = frozenset
) -> bool:
    """Whether only statements that are read are between where a connector goes on and `end`; False if it is not known.

    offset, end: each with the `file` and the `pos` of the log. Raises SourceProblem.
    """
    at, until = (
        (file_number(str(position.get("file", ""))), int(position.get("pos", 0))) for position in (offset, end)
    )
    if at >= until:
        return True
    known = cache(stored)
    for transaction in _transactions(server, offset, end):
        if transaction is None or transaction.has_rows:
            return False
        if transaction.is_statement and transaction.gtid and not _is_read(transaction.gtid, offset, known):
            return False
    return True


def past_statements(
    server: BinlogConnection, offset: Mapping[str, Any], stored: StoredStatements
) -> dict[str, Any] | None:
    """The offset behind the statements that a connector has read, with nothing to skip; None if there are none.

    A log without GTIDs has none: there, Debezium itself goes on behind a statement. Raises SourceProblem.
    """
    if not (gtids := offset.get("gtids")):
        return None
    passed, known = None, cache(stored)
    for transaction in _transactions(server, offset, None):
        if (
            transaction is None
            or transaction.has_rows
            or not transaction.is_statement
            or not _is_read(transaction.gtid, offset, known)
        ):
            break
        gtids, passed = with_gtid(gtids, transaction.gtid), transaction
    if passed is None:
        return None
    left = {name: value for name, value in offset.items() if name not in ("event", "row") and "transaction" not in name}
    return {**left, "file": passed.file, "pos": passed.end, "gtids": gtids}


def with_gtid(gtids: str, gtid: str) -> str:
    """GTIDs, as Debezium stores them, with the next one: `0-7-16` of MariaDB, or `UUID:1-16` of MySQL."""
    entries = gtids.split(",")
    if ":" not in gtid:
        domain = gtid.partition("-")[0]
        return ",".join([*(entry for entry in entries if entry.partition("-")[0] != domain), gtid])
    server, _, number = gtid.partition(":")
    for index, entry in enumerate(entries):
        if entry.partition(":")[0] == server:
            earlier, _, last = entry.rpartition(":")
            first, _, highest = last.partition("-")
            follows = int(highest or first) + 1 == int(number)
            entries[index] = f"{earlier}:{first}-{number}" if follows else f"{entry}:{number}"
            return ",".join(entries)
    return ",".join([*entries, gtid])


def _is_read(gtid: str, offset: Mapping[str, Any], stored: StoredStatements) -> bool:
    """Whether a connector has read this statement: some are not stored, such as GRANT."""
    is_counted = gtid == offset.get("transaction_id") and int(offset.get("event", 0)) >= READ_EVENTS
    return is_counted or gtid in stored()


def _transactions(
    server: BinlogConnection, offset: Mapping[str, Any], end: Mapping[str, Any] | None
) -> Iterator[_Transaction | None]:
    """What is between two places, until rows change; None if it cannot be read. end: None for the end of the log."""
    logs, first = list(server.logs() or {}), str(offset.get("file", ""))
    last = logs[-1] if end is None and logs else str((end or {}).get("file", ""))
    if first not in logs or last not in logs:
        yield None
        return
    transaction: _Transaction | None = None
    for file in logs[logs.index(first) : logs.index(last) + 1]:
        start, stop = (int(offset.get("pos", 0)) if file == first else 4), None
        if end is not None and file == last:
            stop = int(end["pos"])
        for event in _events(server, file, start, stop):
            if event is None:
                yield None
                return
            kind, text, at = str(event["Event_type"]), str(event.get("Info") or ""), int(event["End_log_pos"])
            if kind in BETWEEN:
                continue
            if kind in BEGINNINGS:
                if transaction is not None:
                    yield transaction
                gtid = _GTID.match(text)
                transaction = _Transaction((gtid[2] or gtid[3]) if gtid else "", file, at)
                continue
            transaction = transaction or _Transaction("", file, at)
            transaction.file, transaction.end, transaction.has_rows = file, at, kind != STATEMENT
            if transaction.has_rows:
                yield transaction
                return
            transaction.is_statement = transaction.is_statement or not text.startswith(("BEGIN", "COMMIT"))
    if transaction is not None:
        yield transaction


def _events(server: BinlogConnection, file: str, pos: int, end: int | None) -> Iterator[Mapping[str, Any] | None]:
    """The events of a log from a position on, up to another one; None if they cannot be read."""
    query = "SHOW BINLOG EVENTS IN %(file)s FROM %(pos)s LIMIT %(events)s"
    while end is None or pos < end:
        events = server.try_rows(query, {"file": file, "pos": pos, "events": EVENTS}, refused=frozenset({NO_EVENT}))
        if events is None:
            yield None
            return
        for event in events:
            if end is None or int(event["Pos"]) < end:
                yield event
        if len(events) < EVENTS:
            return
        pos = int(events[-1]["End_log_pos"])
