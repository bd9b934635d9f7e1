"""What is noted of a source in the topic `signals`: it is kept until the source is removed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from headwater.eventlog.capturing.ports import Layout, Missed
from headwater.eventlog.capturing.uncaptured_statements import Searched

SNAPSHOT: Final = "execute-snapshot"
"""A note: tables that the connector was told to read."""
UNREAD: Final = "unread"
"""A note: tables that are to be read, and of which the connector was not told yet."""
SERVER: Final = "server"
"""A note: which server is captured."""
FIRST_SNAPSHOT: Final = "first-snapshot"
"""A note: the tables that a new connector is to read, each with where its topic ended."""
FAILED: Final = "failed"
"""A note: tables whose last snapshot failed, each with how Debezium calls the reason."""
WAS_READ: Final = "read"
"""A note: tables whose rows were read."""
LAYOUTS: Final = "layouts"
"""A note: how tables are stored in the database, since when all their changes are captured."""
MISSED: Final = "missed"
"""A note: tables with changes that were not captured, each with these; a later change may hide them."""
SEARCHED: Final = "exchanged"
"""A note: how far the history of definitions was searched for statements that no other note is about."""
MENDED: Final = "mended"
"""A note: tables that were noted as to be read or swept because of such changes."""
READING: Final = "reading"
"""A note: tables that are to be read again, each with the signal that says so."""
UNSWEPT: Final = "unswept"
"""A note: tables whose topics may have rows that the tables no longer have."""
SWEPT: Final = "swept"
"""A note: tables that were swept."""
STOPPED: Final = "stopped"
"""A note: a command stops the connector, with the state to which it brings it back."""
BROUGHT_BACK: Final = "brought-back"
"""A note: it has done so."""
SKIPPED_CHANGES: Final = "skipped-changes"
"""A note: why changes are missing."""
SINCE: Final = "since"
"""In a note of failed tables: a signal after which they must be read."""
DATA_COLLECTIONS: Final = "data-collections"
"""The tables in a note."""


@dataclass(slots=True)
class Notes:
    """What the notes say together.

    unread: tables that were declared later and not read. first: tables that a first snapshot is to read, each with
    where the partitions of its topic ended. failed: tables whose last snapshot failed, with the reason.
    failed_since: the signals after which some of these must be read, because the connector reported no end.
    reading: tables that the connector was told to read and that are not known to be read, each with the signal.
    unswept: tables whose topics may have rows that are gone. starts: of the first snapshot, as far as noted.
    layouts: of tables, as they were noted last. missed: changes of tables that were not captured, as they were
    found. searched: how far the history of definitions was searched for such statements.
    """

    unread: set[str] = field(default_factory=set)
    first: dict[str, dict[int, int]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    failed_since: dict[str, str] = field(default_factory=dict)
    reading: dict[str, str] = field(default_factory=dict)
    unswept: set[str] = field(default_factory=set)
    starts: int = 1
    layouts: dict[str, Layout] = field(default_factory=dict)
    missed: dict[str, list[Missed]] = field(default_factory=dict)
    searched: Searched = field(default_factory=Searched)

    def add(self, kind: str, data: Mapping[str, Any]) -> None:  # noqa: PLR0912 - a branch per kind
        """Take in the next one."""
        found = data.get(DATA_COLLECTIONS)
        tables, by_table = found if isinstance(found, list) else [], found if isinstance(found, dict) else {}
        if kind == UNREAD:
            self.unread |= set(tables)
        elif kind == SNAPSHOT:
            self.unread -= set(tables)
            self._forget(self.first, tables)
        elif kind == FIRST_SNAPSHOT:
            self.first = {name: {int(at): end for at, end in ends.items()} for name, ends in by_table.items()}
        elif kind == FAILED:
            self.failed |= by_table
            since = data.get(SINCE)
            self.failed_since |= dict.fromkeys(by_table, since) if isinstance(since, str) else {}
        elif kind == WAS_READ:
            for found_earlier in (self.first, self.failed, self.failed_since, self.reading):
                self._forget(found_earlier, tables)
        elif kind == READING:
            self.reading |= {name: str(each) for name, each in by_table.items()}
        elif kind == LAYOUTS:
            self.layouts |= {name: layout for name, each in by_table.items() if (layout := _layout(each))}
        elif kind == MISSED:
            for name, each in by_table.items():
                earlier = self.missed.setdefault(name, [])
                earlier += [one for one in _missed(each) if one not in earlier]
        elif kind == SEARCHED:
            with suppress(msgspec.ValidationError):
                self.searched = msgspec.convert(data, Searched)
        elif kind == MENDED:
            self._forget(self.missed, tables)
        elif kind == UNSWEPT:
            self.unswept |= set(tables)
            starts = data.get("starts")
            self.starts = max(self.starts, starts) if isinstance(starts, int) else self.starts
        elif kind == SWEPT:
            self.unswept -= set(tables)

    @staticmethod
    def _forget(found: dict[str, Any], tables: Iterable[str]) -> None:
        for table in tables:
            found.pop(table, None)


def _missed(noted: object) -> list[Missed]:
    with suppress(msgspec.ValidationError):
        return msgspec.convert(noted, list[Missed])
    return []


def _layout(noted: object) -> Layout | None:
    with suppress(msgspec.ValidationError):
        return msgspec.convert(noted, Layout)
    return None
