"""Tables that a connector is to read again, in the place where Debezium keeps them: the connector's stored offset.

A signal in a topic may be lost: a task that starts drops it, one with an earlier configuration ignores tables that it
does not know, and Debezium 3.6 reads the first rows in the thread that takes the signal, beside the one that reads
changes. A table in the offset is read by the task that starts with it, before it reads changes, and stays there until
its reading has ended, through every restart. So an offset is changed only while the connector is stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from headwater.eventlog.capturing.errors import ConnectError

TABLES: Final = "incremental_snapshot_collections"
SIGNAL: Final = "incremental_snapshot_correlation_id"
PROGRESS: Final = ("incremental_snapshot_primary_key", "incremental_snapshot_maximum_key")
"""How far the first table is read, and up to where."""
INITIAL: Final = "snapshot"
"""In the offset of a connector whose first snapshot is not over. It begins anew if the connector is stopped."""
BROKEN: Final = 'currentDataCollectionId()" is null'
"""What a task fails with if the database refused to let the last table be read: Debezium 3.6 has left it by then."""

Offset = Mapping[str, Any]


class _Entry(msgspec.Struct, frozen=True):
    table: str = msgspec.field(name="incremental_snapshot_collections_id")
    where: str | None = msgspec.field(name="incremental_snapshot_collections_additional_condition", default=None)
    key: str | None = msgspec.field(name="incremental_snapshot_collections_surrogate_key", default=None)

    @property
    def is_whole(self) -> bool:
        return not self.where


def is_after_snapshot(offset: Offset | None) -> bool:
    """Whether a connector with this offset makes no first snapshot any more, also if it has made none."""
    return offset is not None and INITIAL not in offset


def queued(offset: Offset | None) -> list[str]:
    """The tables of which all rows are still to be read again, the one that is being read first."""
    return [each.table for each in _entries(offset or {}) if each.is_whole]


def all_queued(offset: Offset | None) -> list[str]:
    """The tables of which some or all rows are still to be read again."""
    return list(dict.fromkeys(each.table for each in _entries(offset or {})))


def without_tables(offset: Offset) -> dict[str, Any]:
    """The offset without anything to be read again."""
    return {name: value for name, value in offset.items() if name not in (TABLES, SIGNAL, *PROGRESS)}


def with_tables(offset: Offset, tables: Sequence[str], where: str, signal: str) -> dict[str, Any]:
    """The offset with these tables to be read, too. where: a condition of the rows; empty for all.

    A table that is being read already is read from its beginning: it may have changed since.
    """
    entries = _entries(offset)
    new = [_Entry(table, where or None) for table in tables]
    changed = {**offset, SIGNAL: signal}
    if entries and entries[0] in new:
        for name in PROGRESS:
            changed.pop(name, None)
    entries += [each for each in new if each not in entries]
    return {**changed, TABLES: msgspec.json.encode(entries).decode()}


def _entries(offset: Offset) -> list[_Entry]:
    try:
        found = msgspec.json.decode(offset.get(TABLES) or "[]", type=list[_Entry])
    except msgspec.MsgspecError as error:
        raise ConnectError(f"the connector's offset has a list of tables of another form ({error})") from error
    return [_Entry(each.table, each.where or None, each.key or None) for each in found]
