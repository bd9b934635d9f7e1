"""Arranges aggregates over rows of captured tables: what contributions and groups store, and what a change brings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from eventlog.capturing.declaring import Captured
from projections.table.expressions import Expression, Value
from projections.table.folds.arranging import Arrangement, arrange
from projections.table.folds.current import CHANGES
from projections.table.folds.fold import Case, Column, Stored
from projections.table.group_keys import GroupKey
from projections.table.layout import Layout
from projections.table.monoids import Members, Pick, StateField
from projections.table.retraction import CHANGED, GROUP, Retraction, own
from projections.table.rows import Deleted, row_of
from projections.table.shown import DELETED
from projections.table.types import ColumnType


def arrange_retracting(
    columns: Mapping[str, Column],
    key: str,
    tables: Iterable[type[Captured]],
    condition: Callable[[Case], Expression | None],
) -> Arrangement:
    """The arrangement of a view over rows of tables, whose columns are sums; raises WrongColumn.

    key: the column that says which group a row is in. condition: whether a row counts (None: always).
    """
    groups = arrange(columns, CHANGES)
    sums = groups.layout.fields
    order = CHANGES.fields(CHANGED)
    values = (StateField(GROUP, ColumnType.TEXT), *(StateField(own(each.name), each.type) for each in sums))
    contribution, members = Pick(order, values, highest=True), Members(DELETED)
    brings: dict[Case, Mapping[str, Expression]] = {}
    for table in tables:
        row = row_of(table)
        added = {own(name): read for name, read in groups.lifted(row).items()}
        brings[row] = CHANGES.lifted(CHANGED) | {GROUP: GroupKey(key, condition(row))} | added
        brings[Deleted(table)] = CHANGES.lifted(CHANGED)
    hidden: dict[Case, Mapping[str, Expression]] = {case: {DELETED: Value(value=True)} for case in brings}
    layout = Layout(
        (*groups.layout.monoids, members, contribution),
        groups.layout.shown,
        groups.layout.types,
        retraction=Retraction(sums, contribution),
    )
    return Arrangement(layout, (Stored(members, hidden), Stored(contribution, brings)))
