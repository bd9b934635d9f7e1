"""Which MariaDB and MySQL types fit which declared types, and which of their values Debezium reads wrongly."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headwater.eventlog.capturing.columns import WORDS, Column, Hashed, Kind
from headwater.eventlog.capturing.database import TableColumn, digits_problem

_TEXTS: Final = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
_BYTES: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
FITTING: Final[Mapping[str, frozenset[Kind]]] = {
    **dict.fromkeys(_TEXTS, frozenset({Kind.TEXT, Kind.ENUM})),
    **dict.fromkeys(("char", "varchar"), frozenset({Kind.TEXT, Kind.ENUM, Kind.UUID})),
    **dict.fromkeys(_BYTES, frozenset({Kind.BYTES})),
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint"), frozenset({Kind.INTEGER, Kind.DECIMAL})),
    **dict.fromkeys(("float", "double"), frozenset({Kind.FLOAT})),
    **dict.fromkeys(("datetime", "timestamp"), frozenset({Kind.TIMESTAMP})),
    "bit": frozenset({Kind.BYTES}),
    "decimal": frozenset({Kind.DECIMAL, Kind.FLOAT, Kind.INTEGER}),
    "year": frozenset({Kind.INTEGER}),
    "date": frozenset({Kind.DATE}),
    "time": frozenset({Kind.TIME}),
    "enum": frozenset({Kind.ENUM, Kind.TEXT}),
    "set": frozenset({Kind.TEXT}),
    "json": frozenset({Kind.JSON, Kind.ARRAY}),
}
"""By the type's name. JSON in MariaDB is a text with a check."""
SINGLE: Final[Mapping[str, frozenset[Kind]]] = {
    "tinyint(1)": frozenset({Kind.BOOLEAN, Kind.INTEGER}),
    "bit(1)": frozenset({Kind.BOOLEAN}),
}
"""By the whole type: what holds a truth value."""
INTEGERS: Final = {"tinyint": 3, "smallint": 5, "mediumint": 8, "int": 10, "bigint": 20}
"""The digits of types of integers, with a sign or without one."""
HASHABLE: Final = frozenset(_TEXTS)
_DECIMAL: Final = re.compile(r"decimal\(([0-9]+),([0-9]+)\).*")
_LABEL: Final = re.compile(r"'((?:[^']|'')*)'")
MISREAD: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "datetime": (
        (
            "{0} BETWEEN '1582-10-05' AND '1582-10-14 23:59:59.999999'",
            "times from 1582-10-05 to 1582-10-14, which become other times in a snapshot",
        ),
        (
            "CAST({0} AS CHAR) LIKE '0000-%' AND MONTH({0}) > 0 AND DAY({0}) > 0",
            "times of the year 0, which become those of the year 1 in a snapshot",
        ),
    ),
    "year": (("{0} = 0", "the year 0000, which becomes 2000 in a snapshot, and 1900 in a change"),),
}
"""By the type's name: a condition of the values that are misread, and what becomes of them."""


@dataclass(frozen=True, slots=True)
class BinlogColumn(TableColumn):
    """A column as the server has it.

    type: such as `int`, or `json` for what MariaDB checks to be JSON. shown: the whole type, such as
    `int(10) unsigned`. is_virtual: whether its values are computed when they are read.
    """

    name: str
    type: str
    shown: str
    nullable: bool
    is_virtual: bool

    def problem(self, column: Column) -> str | None:
        fits = SINGLE.get(self.shown) or FITTING.get(self.type, frozenset())
        if self.is_virtual:
            return "is a virtual generated column, which the binary log need not have: make it STORED, or leave it out"
        if not fits:
            return f"is {self.shown}, which is not captured: leave it out, or capture a generated column beside it"
        if isinstance(column.mask, Hashed) and self.type not in HASHABLE:
            return f"is {self.shown}, which Debezium does not hash: leave it out, or capture a generated text column"
        if column.kind not in fits:
            return f"is {self.shown}: declare it as {' or '.join(sorted(WORDS[fit] for fit in fits))}"
        labels = {label.replace("''", "'") for label in _LABEL.findall(self.shown)} if self.type == "enum" else set()
        if column.kind is Kind.ENUM and (unknown := labels - set(column.choices)):
            return f"may be {', '.join(sorted(unknown))}, which its Enum lacks: add it there"
        if self.nullable and not column.nullable:
            return "may be NULL: add | None to its type, or run ALTER TABLE {table} MODIFY {column} " + (
                f"{self.shown} NOT NULL".replace("{", "{{").replace("}", "}}")
            )
        if digits := INTEGERS.get(self.type):
            return digits_problem(column, self.shown, digits, 0)
        decimal = _DECIMAL.fullmatch(self.shown)
        return digits_problem(column, self.shown, int(decimal[1]), int(decimal[2])) if decimal else None

    def misread(self) -> Sequence[tuple[str, str]]:
        return MISREAD.get(self.type, ())
