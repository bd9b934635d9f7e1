"""Arranges aggregates over rows: what contributions and groups store, their keys, and what a change brings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from headwater.commands.declaring.aggregate import Event
from headwater.eventlog.envelope import Envelope
from headwater.projections.table.declared import storage_word
from headwater.projections.table.expressions import Expression, Field, Value, literal
from headwater.projections.table.folds.arranging import Arrangement, WrongColumn, arrange
from headwater.projections.table.folds.fold import Case, Cases, Column, Derived, Ordering, Stored, one_kind
from headwater.projections.table.folds.single import CHANGES, Bound
from headwater.projections.table.layout import DELETED, Edge, Layout
from headwater.projections.table.monoids import Members, Pick, StateField, Tally, tally_field
from headwater.projections.table.patch import CHANGED, GROUP, Retraction, contribution_key, own
from headwater.projections.table.rows import Deleted, RowClass, row_of
from headwater.projections.table.types import ColumnType, spark_stored

GROUP_TYPES: Final = (ColumnType.TEXT, ColumnType.INTEGER, ColumnType.BOOLEAN, ColumnType.DATE)


@storage_word("ContributionKey")
@dataclass(frozen=True, slots=True)
class ContributionKey(Expression):
    """The key of a row's contribution. topic: of its table."""

    topic: str
    name: str = "stream"

    def kind(self, event: type[Event] | None) -> ColumnType:
        return ColumnType.TEXT

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        return f"concat({literal(self._prefix)}, `stream`)"

    def python(self, event: type[Event] | None) -> str:
        return f"{self._prefix!r} + head.subject"

    def of(self, envelope: Envelope) -> str:
        """The key for a change of a row."""
        return self._prefix + envelope.stream

    @property
    def _prefix(self) -> str:
        return contribution_key(self.topic, "")


@storage_word("GroupKey")
@dataclass(frozen=True, slots=True)
class GroupKey:
    """The text of a column; null if it is null, or if the condition is not true (None: it always counts)."""

    column: str
    condition: Expression | None

    def kind(self, event: type[Event] | None) -> ColumnType:
        kind = Field(self.column).kind(event)
        if kind not in GROUP_TYPES and not kind.is_decimal:
            raise ValueError(
                f'"{self.column}" is {kind.value}: group by a column of texts, integers, booleans, decimals or days'
            )
        return ColumnType.TEXT

    def fields(self) -> frozenset[str]:
        return frozenset({self.column}) | (frozenset() if self.condition is None else self.condition.fields())

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        column = Field(self.column)
        text = f"cast({spark_stored(column.spark(event, parsed), column.kind(event))} as string)"
        if self.condition is None:
            return text
        return f"if(coalesce({self.condition.spark(event, parsed)}, false), {text}, cast(null as string))"

    def python(self, event: type[Event] | None) -> str:
        column = Field(self.column)
        kind, text = column.kind(event), column.python(event)
        if kind.is_decimal:
            text = f"decimal_in_rows({text}, {kind.places})"
        elif kind is not ColumnType.TEXT:
            text = f"group_text({text})"
        return text if self.condition is None else f"({text} if {self.condition.python(event)} else None)"


def group_text(value: Any) -> str | None:
    """The key of the rows with this value in their column."""
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)


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
    # the type of what a contribution adds is that of the value itself, of which a group has a tally
    adds = (StateField(own(each.name), each.entry[0].type if each.entry else each.type) for each in sums)
    values = (StateField(GROUP, ColumnType.TEXT), *adds)
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
            made[name] = Derived((values,), kind, partial(Edge, highest=column.highest, kind=kind))
    return made
