"""Which PostgreSQL types fit which declared types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headwater.eventlog.capturing.column_checks import digits_problem
from headwater.eventlog.capturing.columns import WORDS, Column, Hashed, Kind

_TEXTS: Final = (
    "text varchar bpchar citext xml inet cidr macaddr macaddr8 ltree tsvector "
    "int4range int8range numrange tsrange tstzrange daterange"
)
FITTING: Final[Mapping[str, frozenset[Kind]]] = {
    **dict.fromkeys(_TEXTS.split(), frozenset({Kind.TEXT})),
    **dict.fromkeys(("text", "varchar", "bpchar", "citext"), frozenset({Kind.TEXT, Kind.ENUM})),
    **dict.fromkeys(("int2", "int4", "int8", "oid"), frozenset({Kind.INTEGER, Kind.DECIMAL})),
    **dict.fromkeys(("float4", "float8"), frozenset({Kind.FLOAT})),
    **dict.fromkeys(("numeric", "money"), frozenset({Kind.DECIMAL, Kind.FLOAT, Kind.INTEGER})),
    **dict.fromkeys(("timestamp", "timestamptz"), frozenset({Kind.TIMESTAMP})),
    **dict.fromkeys(("time", "timetz"), frozenset({Kind.TIME})),
    **dict.fromkeys(("json", "jsonb", "hstore"), frozenset({Kind.JSON, Kind.ARRAY})),
    "bool": frozenset({Kind.BOOLEAN}),
    "date": frozenset({Kind.DATE}),
    "interval": frozenset({Kind.INTERVAL}),
    "uuid": frozenset({Kind.UUID, Kind.TEXT}),
    "bytea": frozenset({Kind.BYTES}),
}
"""By the type's name in pg_type."""
ENUM_FITS: Final = frozenset({Kind.ENUM, Kind.TEXT})
HASHABLE: Final = frozenset({"text", "varchar", "bpchar"})
"""Debezium hashes these types and enums. It captures others as they are, although they are text in its records."""
LOST_IN_ARRAYS: Final = frozenset({"interval", "xml", "bytea", "json", "jsonb", "money"})
"""Debezium has no form for arrays of these, or none that keeps an unchanged long value apart."""
FILLED_ARRAYS: Final = frozenset({"text", "varchar", "bpchar", "int4", "int8"})
"""Debezium reads unchanged long arrays of these again. Of others, and of domains, it makes null or a stand-in."""
INTEGERS: Final = {"int2": 5, "int4": 10, "int8": 19, "oid": 10}
"""The digits of types of integers."""
_NUMERIC: Final = re.compile(r"numeric\(([0-9]+),([0-9]+)\)")
FILLED: Final = "capture a {} beside it that a trigger fills"


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column as the database has it.

    type: its name in pg_type, of the type under a domain.
    shown: as PostgreSQL shows it, such as `numeric(12,2)`.
    item: the type of an array's items, else empty.
    labels: of an enum.
    apart: whether PostgreSQL may store values of its type outside of the row (TOAST).
    unquoted: whether SQL finds the column and its type without quotes and schema.
    generated: whether the database computes its values.
    negative_scale: whether it is a numeric that rounds to tens, hundreds and so on.
    """

    name: str
    type: str
    shown: str
    nullable: bool
    apart: bool
    unquoted: bool
    generated: bool
    item: str = ""
    labels: tuple[str, ...] = ()
    negative_scale: bool = False


def type_problem(column: Column, found: TableColumn) -> str | None:
    """Why values of this column cannot be captured as declared, and what to declare; None if they can."""
    if found.generated:  # PostgreSQL 18 may send it, but Debezium leaves it out if it reads rows again
        return f"is a generated column, which is not captured: leave it out, or {FILLED.format('column')}"
    if found.negative_scale:
        return f"is {found.shown}, of whose values Debezium loses the negative scale: give it a scale of 0 or more"
    if found.item:
        if found.item in LOST_IN_ARRAYS or (found.item not in FITTING and not found.labels):
            return f"is {found.shown}, of which Debezium has no form: leave it out"
        fits, kind, form = _fits(found.item, found.labels), column.item, "list[{}]"
        if column.kind is not Kind.ARRAY:
            return f"is {found.shown}: declare it as {_list(fits, form)}"
    else:
        fits, kind, form = _fits(found.type, found.labels), column.kind, "{}"
    if not fits:
        return f"is {found.shown}, of which Debezium has no form: leave it out, or {FILLED.format('column')}"
    if isinstance(column.mask, Hashed) and found.type not in HASHABLE and not found.labels:
        return f"is {found.shown}, which Debezium does not hash: leave it out, or {FILLED.format('text column')}"
    if kind is not None and kind not in fits:
        return f"is {found.shown}: declare it as {_list(fits, form)}"
    if kind is Kind.ENUM and (unknown := set(found.labels) - set(column.choices)):
        return f"may be {', '.join(sorted(unknown))}, which its Enum lacks: add it there"
    if found.nullable and not column.nullable:
        return "may be NULL: add | None to its type, or run ALTER TABLE {table} ALTER COLUMN {column} SET NOT NULL"
    return _too_many_digits(column, found)


def _too_many_digits(column: Column, found: TableColumn) -> str | None:
    if digits := INTEGERS.get(found.type):
        return digits_problem(column, found.shown, digits, 0)
    numeric = _NUMERIC.fullmatch(found.shown)  # others have no limit, or are domains: their values show it
    return digits_problem(column, found.shown, int(numeric[1]), int(numeric[2])) if numeric else None


def unfilled(column: Column, found: TableColumn) -> str | None:
    """Why records lack this column if an update leaves a long value unchanged; None if Debezium fills it in."""
    if not found.apart:
        return None
    if column.mask is not None:
        return "is masked"
    is_domain = not found.shown.endswith("[]")
    if found.item and (found.item not in FILLED_ARRAYS or is_domain):
        return f"is {found.shown}"
    return None


def _fits(name: str, labels: tuple[str, ...]) -> frozenset[Kind]:
    return ENUM_FITS if labels else FITTING.get(name, frozenset())


def _list(kinds: frozenset[Kind], form: str) -> str:
    return " or ".join(sorted(form.format(WORDS[each]) for each in kinds))
