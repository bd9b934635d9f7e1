"""Routing of captured tables: the owner of a partition of a table's topic copies its changes into `process-inbox`.

Each table that a process handles is a role of its own, with a topic for its offsets. The work is that of `router`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from commands.declaring.captured_inputs import RowInput
from commands.declaring.process import AnyProcess, ProcessRegistry
from commands.reacting.router import ROUTED_BY, copied, or_dead_letter, role_reading
from commands.reacting.row_changes import change_envelope, read_row
from eventlog.capturing.changes import Change, ChangeDecoder, Operation, key_as_text
from eventlog.capturing.declaring import Captured
from eventlog.capturing.errors import UnreadableChange
from eventlog.capturing.naming import table_topic
from eventlog.envelope import encode
from eventlog.heartbeats import is_heartbeat_key
from eventlog.ports import Entry, EventLog, Record, Role
from eventlog.settings import LogSettings
from eventlog.topics import TopicSpec, compact_settings

TOMBSTONE_OFFSETS: Final = 64
"""A tombstone is at most this far behind the record of its delete: only heartbeats and ends of transactions may be
between them.
"""


def table_role(table: type[Captured]) -> Role:
    """The role that routes the changes of a table."""
    return role_reading(table.topic(), ROUTED_BY)


def process_topics(settings: LogSettings, processes: ProcessRegistry) -> list[TopicSpec]:
    """The topics of the tables that processes handle, and those of their roles; names are without the environment."""
    compact = compact_settings(settings)
    places = [
        TopicSpec(name, settings.partitions, compact)
        for table in processes.tables.values()
        for name in table_role(table).owns
    ]
    return [*(table_topic(table, settings) for table in processes.tables.values()), *places]


class RowRouter:
    """Decides what is copied for one record of a captured table, read in the order of a partition."""

    def __init__(self, log: EventLog, processes: ProcessRegistry, table: type[Captured]) -> None:
        topic = table.topic()
        self.processes: Mapping[str, AnyProcess] = {each.name: each for each in processes.by_table.get(topic, ())}
        self._log, self._table, self._decoder = log, table, ChangeDecoder(table)
        self.incarnation: str | None = log.incarnation(topic)
        self._deleted: Record | None = None
        """The last record that deletes a row, without tombstones."""
        self._looked_back = False

    def route(self, record: Record, accepts: Callable[[str], bool]) -> Iterable[Entry]:
        """See Routes.route."""
        return () if is_heartbeat_key(record.key) else or_dead_letter(record, lambda: self._copies(record, accepts))

    def _copies(self, record: Record, accepts: Callable[[str], bool]) -> Iterator[Entry]:
        change = self._decode(record)
        if change.operation is Operation.TRUNCATE:
            raise UnreadableChange(self._table.table, "TRUNCATE deletes rows without naming them: run `sweep`")
        # a row that lacks a value is gone, or is read again: another record says so
        if change.unchanged or self._is_known_deletion(record, change):
            return
        for process in self.processes.values():
            if accepts(process.name):
                yield from self.copies(process, change, record)

    def copies(self, process: AnyProcess, change: Change, record: Record) -> Iterator[Entry]:
        """The copy for one process, if it handles the change; raises NotAnEnvelope if its class does not fit."""
        for row in process.rows.values():
            if row.table is not self._table or row.is_deletion is not change.deletes:
                continue
            key = self._instance_key(row, change, record)
            if key is not None:
                envelope = change_envelope(row, change, record, self.incarnation)
                read_row(row, envelope)
                yield copied(process, key, encode(envelope))

    def _instance_key(self, row: RowInput, change: Change, record: Record) -> str | None:
        """The instance that sees the change; None if the column that names it is null."""
        if row.column is None:
            return change.key
        if change.row is None:
            return self._decoder.key_values(_key(record))[self._table.key.index(row.column)]
        value = change.row[row.column]
        return None if value is None else key_as_text([value])

    def _decode(self, record: Record) -> Change:
        return self._decoder.decode(_key(record), record.value)

    def _is_known_deletion(self, record: Record, change: Change) -> bool:
        """Whether the record is a tombstone behind the delete of its row, which says the same."""
        if change.operation is Operation.DELETE:
            self._deleted, self._looked_back = record, True
        if change.operation is not Operation.TOMBSTONE:
            return False
        if not self._looked_back:
            self._look_back(record)
        known = self._deleted
        return known is not None and known.key == record.key and 0 < record.offset - known.offset <= TOMBSTONE_OFFSETS

    def _look_back(self, record: Record) -> None:
        """Find the delete that an owner before this one has routed."""
        self._looked_back = True
        start = max(0, record.offset - TOMBSTONE_OFFSETS)
        for each in self._log.read(record.topic, record.partition, start, record.offset):
            if each.key == record.key and each.value is not None and self._is_delete(each):
                self._deleted = each

    def _is_delete(self, record: Record) -> bool:
        try:
            return self._decode(record).operation is Operation.DELETE
        except UnreadableChange:
            return False  # it is a dead letter


def _key(record: Record) -> bytes:
    return record.key.encode(errors="surrogateescape")
