"""How far a PostgreSQL source has been captured: the last transaction whose changes are all in the log.

The connector reads the write-ahead log in the order of commits, and appends the end of each transaction to the topic
`transaction` after its changes, in the same transaction of Kafka or a later one. Every heartbeat is a transaction, too.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from headwater.eventlog.capturing.declaring import Source
from headwater.eventlog.capturing.naming import TRANSACTIONS, topic_about
from headwater.eventlog.capturing.positions import lsn_text
from headwater.eventlog.ports import EventLog

FIRST_SPAN: Final = 32
"""How many offsets before the end are read at first: a transaction has about three."""
GROWTH: Final = 16


class Commit(NamedTuple):
    """A transaction of a source's database.

    lsn: where it ends in the write-ahead log, in bytes. time_ms: when it was committed, since 1970, by the clock of the
    database.
    """

    lsn: int
    time_ms: int

    def __str__(self) -> str:
        return lsn_text(self.lsn)


class _Boundary(msgspec.Struct):
    status: str
    id: str
    """Number of the transaction, and position in bytes: `571:53195832`."""
    ts_ms: int = 0


_BOUNDARY: Final = msgspec.json.Decoder(_Boundary)


class Progress:
    """How far one source has been captured; safe to use from several threads."""

    def __init__(self, log: EventLog, source: Source) -> None:
        self._log, self._topic = log, topic_about(source, TRANSACTIONS)
        self._is_created = False

    def last_commit(self) -> Commit | None:
        """The last transaction whose changes, and those of all before it, are in the log.

        None if there is none yet, or retention has deleted it. Raises LogUnavailable.
        """
        # asking for the end of a topic that does not exist takes long
        if not self._is_created and not self._log.stored_ends(self._topic):
            return None
        self._is_created = True
        first, end, span = self._log.first(self._topic, 0), self._log.end(self._topic, 0), FIRST_SPAN
        while first < end:
            start = max(first, end - span)
            for record in reversed(list(self._log.read(self._topic, 0, start, end))):
                with suppress(msgspec.MsgspecError):
                    boundary = _BOUNDARY.decode(record.value or b"")
                    lsn = boundary.id.rpartition(":")[2]
                    if boundary.status == "END" and lsn.isascii() and lsn.isdigit():
                        return Commit(int(lsn), boundary.ts_ms)
            end, span = start, span * GROWTH
        return None
