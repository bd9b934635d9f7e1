"""Arranges aggregates over rows: what contributions and groups store, and what a change brings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from headwater.projections.table.expressions import Expression, Value
from headwater.projections.table.folds.arranging import Arrangement, WrongColumn, arrange
from headwater.projections.table.folds.current import CHANGES
from headwater.projections.table.folds.fold import Case, Cases, Column, Derived, Ordering, Stored, one_kind
from headwater.projections.table.folds.numbers import Bound
from headwater.projections.table.group_keys import GroupKey
from headwater.projections.table.layout import Layout
from headwater.projections.table.monoids import Members, Pick, StateField, Tally
from headwater.projections.table.monoids.tallies import tally_field
from headwater.projections.table.retraction import CHANGED, GROUP, Retraction, own
from headwater.projections.table.rows import Deleted, RowClass, row_of
from headwater.projections.table.shown import DELETED, KeptEdge
from headwater.projections.table.types import ColumnType


def arrange_retracting(
    columns: Mapping[str, Column],
    key: str,
    tables: Iterable[RowClass],
    condition: Callable[[Case], Expression | None],
) -> Arrangement:
    """The arrangement of a view over rows of tables, whose columns are sums; raises WrongColumn.

    key: the column that says which group a row is in. condition: whether a row counts (None: always).
    """
    groups = arrange(_with_kept_values(columns), CHANGES)
    sums = groups.layout.fields
    order = CHANGES.fields(CHANGED)
    values = (StateField(GROUP, ColumnType.TEXT), *(StateField(own(each.name), _own_type(each)) for each in sums))
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


@dataclass(frozen=True, eq=False)
class Kept:
    """The values of a group's rows, and how many times each is there, so that they can be taken back."""

    cases: Cases

    def kind(self) -> ColumnType:
        return one_kind(self.cases)

    def stored(self, name: str, ordering: Ordering) -> Stored:
        return Stored(Tally(tally_field(name, self.kind())), {case: {name: each} for case, each in self.cases.items()})


def _with_kept_values(columns: Mapping[str, Column]) -> dict[str, Column]:
    """The columns, with highest and lowest values as what is kept of all values; raises WrongColumn."""
    made, kept = dict(columns), dict[frozenset[tuple[Case, Expression]], Kept]()
    for name, column in columns.items():
        if isinstance(column, Bound):
            try:
                kind = column.kind()
            except ValueError as error:
                raise WrongColumn(name, str(error)) from error
            values = kept.setdefault(frozenset(column.cases.items()), Kept(column.cases))
            made[name] = Derived((values,), kind, partial(KeptEdge, highest=column.highest, kind=kind))
    return made


def _own_type(added: StateField) -> ColumnType:
    """The type of what a contribution adds: the value itself, of which a group has a tally."""
    return added.entry[0].type if added.entry else added.type
