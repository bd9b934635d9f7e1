"""Values that Debezium reads wrongly, or stops at, although their types are captured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from psycopg import sql

from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.capturing.postgres.database import CapturedDatabase

_CALENDAR: Final = "before 1582-10-15, which become other ones"
_EARLY_ITEM: Final = "EXISTS (SELECT FROM unnest({0}) AS item WHERE item < '1582-10-15' AND item > '-infinity')"
OF_TYPES: Final[Mapping[str, tuple[str, str]]] = {
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
OF_ITEMS: Final[Mapping[str, tuple[str, str]]] = {
    "date": (_EARLY_ITEM, f"dates {_CALENDAR}"),
    "timestamp": (_EARLY_ITEM, f"times {_CALENDAR}"),
    "timestamptz": (_EARLY_ITEM, f"times {_CALENDAR}"),
}
"""The same of arrays, by the type of their items."""
OF_ARRAYS: Final = ("array_ndims({0}) > 1", "arrays of several dimensions, whose items are lost")
OF_ENUM_ARRAYS: Final = ("array_position({0}, NULL) IS NOT NULL", "arrays with NULL, which become null as a whole")


def misread_values(database: CapturedDatabase, table: type[Captured]) -> list[tuple[str, str]]:
    """The columns of a table with such values, each with what they are and where; it reads the table once if it may
    have some. Raises SourceProblem.
    """
    columns = database.columns(table)
    asked = [
        (name, sql.SQL(condition).format(sql.Identifier(name)), what)
        for name in table.columns
        if name in columns
        for condition, what in _conditions(columns[name])
    ]
    if not asked:
        return []
    flags = sql.SQL(", ").join(
        sql.SQL("coalesce(bool_or({}), false) AS {}").format(condition, sql.Identifier(f"found_{number}"))
        for number, (_, condition, _) in enumerate(asked)
    )
    query = sql.SQL("SELECT {} FROM {}").format(flags, sql.Identifier(*table.table.split(".")))
    (found,) = database.rows(query, ())
    return [
        (name, f"{what} (WHERE {database.text(condition)})")
        for number, (name, condition, what) in enumerate(asked)
        if found[f"found_{number}"]
    ]


def _conditions(column: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not column["item"]:
        return [OF_TYPES[column["type"]]] if column["type"] in OF_TYPES else []
    found = [OF_ARRAYS]
    if column["item"] in OF_ITEMS:
        found.append(OF_ITEMS[column["item"]])
    if column["labels"]:
        found.append(OF_ENUM_ARRAYS)
    return found
