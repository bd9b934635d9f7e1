"""Checks the rows of views that processes read: only here are both known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from commands.declaring.process import Process
from commands.declaring.view_rows import ViewRow
from commands.errors import DeclarationError
from eventlog.capturing.columns import WORDS, Kind
from eventlog.places import declared_in
from projections.stores.topic.declared import Topic
from projections.table.types import ByType, ColumnType
from projections.view import View

_TEXTS: Final = frozenset(
    {Kind.TEXT, Kind.ENUM, Kind.UUID, Kind.DECIMAL, Kind.TIMESTAMP, Kind.DATE, Kind.TIME, Kind.INTERVAL, Kind.BYTES}
)


class _Fitting(ByType[frozenset[Kind]]):
    def of_decimal(self, kind: ColumnType) -> frozenset[Kind]:
        return frozenset({Kind.DECIMAL, Kind.TEXT})


FITTING: Final[Mapping[ColumnType, frozenset[Kind]]] = _Fitting(
    {
        ColumnType.TEXT: _TEXTS,
        ColumnType.INTEGER: frozenset({Kind.INTEGER, Kind.FLOAT, Kind.DECIMAL}),
        ColumnType.FLOAT: frozenset({Kind.FLOAT, Kind.DECIMAL}),
        ColumnType.BOOLEAN: frozenset({Kind.BOOLEAN}),
        ColumnType.TIME: frozenset({Kind.TIMESTAMP, Kind.TEXT}),
        ColumnType.POINT: frozenset({Kind.JSON}),
        ColumnType.JSON: frozenset({Kind.TEXT, Kind.JSON, Kind.ARRAY}),
        ColumnType.DATE: frozenset({Kind.DATE, Kind.TEXT}),
        ColumnType.UUID: frozenset({Kind.UUID, Kind.TEXT}),
    }
)
"""What a field of a ViewRow may be; whether the values themselves fit, only the rows show."""


def check_view_rows(process: Process[Any], module: str, views: Mapping[str, View]) -> None:
    """Raise DeclarationError if `process` reads rows that no view has. module: where it is declared."""
    for table in dict.fromkeys(row.table for row in process.rows.values() if issubclass(row.table, ViewRow)):
        problem = _problem(table, views.get(table.view))
        if problem:
            raise DeclarationError(
                f'process "{process.name}" reads rows of the view "{table.view}", {problem} '
                f"({declared_in(module, process)})"
            )


def _problem(table: type[ViewRow], view: View | None) -> str:
    if view is None:
        return "which this deployment does not have: add its module to HEADWATER_MODULES"
    if view.store(Topic.name) is None:
        return "which has no topic: add Topic() to its stores, and raise its version"
    for name, column in table.columns.items():
        kind = view.types.get(name)
        if kind is None:
            return f'which has no column "{name}": it has {", ".join(view.types)}'
        if name in view.personal:
            return (
                f'whose column "{name}" has sealed texts, which a process would take for values: leave it out of '
                f'"{table.__name__}", and read the events instead'
            )
        is_anything = column.kind is Kind.JSON and name not in table.json_columns
        if not is_anything and column.kind not in FITTING[kind]:
            words = ", ".join(sorted(WORDS[each] for each in FITTING[kind]))
            return f'whose column "{name}" is {kind.name}: declare it in "{table.__name__}" as {words}'
    return ""
