"""What Debezium stores of the definitions in a binary log: the statements, and its own definitions after each.

From these it makes the definitions of a connector that starts again; a source of PostgreSQL has none. Some of the
statements change rows of captured tables without a change in the log. Most of these change how the server stores a
table, see `Layout`. Others leave no trace there, or one that a later statement hides:

- A partition that is exchanged twice has its first number again, and so has a table that had another name for a time.
  Meanwhile rows may have changed under a name that is not captured.
- A partition may be added, filled and dropped, or truncated and dropped.
- A column that is dropped and added again, or that gets the name of one that is dropped, has other values in the same
  place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

import msgspec

from headwater.eventlog.capturing.database import Missed
from headwater.eventlog.capturing.declaring import Source
from headwater.eventlog.capturing.naming import SCHEMA_HISTORY, topic_about
from headwater.eventlog.ports import EventLog

REMEMBERED: Final = 1_000
"""How many statements are known when they are read again."""
_COMMENT: Final = re.compile(r"/\*(?!M?!).*?\*/|/\*M?!\d*|\*/", re.DOTALL)
"""A comment, or what is around a text that only some servers take for one."""
_SPACE: Final = r"(?:\s|--\s[^\n]*\n|#[^\n]*\n)*+"
_NAME: Final = r"""(?:[`"][^`"]*[`"]|[\w$]+)"""
_CREATE: Final = re.compile(rf"{_SPACE}CREATE\b", re.IGNORECASE)
"""Its rows are changes, and each first snapshot stores one for each table."""
_EXCHANGE: Final = re.compile(rf"\bEXCHANGE{_SPACE}PARTITION\b|\bCONVERT{_SPACE}(?:TABLE|PARTITION)\b", re.IGNORECASE)
_DROP: Final = re.compile(rf"\b(?:DROP|TRUNCATE){_SPACE}PARTITION\b", re.IGNORECASE)
_RENAME: Final = re.compile(rf"\bRENAME\b{_SPACE}(?!COLUMN\b|INDEX\b|KEY\b)", re.IGNORECASE)
EXCHANGED: Final = Missed("had all rows of a partition exchanged for those of another table")
DROPPED: Final = Missed("had all rows of a partition deleted", reads=False)
RENAMED: Final = Missed("was renamed, or another table to its name")
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


@dataclass(frozen=True, slots=True)
class Searched:
    """How far a history was searched. end: an offset. statements: those that were found, the last of them."""

    end: int = 0
    statements: tuple[str, ...] = ()


def read_statements(log: EventLog, source: Source, first: int = 0) -> tuple[Sequence[Statement], int]:
    """The statements of a source from an offset on, and the offset of what follows; raises LogUnavailable.

    If nothing has that offset any more, because the source was removed and its history begins anew, all are read.
    """
    if source.engine == "postgresql":
        return [], first
    topic = topic_about(source, SCHEMA_HISTORY)
    if not (end := log.stored_ends(topic).get(0, 0)):
        return [], 0
    start, statements = max(first if first <= end else 0, log.first(topic, 0)), []
    for record in log.read(topic, 0, start, end):
        try:
            statements.append(_STATEMENT.decode(record.value or b"{}"))
        except msgspec.MsgspecError:
            continue  # nobody but Debezium writes there
    return statements, end


def find_uncaptured(log: EventLog, source: Source, searched: Searched) -> tuple[Mapping[str, list[Missed]], Searched]:
    """What new statements of a source's history changed, by declared table, and how far it is searched now.

    A source without a history has none. Raises LogUnavailable.
    """
    stored, end = read_statements(log, source, searched.end)
    known, new, missed_by_table = set(searched.statements), list[str](), dict[str, list[Missed]]()
    for statement in stored:
        # a connector that starts again reads, and stores, statements since its last row again
        if statement.id in known or not (missed := missed_by(source, statement)):
            continue
        known.add(statement.id)
        new.append(statement.id)
        for table, columns in missed.items():
            missed_by_table[table] = list(dict.fromkeys([*missed_by_table.get(table, ()), *columns]))
    return missed_by_table, Searched(end, (*searched.statements, *new)[-REMEMBERED:])


def missed_by(source: Source, statement: Statement) -> Mapping[str, list[Missed]]:
    """What a statement changed of declared tables without a change in the log, as far as only it says so."""
    ddl = _COMMENT.sub(" ", statement.ddl or "")
    if _CREATE.match(ddl):
        return {}
    for pattern, missed in ((_EXCHANGE, EXCHANGED), (_RENAME, RENAMED), (_DROP, DROPPED)):
        if pattern.search(ddl):
            text, tables = ddl.replace("``", "`"), [table.table for table in source.tables]
            # a table that it names, also if it is one of that name in another database
            names = [(table, re.escape(table.partition(".")[2])) for table in tables]
            return {
                table: [missed]
                for table, name in names
                if re.search(rf"(?<![\w$]){name}(?![\w$])", text, re.IGNORECASE)
            }
    altered = {change.name.casefold() for change in statement.changes}
    filled = {
        table.table: [name for name in table.columns if _filling(name).search(ddl)]
        for table in source.tables
        if table.table.casefold() in altered
    }
    return {
        table: [Missed(f"had the column {', '.join(names)} added, or another one renamed to it", sweeps=False)]
        for table, names in filled.items()
        if names
    }


def _filling(column: str) -> re.Pattern[str]:
    """ADD column, also one of several in parentheses, CHANGE another column, or RENAME COLUMN another TO column."""
    name = rf"""(?:[`"]{re.escape(column)}[`"]|(?<![\w$]){re.escape(column)}(?![\w$]))"""
    another = rf"(?!{name}){_NAME}{_SPACE}"
    is_column = rf"(?:COLUMN\b{_SPACE})?+"
    add = rf"\bADD\b{_SPACE}{is_column}(?:IF\s+NOT\s+EXISTS\b{_SPACE})?+(?:\(.*?)?{name}"
    change = rf"\bCHANGE\b{_SPACE}{is_column}(?:IF\s+EXISTS\b{_SPACE})?+{another}{name}"
    rename = rf"\bRENAME\b{_SPACE}COLUMN\b{_SPACE}(?:IF\s+EXISTS\b{_SPACE})?+{another}TO\b{_SPACE}{name}"
    return re.compile("|".join((add, change, rename)), re.IGNORECASE | re.DOTALL)
