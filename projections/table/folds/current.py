"""`current`: a value of a row of a captured table, or of another view, as it is now."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from headwater.eventlog.declaring import shown
from headwater.projections.table.declared import storage_word
from headwater.projections.table.expressions import FromEnvelope, Null, Readable, expression
from headwater.projections.table.folds.fold import Case, Ordering
from headwater.projections.table.folds.picks import Latest
from headwater.projections.table.mistaken import in_views
from headwater.projections.table.rows import CapturedRow, Deleted, RowClass, column_problem, is_row_class, row_of
from headwater.projections.table.types import ColumnType

CHANGES: Final = Ordering(((ColumnType.INTEGER, FromEnvelope("offset")),))
"""All changes of a row are in one partition of its table's topic."""
BEFORE_ALL: Final = -1
"""In this order, before every change."""


@storage_word("Current")
@dataclass(frozen=True, eq=False)
class Current(Latest):
    """The value of the last change of a row; null if it is deleted. See `current`."""

    row: type[CapturedRow] = CapturedRow

    def kind(self) -> ColumnType:
        for name in sorted(self.cases[self.row].fields()):
            problem = column_problem(self.row.table, name)
            if problem is not None:
                raise ValueError(problem)
        return super().kind()

    def order(self, ordering: Ordering, case: Case) -> Ordering:
        return CHANGES

    @property
    def together(self) -> Hashable:
        return self.row


@in_views('current(Customer, "name")')
def current(table: RowClass, readable: Readable) -> Current:
    """A column of a captured table, or an expression over its columns, as the row is now; null if it is deleted.

    The view's row is the one whose key is the key of the table's row, as text. A ViewRow stands for a view likewise.
    """
    if not is_row_class(table):
        raise ValueError(f"is given {shown(table)}, which is no ViewRow and no captured table")
    read, row = expression(readable), row_of(table)
    return Current({row: read, Deleted(table): Null(read, row)}, highest=True, row=row)
