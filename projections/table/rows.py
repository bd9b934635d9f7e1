"""Rows of captured tables and of other views as events of views: a row has its current values, or it is deleted.

The topic of a captured table, or of a view, keeps the last change of each row. So a view can know what a row is, but
not what it was, nor how often it changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, ClassVar, Final, TypeGuard

from pydantic import Field, create_model
from pydantic.fields import FieldInfo

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.field_kinds import Digits, FieldKind
from headwater.commands.declaring.history import History
from headwater.commands.declaring.row_inputs import described
from headwater.commands.declaring.view_rows import ViewRow
from headwater.eventlog.capturing.columns import Column, Kind
from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.declaring import WrongArguments, shown
from headwater.projections.table.types import ColumnType, type_of

FIELD_TYPES: Final[Mapping[Kind, Any]] = {
    Kind.INTEGER: int,
    Kind.FLOAT: float,
    Kind.BOOLEAN: bool,
    Kind.TIMESTAMP: datetime,
    Kind.DATE: date,
    Kind.JSON: dict[str, Any],
    Kind.ARRAY: list[Any],
}
"""Of the other kinds, views have the text; of a decimal only if its class does not say how many digits it has."""
LISTED: Final = frozenset({Kind.TEXT, Kind.INTEGER, Kind.BOOLEAN, Kind.DECIMAL, Kind.UUID, Kind.ENUM})
"""Kinds that a view can show in a list: in a record they are written as in a view."""


RowClass = type[Captured] | type[ViewRow]
"""A captured table, or a view whose rows are read from its topic."""


class CapturedRow(Event):
    """A row of a captured table or of a view, as an event: what it is now, or that it is deleted. Its fields are the
    columns.

    key: of the view's row is the table's, as text: `42`, or `["a",1]` if it has several columns; of a view, its row's.
    """

    table: ClassVar[RowClass]
    deleted: ClassVar[bool]


def is_row_class(table: object) -> TypeGuard[RowClass]:
    """Whether it is a class of rows of a captured table, or of another view."""
    return isinstance(table, type) and issubclass(table, Captured | ViewRow) and table not in (Captured, ViewRow)


@cache
def row_of(table: RowClass) -> type[CapturedRow]:
    """The event that a row has these values now; raises SourceDeclarationError if the table belongs to no source."""
    fields: dict[str, Any] = {
        f"column_{number}": (_field_type(column), FieldInfo(alias=column.name))
        for number, column in enumerate(table.columns.values())
    }
    return _event(table, table.topic(), deleted=False, fields=fields)


@cache
def Deleted(table: RowClass) -> type[CapturedRow]:  # noqa: N802 - stands among classes of events
    """The event that a row was deleted: `deleted_by=(Deleted(Customer),)`."""
    if not is_row_class(table):
        example = "deleted_by=(Deleted(Customer),)"
        raise WrongArguments(
            f"Deleted() is given {shown(table)}, which is no ViewRow and no captured table: write {example}"
        )
    return _event(table, f"{table.topic()}.deleted", deleted=True, fields={})


def _event(table: RowClass, type_: str, *, deleted: bool, fields: Mapping[str, Any]) -> type[CapturedRow]:
    model = create_model(table.__name__, __base__=CapturedRow, __module__=table.__module__, **fields)
    model.type, model.table, model.deleted = type_, table, deleted
    model.history = History(1, type=type_)
    return model


def exact_type(column: Column) -> ColumnType | None:
    """The type of a column with days, or with decimals that have so many digits: views check its texts. Else None."""
    if column.kind is Kind.DATE:
        return ColumnType.DATE
    if column.digits is None:
        return None
    kind = type_of(FieldKind(object, column.nullable, Digits(*column.digits)))
    return kind if kind.is_decimal else None


def _field_type(column: Column) -> Any:
    kind = FIELD_TYPES.get(column.kind, str)
    exact = exact_type(column)
    if exact is not None and exact.is_decimal:
        kind = Annotated[Decimal, Field(max_digits=exact.digits, decimal_places=exact.places)]
    return kind | None if column.nullable else kind


def is_row(event: object) -> TypeGuard[type[CapturedRow]]:
    """Whether an event class is that of rows, of a captured table or of a view."""
    return isinstance(event, type) and issubclass(event, CapturedRow)


def rows_text(table: RowClass) -> str:
    """What messages call where the rows are: `table "public.customers"`, or `the view "accounts"`."""
    return described(table) if issubclass(table, ViewRow) else f"table {described(table)}"


def column_problem(table: RowClass, name: str) -> str | None:
    """Why a view cannot show a column of a captured table, or of a view; None if it can."""
    column = table.columns.get(name)
    if column is None:
        return f'{rows_text(table)} has no column "{name}"; it has {", ".join(sorted(table.columns))}'
    if column.kind is Kind.ARRAY and column.item not in LISTED:
        item = column.item.value if column.item else "unknown"
        return (
            f'column "{name}" of {rows_text(table)} is a list of {item} values, which a view cannot show: '
            "show a list of text, integers, booleans, decimals, uuids or enum values"
        )
    return None
