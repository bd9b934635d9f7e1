"""Which PostgreSQL types fit which declared types, and which of their values Debezium reads wrongly."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headwater.eventlog.capturing.columns import WORDS, Column, Hashed, Kind
from headwater.eventlog.capturing.database import TableColumn, digits_problem

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
_CALENDAR: Final = "before 1582-10-15, which become other ones"
_EARLY_ITEM: Final = "EXISTS (SELECT FROM unnest({0}) AS item WHERE item < '1582-10-15' AND item > '-infinity')"
MISREAD: Final[Mapping[str, tuple[str, str]]] = {
    "date": (
        "{0} < '0001-01-01' AND {0} > '-infinity' OR {0} BETWEEN '1582-10-05' AND '1582-10-14'",
        "dates before the year 1 or from 1582-10-05 to 1582-10-14, which become other dates in a snapshot",
    ),
    "timetz": (
        "mod(extract(timezone FROM {0})::int, 60) <> 0",
        "offsets with seconds, which become null in a snapshot, and at whose changes Debezium stops",
    ),
    "interval": (
        "abs(extract(hour FROM {0})) >= 2147483648 AND isfinite({0})",
        "intervals of 2147483648 hours or more, at which Debezium stops",
    ),
}
"""By the type's name: a condition of the values that are misread, and what becomes of them."""
MISREAD_ITEMS: Final[Mapping[str, tuple[str, str]]] = {
    "date": (_EARLY_ITEM, f"dates {_CALENDAR}"),
    "timestamp": (_EARLY_ITEM, f"times {_CALENDAR}"),
    "timestamptz": (_EARLY_ITEM, f"times {_CALENDAR}"),
}
"""The same of arrays, by the type of their items."""
MISREAD_ARRAYS: Final = ("array_ndims({0}) > 1", "arrays of several dimensions, whose items are lost")
MISREAD_ENUMS: Final = ("array_position({0}, NULL) IS NOT NULL", "arrays with NULL, which become null as a whole")


@dataclass(frozen=True, slots=True)
class PostgresColumn(TableColumn):
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

    def misread(self) -> list[tuple[str, str]]:
        if not self.item:
            return [MISREAD[self.type]] if self.type in MISREAD else []
        of_items = [MISREAD_ITEMS[self.item]] if self.item in MISREAD_ITEMS else []
        return [MISREAD_ARRAYS, *of_items, *([MISREAD_ENUMS] if self.labels else [])]

    def problem(self, column: Column) -> str | None:
        if self.generated:  # PostgreSQL 18 may send it, but Debezium leaves it out if it reads rows again
            return f"is a generated column, which is not captured: leave it out, or {FILLED.format('column')}"
        if self.negative_scale:
            return f"is {self.shown}, of whose values Debezium loses the negative scale: give it a scale of 0 or more"
        if self.item:
            if self.item in LOST_IN_ARRAYS or (self.item not in FITTING and not self.labels):
                return f"is {self.shown}, of which Debezium has no form: leave it out"
            fits, kind, form = _fits(self.item, self.labels), column.item, "list[{}]"
            if column.kind is not Kind.ARRAY:
                return f"is {self.shown}: declare it as {_list(fits, form)}"
        else:
            fits, kind, form = _fits(self.type, self.labels), column.kind, "{}"
        if not fits:
            return f"is {self.shown}, of which Debezium has no form: leave it out, or {FILLED.format('column')}"
        if isinstance(column.mask, Hashed) and self.type not in HASHABLE and not self.labels:
            return f"is {self.shown}, which Debezium does not hash: leave it out, or {FILLED.format('text column')}"
        if kind is not None and kind not in fits:
            return f"is {self.shown}: declare it as {_list(fits, form)}"
        if kind is Kind.ENUM and (unknown := set(self.labels) - set(column.choices)):
            return f"may be {', '.join(sorted(unknown))}, which its Enum lacks: add it there"
        if self.nullable and not column.nullable:
            return "may be NULL: add | None to its type, or run ALTER TABLE {table} ALTER COLUMN {column} SET NOT NULL"
        if digits := INTEGERS.get(self.type):
            return digits_problem(column, self.shown, digits, 0)
        numeric = _NUMERIC.fullmatch(self.shown)  # others have no limit, or are domains: their values show it
        return digits_problem(column, self.shown, int(numeric[1]), int(numeric[2])) if numeric else None

    def unfilled(self, column: Column) -> str | None:
        """Why records lack this column if an update leaves a long value unchanged; None if Debezium fills it in."""
        if not self.apart:
            return None
        if column.mask is not None:
            return "is masked"
        is_domain = not self.shown.endswith("[]")
        if self.item and (self.item not in FILLED_ARRAYS or is_domain):
            return f"is {self.shown}"
        return None


def _fits(name: str, labels: tuple[str, ...]) -> frozenset[Kind]:
    return ENUM_FITS if labels else FITTING.get(name, frozenset())


def _list(kinds: frozenset[Kind], form: str) -> str:
    return " or ".join(sorted(form.format(WORDS[kind]) for kind in kinds))
