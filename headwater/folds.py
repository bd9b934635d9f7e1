"""What a fold of your own is made of: its cases, the value that it stores, and how two values combine.

    from headwater.folds import Case, Cases, ColumnType, Ordering, Readable, State, StateField, Stored, one_kind, read

`docs/adding-a-fold.md` has an example, and the laws that every fold must obey.
"""

from headwater.projections.table.computations import Readable
from headwater.projections.table.expressions import Expression
from headwater.projections.table.folds.fold import Case, Cases, Column, Derived, Fold, Ordering, Stored, one_kind, read
from headwater.projections.table.layout import Shown
from headwater.projections.table.monoids import Monoid, State, StateField
from headwater.projections.table.types import ColumnType

__all__ = [
    "Case",
    "Cases",
    "Column",
    "ColumnType",
    "Derived",
    "Expression",
    "Fold",
    "Monoid",
    "Ordering",
    "Readable",
    "Shown",
    "State",
    "StateField",
    "Stored",
    "one_kind",
    "read",
]
