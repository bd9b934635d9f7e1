"""Which callers of the API may read a row: `readable_by={"owner": Claim("sub")}`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from headwater.commands.declaring.filled_fields import Claim
from headwater.eventlog.declaring import must_be_text
from headwater.projections.table.fold_plan import FoldPlan
from headwater.projections.table.folds.fold import folds_of
from headwater.projections.table.layout import Itself, Layout
from headwater.projections.table.lookups import Lookup
from headwater.projections.table.mistaken import must_be
from headwater.projections.table.rows import CapturedRow, RowClass, rows_text
from headwater.projections.table.types import ColumnType

EXAMPLE: Final = 'readable_by={"owner": Claim("sub")}'
COMPARED: Final = (ColumnType.TEXT, ColumnType.INTEGER)
"""Types of which a value equals a claim exactly, in every store."""


def check_readable_types(readable_by: object) -> None:
    """Raise ValueError unless it is a claim by column."""
    claims = must_be(
        Mapping, readable_by, f"readable_by={{}} does not say which claim a column equals: write {EXAMPLE}"
    )
    for column, claim in claims.items():
        must_be_text("a column of readable_by", column, EXAMPLE)
        must_be(Claim, claim, f'"{column}" of readable_by is {{}}, which is no claim: write {EXAMPLE}')


def check_readable(
    readable_by: Mapping[str, Claim],
    key_name: str,
    types: Mapping[str, ColumnType],
    looked_up: Mapping[str, Lookup],
    layout: Layout,
) -> None:
    """Raise ValueError if a column of `readable_by` cannot be compared with a claim exactly."""
    use = f"use one of {', '.join(name for name, kind in types.items() if kind in COMPARED)}"
    for column in readable_by:
        if column in looked_up:
            there = looked_up[column].view
            raise ValueError(
                f'readable_by names "{column}", which is looked up in "{there}" when a row is read, not stored: {use}'
            )
        if column not in types:
            raise ValueError(f'readable_by names "{column}", which is not a column of this view: {use}')
        if types[column] not in COMPARED:
            raise ValueError(
                f'readable_by names "{column}", which is {types[column].value}: only text and integers are compared '
                f"with a claim: {use}"
            )
        if column != key_name and not isinstance(layout.shown[column], Itself):
            raise ValueError(
                f'readable_by names "{column}", which is computed from other values, so that two owners may have the '
                "same: use a column of last(…), first(…) or current(…)"
            )


def check_unmasked(plan: FoldPlan, readable_by: Mapping[str, Claim]) -> None:
    """Raise ValueError if a column of `readable_by` is captured only in part, so that two owners may look the same."""
    for column in readable_by:
        for table, name in _captured(plan, column):
            mask = table.columns[name].mask
            if mask is not None:
                raise ValueError(
                    f'readable_by names "{column}", but "{name}" of {rows_text(table)} is captured as '
                    f"{type(mask).__name__}(), which is not its value: capture it whole, or use another column"
                )


def state_fields(columns: Iterable[str], layout: Layout) -> dict[str, str]:
    """By column, the state field that patches bring for it; without columns that no patch brings, such as the key."""
    shown_by = layout.shown
    return {name: how.field for name in columns if isinstance(how := shown_by.get(name), Itself)}


def _captured(plan: FoldPlan, column: str) -> Iterator[tuple[RowClass, str]]:
    """The captured columns that a column is read from."""
    for fold in folds_of(plan.columns[column]) if column in plan.columns else ():
        for case, read in fold.cases.items():
            if isinstance(case, type) and issubclass(case, CapturedRow):
                for name in read.fields():
                    yield case.table, name
