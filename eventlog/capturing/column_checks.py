"""Whether a table has the columns that a captured class declares, with types and values that can be captured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from headwater.eventlog.capturing.columns import Column
from headwater.eventlog.capturing.declaring import Captured

Found = TypeVar("Found")


def column_problems(
    declared: type[Captured], there: Mapping[str, Found], type_problem: Callable[[Column, Found], str | None]
) -> Iterator[str]:
    """What is wrong with each column, and what solves it.

    there: the table's columns by name. type_problem: what does not fit, where `{table}` and `{column}` stand for names.
    """
    for name, other in _same_but_for_case(declared, there):
        yield (
            f'table "{declared.table}" has the columns "{name}" and "{other}", whose names differ by their case only, '
            "and Debezium takes them for the same column: rename one of them"
        )
    for column in declared.columns.values():
        found = there.get(column.name)
        if found is None:
            yield (
                f'table "{declared.table}" has no column "{column.name}": remove it from {declared.__name__}, or add '
                f"it to the table, which has {', '.join(there)}"
            )
        elif problem := type_problem(column, found):
            yield f'column "{column.name}" of table "{declared.table}" ' + problem.format(
                table=declared.table, column=column.name
            )


def _same_but_for_case(declared: type[Captured], there: Mapping[str, Found]) -> Iterator[tuple[str, str]]:
    """Each declared column with another one of the table that has its name in another case."""
    for name in declared.columns:
        yield from ((name, other) for other in there if other != name and other.lower() == name.lower())


def digits_problem(column: Column, shown: str, digits: int, places: int) -> str | None:
    """Why values may have more digits than their class says, and what to declare; None if they have not.

    shown: the type in the database. digits, places: that its values may have, altogether and behind the point.
    """
    if column.digits is None:
        return None
    behind = max(places, column.digits[1])
    total = max(digits - places, column.digits[0] - column.digits[1]) + behind
    if (total, behind) == column.digits:
        return None
    return (
        f"is {shown}: declare it with max_digits={total} and decimal_places={behind}, or give it a type with fewer "
        "digits, so that all its values can be read"
    )


def value_problems(declared: type[Captured], misread: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Values that a snapshot would misread, with what solves it. misread: columns, each with what they have."""
    for name, what in misread:
        yield f'column "{name}" of table "{declared.table}" has {what}: change these rows, or leave the column out'


def why_misread(misread: Sequence[tuple[str, str]]) -> str | None:
    """The same as a reason not to read a table again; None if there are none."""
    return "; ".join(f'its column "{name}" has {what}' for name, what in misread) or None
