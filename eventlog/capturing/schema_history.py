"""What Debezium stores of the definitions in a binary log: the statements, and its own definitions after each.

From these it makes the definitions of a connector that starts again; a source of PostgreSQL has none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import closing
from typing import Final
from zlib import crc32

import msgspec

from headwater.eventlog.capturing.declaring import Source
from headwater.eventlog.capturing.naming import SCHEMA_HISTORY, topic_about
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.settings import LogSettings

_QUOTED: Final = re.compile(r'"((?:[^"]|"")*)"')


class _Position(msgspec.Struct):
    transaction_id: str | None = None
    file: str = ""
    pos: int = 0


class _Column(msgspec.Struct):
    name: str


class _Table(msgspec.Struct):
    columns: list[_Column] = []


class TableChange(msgspec.Struct):
    """Debezium's definition of a table after a statement; none if the table was dropped."""

    id: str
    table: _Table | None = None

    @property
    def name(self) -> str:
        """Of the table, with its database."""
        return ".".join(part.replace('""', '"') for part in _QUOTED.findall(self.id))

    @property
    def columns(self) -> list[str]:
        """The names of its columns, in order; none if the table was dropped."""
        return [column.name for column in self.table.columns] if self.table else []


class Statement(msgspec.Struct):
    """A statement that the log of the database has, and what it changed. position: in that log."""

    ddl: str | None = None
    position: _Position = msgspec.field(default_factory=_Position)
    changes: list[TableChange] = msgspec.field(default_factory=list, name="tableChanges")

    @property
    def id(self) -> str:
        """The same if the statement is read, and stored, again: its GTID, or its text and the place before it.

        Several statements in a row have the same place.
        """
        place = f"{self.position.file}:{self.position.pos}:{crc32((self.ddl or '').encode()):x}"
        return self.position.transaction_id or place


_STATEMENT: Final = msgspec.json.Decoder(Statement)


def read_statements(settings: LogSettings, source: Source, first: int = 0) -> tuple[Sequence[Statement], int]:
    """The statements of a source from an offset on, and the offset of what follows; raises LogUnavailable.

    If nothing has that offset any more, because the source was removed and its history begins anew, all are read.
    """
    if source.engine == "postgresql":
        return [], first
    topic = topic_about(source, SCHEMA_HISTORY)
    with closing(KafkaLog(settings)) as log:
        if not (end := log.stored_ends(topic).get(0, 0)):
            return [], 0
        start = max(first if first <= end else 0, log.first(topic, 0))
        return [_decoded(record.value) for record in log.read(topic, 0, start, end)], end


def _decoded(value: bytes | None) -> Statement:
    try:
        return _STATEMENT.decode(value or b"{}")
    except msgspec.MsgspecError:
        return Statement()
