"""Captured tables as inputs of processes: a row as it is now, and the deletion of a row."""

from __future__ import annotations

import typing
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from commands.errors import DeclarationError
from eventlog.capturing.columns import KEY_KINDS
from eventlog.capturing.declaring import Captured
from eventlog.capturing.errors import SourceDeclarationError

Table = TypeVar("Table", bound=Captured)


@dataclass(frozen=True, slots=True)
class RowDeleted(Generic[Table]):
    """Given to a process when a row of a captured table was deleted: `event: Customer | RowDeleted[Customer]`.

    table: the class of the row. key: of the row, as text: `42`, or `["a",1]` if it has several columns.
    """

    table: type[Table]
    key: str


class RowInput(NamedTuple):
    """One kind of input from a captured table.

    name: the type of its envelopes. column: whose value names the instance; None: the whole key of the row does.
    """

    name: str
    table: type[Captured]
    is_deletion: bool
    column: str | None


def row_input(process: str, key: str, member: Any) -> RowInput | None:
    """What a member of the annotation of `event` says about a captured table; None if it is about none.

    key: the field that names an instance of `process`; a table without this column is read by its own key. Raises
    DeclarationError.
    """
    is_deletion = member is RowDeleted or typing.get_origin(member) is RowDeleted
    table: Any = next(iter(typing.get_args(member)), None) if is_deletion else member
    if not (isinstance(table, type) and issubclass(table, Captured) and table.table):
        if is_deletion:
            raise DeclarationError(
                f'"react" of "{process}" handles {member!r}: write RowDeleted[Customer], with a captured class'
            )
        return None
    try:
        topic = table.topic()
    except SourceDeclarationError as error:
        raise DeclarationError(f'process "{process}": {error}') from error
    column = _key_column(process, key, table)
    if is_deletion and column is not None and column not in table.key:
        raise DeclarationError(
            f'process "{process}" cannot handle the deletion of rows of "{table.table}": only the key of a deleted row '
            f'is known ({", ".join(table.key)}), and not "{column}", the key of the process'
        )
    return RowInput(f"{topic}.deleted" if is_deletion else topic, table, is_deletion, column)


def _key_column(process: str, key: str, table: type[Captured]) -> str | None:
    info = table.model_fields.get(key)
    if info is None:
        return None
    column = table.columns[info.alias or key]
    if column.kind not in KEY_KINDS:
        raise DeclarationError(
            f'"{key}", the key of process "{process}", is a column of "{table.table}" with {column.kind.value} values: '
            "choose one with text, integers, uuids or other values that are equal if their texts are"
        )
    return column.name
