"""Statements that change rows of captured tables without a change in the binary log, as a connector has stored them.

Most of these change how the server stores a table, see `Layout`. Others leave no trace there, or one that a later
statement hides:

- A partition that is exchanged twice has its first number again, and so has a table that had another name for a time.
  Meanwhile rows may have changed under a name that is not captured.
- A partition may be added, filled and dropped, or truncated and dropped.
- A column that is dropped and added again, or that gets the name of one that is dropped, has other values in the same
  place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from headwater.eventlog.capturing.declaring import Captured, Source
from headwater.eventlog.capturing.ports import Missed
from headwater.eventlog.capturing.schema_history import Statement, read_statements
from headwater.eventlog.settings import LogSettings

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


@dataclass(frozen=True, slots=True)
class Searched:
    """How far a history was searched. end: an offset. statements: those that were found, the last of them."""

    end: int = 0
    statements: tuple[str, ...] = ()


def find_uncaptured(
    settings: LogSettings, source: Source, searched: Searched
) -> tuple[Mapping[str, list[Missed]], Searched]:
    """What new statements of a source's history changed, by declared table, and how far it is searched now.

    A source without a history has none. Raises LogUnavailable.
    """
    stored, end = read_statements(settings, source, searched.end)
    known, new, found = set(searched.statements), list[str](), dict[str, list[Missed]]()
    for statement in stored:
        # a connector that starts again reads, and stores, statements since its last row again
        if statement.id in known or not (missed := missed_by(source, statement)):
            continue
        known.add(statement.id)
        new.append(statement.id)
        for table, each in missed.items():
            found[table] = list(dict.fromkeys([*found.get(table, ()), *each]))
    return found, Searched(end, (*searched.statements, *new)[-REMEMBERED:])


def missed_by(source: Source, statement: Statement) -> Mapping[str, list[Missed]]:
    """What a statement changed of declared tables without a change in the log, as far as only it says so."""
    ddl = _COMMENT.sub(" ", statement.ddl or "")
    if _CREATE.match(ddl):
        return {}
    for pattern, missed in ((_EXCHANGE, EXCHANGED), (_RENAME, RENAMED), (_DROP, DROPPED)):
        if pattern.search(ddl):
            return {table: [missed] for table in _named(source, ddl)}
    altered = {change.name.casefold() for change in statement.changes}
    columns = {table.table: _filled(table, ddl) for table in source.tables if table.table.casefold() in altered}
    return {
        table: [Missed(f"had the column {', '.join(names)} added, or another one renamed to it", sweeps=False)]
        for table, names in columns.items()
        if names
    }


def _filled(table: type[Captured], ddl: str) -> list[str]:
    """The declared columns that a statement may have filled with other values."""
    return [name for name in table.columns if _filling(name).search(ddl)]


def _filling(column: str) -> re.Pattern[str]:
    """ADD column, also one of several in parentheses, CHANGE another column, or RENAME COLUMN another TO column."""
    name = rf"""(?:[`"]{re.escape(column)}[`"]|(?<![\w$]){re.escape(column)}(?![\w$]))"""
    another = rf"(?!{name}){_NAME}{_SPACE}"
    is_column = rf"(?:COLUMN\b{_SPACE})?+"
    add = rf"\bADD\b{_SPACE}{is_column}(?:IF\s+NOT\s+EXISTS\b{_SPACE})?+(?:\(.*?)?{name}"
    change = rf"\bCHANGE\b{_SPACE}{is_column}(?:IF\s+EXISTS\b{_SPACE})?+{another}{name}"
    rename = rf"\bRENAME\b{_SPACE}COLUMN\b{_SPACE}(?:IF\s+EXISTS\b{_SPACE})?+{another}TO\b{_SPACE}{name}"
    return re.compile("|".join((add, change, rename)), re.IGNORECASE | re.DOTALL)


def _named(source: Source, ddl: str) -> Iterable[str]:
    """The tables that a statement names, also if it is one of that name in another database."""
    text = ddl.replace("``", "`")
    for table in source.tables:
        name = re.escape(table.table.partition(".")[2])
        if re.search(rf"(?<![\w$]){name}(?![\w$])", text, re.IGNORECASE):
            yield table.table
