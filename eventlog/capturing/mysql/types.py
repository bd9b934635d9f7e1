"""Which MariaDB and MySQL types fit which declared types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headwater.eventlog.capturing.column_checks import digits_problem
from headwater.eventlog.capturing.columns import WORDS, Column, Hashed, Kind

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


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column as the server has it.

    type: such as `int`, or `json` for what MariaDB checks to be JSON. shown: the whole type, such as
    `int(10) unsigned`. is_virtual: whether its values are computed when they are read.
    """

    name: str
    type: str
    shown: str
    nullable: bool
    is_virtual: bool


def type_problem(column: Column, found: TableColumn) -> str | None:
    """Why values of this column cannot be captured as declared, and what to declare; None if they can."""
    fits = SINGLE.get(found.shown) or FITTING.get(found.type, frozenset())
    if found.is_virtual:
        return "is a virtual generated column, which the binary log need not have: make it STORED, or leave it out"
    if not fits:
        return f"is {found.shown}, which is not captured: leave it out, or capture a generated column beside it"
    if isinstance(column.mask, Hashed) and found.type not in HASHABLE:
        return f"is {found.shown}, which Debezium does not hash: leave it out, or capture a generated text column"
    if column.kind not in fits:
        return f"is {found.shown}: declare it as {' or '.join(sorted(WORDS[each] for each in fits))}"
    if column.kind is Kind.ENUM and (unknown := labels(found) - set(column.choices)):
        return f"may be {', '.join(sorted(unknown))}, which its Enum lacks: add it there"
    if found.nullable and not column.nullable:
        return "may be NULL: add | None to its type, or run ALTER TABLE {table} MODIFY {column} " + (
            f"{found.shown} NOT NULL".replace("{", "{{").replace("}", "}}")
        )
    if digits := INTEGERS.get(found.type):
        return digits_problem(column, found.shown, digits, 0)
    decimal = _DECIMAL.fullmatch(found.shown)
    return digits_problem(column, found.shown, int(decimal[1]), int(decimal[2])) if decimal else None


def labels(found: TableColumn) -> set[str]:
    """The values of an enum; empty for any other type."""
    if found.type != "enum":
        return set()
    return {each.replace("''", "'") for each in _LABEL.findall(found.shown)}
