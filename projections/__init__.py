"""The read side: views declared once, run live and in bulk by Spark. May import `commands` and `eventlog`.

To declare a view, import from here and from nowhere else in this package:

    from projections import Elasticsearch, Postgres, TableView, add, count, last
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventlog.modules import first_with
from eventlog.shadowing import refuse_hidden

if TYPE_CHECKING:
    from projections.stores.declared import Cache, Elasticsearch, Postgres, Ranking, Topic
    from projections.stream.declaring.columns import BOOLEAN, FLOAT, INTEGER, JSON, POINT, TEXT, TIME
    from projections.stream.declaring.sources import events, observations
    from projections.stream.declaring.view import StreamView
    from projections.stream.in_order.ordered import in_order
    from projections.stream.in_order.patterns import occurs, pattern
    from projections.stream.in_order.steps import UNCHANGED
    from projections.table.conditions import above, all_of, any_of, at_least, at_most, below, differs, equals, negated
    from projections.table.expressions import envelope, field, minus, negative, point, value, when
    from projections.table.folds import (
        EVERY,
        add,
        approximate_distinct,
        average,
        collect,
        count,
        current,
        distinct,
        first,
        highest,
        last,
        lowest,
        maximum,
        members,
        minimum,
        nested,
        ratio,
        top,
    )
    from projections.table.items import item
    from projections.table.lookups import Lookup
    from projections.table.rows import Deleted
    from projections.table.view import TableView

refuse_hidden("projections", "headwater projections", "commands")

__all__ = [
    "BOOLEAN",
    "EVERY",
    "FLOAT",
    "INTEGER",
    "JSON",
    "POINT",
    "TEXT",
    "TIME",
    "UNCHANGED",
    "Cache",
    "Deleted",
    "Elasticsearch",
    "Lookup",
    "Postgres",
    "Ranking",
    "StreamView",
    "TableView",
    "Topic",
    "above",
    "add",
    "all_of",
    "any_of",
    "approximate_distinct",
    "at_least",
    "at_most",
    "average",
    "below",
    "collect",
    "count",
    "current",
    "differs",
    "distinct",
    "envelope",
    "equals",
    "events",
    "field",
    "first",
    "highest",
    "in_order",
    "item",
    "last",
    "lowest",
    "maximum",
    "members",
    "minimum",
    "minus",
    "negated",
    "negative",
    "nested",
    "observations",
    "occurs",
    "pattern",
    "point",
    "ratio",
    "top",
    "value",
    "when",
]

_PLACES = (
    "projections.stream.declaring.columns",
    "projections.stream.in_order.ordered",
    "projections.stream.in_order.patterns",
    "projections.stream.declaring.sources",
    "projections.stream.in_order.steps",
    "projections.stream.declaring.view",
    "projections.table.conditions",
    "projections.stores.declared",
    "projections.table.expressions",
    "projections.table.folds",
    "projections.table.items",
    "projections.table.lookups",
    "projections.table.rows",
    "projections.table.view",
)


def __getattr__(name: str) -> object:
    """Import a name at its first use, so that an import of this package stays fast."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return first_with(name, _PLACES)
