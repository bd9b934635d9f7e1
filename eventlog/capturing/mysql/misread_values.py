"""Values that Debezium reads wrongly, although their types are captured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.capturing.mysql.database import CapturedServer, quoted
from headwater.eventlog.capturing.mysql.sql import COLUMNS

OF_TYPES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
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


def misread_values(server: CapturedServer, table: type[Captured]) -> list[tuple[str, str]]:
    """The columns of a table with such values, each with what they are and where; it reads the table once if it may
    have some. Raises SourceProblem.
    """
    schema, name = table.table.split(".")
    types = {each["name"]: each["type"].lower() for each in server.rows(COLUMNS, {"schema": schema, "name": name})}
    asked = [
        (column, condition.format(f"`{column}`"), what)
        for column in table.columns
        for condition, what in OF_TYPES.get(types.get(column, ""), ())
    ]
    if not asked:
        return []
    flags = ", ".join(f"COALESCE(MAX({condition}), 0) AS found_{n}" for n, (_, condition, _) in enumerate(asked))
    (found,) = server.rows(f"SELECT {flags} FROM {quoted(table.table)}")  # noqa: S608 - declared names
    return [
        (column, f"{what} (WHERE {condition})")
        for number, (column, condition, what) in enumerate(asked)
        if found[f"found_{number}"]
    ]
