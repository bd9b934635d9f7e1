"""Checks the rows of views that processes and other views read: only here are both known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from headwater.commands.declaring.process import Process
from headwater.commands.declaring.view_rows import ViewRow
from headwater.commands.errors import DeclarationError
from headwater.eventlog.capturing.columns import WORDS, Kind
from headwater.eventlog.places import declared_in
from headwater.projections.errors import ViewDeclarationError
from headwater.projections.stores.declared import Topic
from headwater.projections.table.types import ByType, ColumnType
from headwater.projections.view import View

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


def check_views_over_views(views: Mapping[str, View]) -> None:
    """Raise ViewDeclarationError if one of these views reads rows that no view has, or its own ones in the end."""
    classes: dict[str, tuple[type[ViewRow], View]] = {}
    for view in views.values():
        for table in _read_by(view):
            problem = _problem(table, views.get(table.view))
            other, first = classes.setdefault(table.view, (table, view))
            if other is not table and not problem:
                problem = (
                    f'by the class "{table.__name__}", and "{first.name}" by "{other.__name__}": declare one class for '
                    "both, with the columns that either needs"
                )
            if problem:
                raise ViewDeclarationError(
                    view.name, f'reads rows of the view "{table.view}", {problem} ({view.place})'
                )
    for view in views.values():
        _check_acyclic(view, views, [view.name])


def _read_by(view: View) -> list[type[ViewRow]]:
    """The views whose rows it reads."""
    return [table for table in view.tables.values() if issubclass(table, ViewRow)]


def _check_acyclic(view: View, views: Mapping[str, View], path: Sequence[str]) -> None:
    """path: the names of views, from one to `view`, of which each reads rows of the next."""
    for table in _read_by(view):
        if table.view == path[0]:
            way = ", which reads those of ".join(f'"{name}"' for name in (*path[1:], table.view))
            raise ViewDeclarationError(
                path[0], f"reads rows of {way}: a view cannot be made from its own rows ({views[path[0]].place})"
            )
        if table.view not in path:
            _check_acyclic(views[table.view], views, [*path, table.view])


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
                f'whose column "{name}" has ciphertexts, which would be taken for values: leave it out of '
                f'"{table.__name__}", and read the events instead'
            )
        is_anything = column.kind is Kind.JSON and name not in table.json_columns
        if not is_anything and column.kind not in FITTING[kind]:
            words = ", ".join(sorted(WORDS[member] for member in FITTING[kind]))
            return f'whose column "{name}" is {kind.name}: declare it in "{table.__name__}" as {words}'
    return ""
