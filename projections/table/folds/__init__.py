"""The folds with which a view's columns are declared, one file per family: what each event contributes.

    price = last({Listed: "price", PriceChanged: "price"})
    sold = count(Sold)
    prices = members({Listed: [(1, "price")], Withdrawn: [(-1, "price")]})
    lowest_price = lowest(prices)

A case names an event class and what is read of it: the name of a field, a number, or an expression (`value("sold")`,
`minus("price", "previous_price")`). EVERY stands for any event; then only the envelope can be read.

Declarations import from here. `docs/adding-a-fold.md` says how to add one.
"""

from headwater.projections.table.folds.fold import EVERY, Case, Column, Derived, Fold, Ordering, Stored
from headwater.projections.table.folds.lists import (
    approximate_distinct,
    collect,
    distinct,
    highest,
    lowest,
    members,
    nested,
    top,
)
from headwater.projections.table.folds.single import add, average, count, current, first, last, maximum, minimum, ratio

__all__ = [
    "EVERY",
    "Case",
    "Column",
    "Derived",
    "Fold",
    "Ordering",
    "Stored",
    "add",
    "approximate_distinct",
    "average",
    "collect",
    "count",
    "current",
    "distinct",
    "first",
    "highest",
    "last",
    "lowest",
    "maximum",
    "members",
    "minimum",
    "nested",
    "ratio",
    "top",
]
