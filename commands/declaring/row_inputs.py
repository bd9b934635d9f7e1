"""Rows as inputs of processes, of captured tables and of views: a row as it is now, and the deletion of a row."""

from __future__ import annotations

import typing
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from headwater.commands.declaring.view_rows import ViewRow
from headwater.commands.errors import DeclarationError
from headwater.eventlog.capturing.columns import KEY_KINDS
from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.capturing.errors import SourceDeclarationError

Row = Captured | ViewRow
"""A row as a process sees it."""
Table = TypeVar("Table", bound=Row)


@dataclass(frozen=True, slots=True)
class RowDeleted(Generic[Table]):
    """Given to a process when a row was deleted: `event: Customer | RowDeleted[Customer]`.

    table: the class of the row. key: of the row, as text: of a captured row `42`, or `["a",1]` if it has several
    columns; of a row of a view, the text in its key column.
    """

    table: type[Table]
    key: str


class RowInput(NamedTuple):
    """One kind of input from a captured table or a view.

    name: the type of its envelopes. topic: in which the rows are. column: whose value names the instance; None: the
    whole key of the row does.
    """

    name: str
    topic: str
    table: type[Row]
    is_deletion: bool
    column: str | None

    @property
    def is_of_view(self) -> bool:
        """Whether it is about rows of a view, whose changes have no place in a database."""
        return issubclass(self.table, ViewRow)


def described(table: type[Row]) -> str:
    """What messages call the rows of a class: `"public.customers"`, or `the view "rapid_payments"`."""
    return f'the view "{table.view}"' if issubclass(table, ViewRow) else f'"{table.table}"'


def row_input(process: str, key: str, member: Any) -> RowInput | None:
    """What a member of the annotation of `event` says about rows; None if it is about none.

    key: the field that names an instance of `process`; if the rows have no such column, their own key does. Raises
    DeclarationError.
    """
    is_deletion = member is RowDeleted or typing.get_origin(member) is RowDeleted
    table: Any = next(iter(typing.get_args(member)), None) if is_deletion else member
    is_row = isinstance(table, type) and (
        (issubclass(table, Captured) and table.table) or (issubclass(table, ViewRow) and table.view)
    )
    if not is_row:
        if is_deletion:
            raise DeclarationError(
                f'"react" of "{process}" handles {member!r}: write RowDeleted[Customer], with a captured class or a '
                "ViewRow"
            )
        return None
    try:
        topic = table.topic()
    except SourceDeclarationError as error:
        raise DeclarationError(f'process "{process}": {error}') from error
    column = _key_column(process, key, table)
    if is_deletion and column is not None:
        if issubclass(table, ViewRow):
            raise DeclarationError(
                f'process "{process}" cannot handle the deletion of rows of the view "{table.view}": of a deleted row '
                f'only its key is known, and not "{column}", the key of the process; use a key that is no column of '
                f'"{table.__name__}": then the key of the row names the instance'
            )
        if column not in table.key:
            raise DeclarationError(
                f'process "{process}" cannot handle the deletion of rows of "{table.table}": only the key of a deleted '
                f'row is known ({", ".join(table.key)}), and not "{column}", the key of the process'
            )
    return RowInput(f"{topic}.deleted" if is_deletion else topic, topic, table, is_deletion, column)


def _key_column(process: str, key: str, table: type[Row]) -> str | None:
    info = table.model_fields.get(key)
    if info is None:
        return None
    column = table.columns[info.alias or key]
    if column.kind not in KEY_KINDS:
        raise DeclarationError(
            f'"{key}", the key of process "{process}", is a column of {described(table)} with {column.kind.value} '
            "values: choose one with text, integers, uuids or other values that are equal if their texts are"
        )
    return column.name
