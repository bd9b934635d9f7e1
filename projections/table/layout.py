"""The layout of a row: its state fields, how two states combine, and the visible columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from headwater.projections.table.json_text import JsonTexts
from headwater.projections.table.monoids import Monoid, State, StateField
from headwater.projections.table.patch import Patch
from headwater.projections.table.retraction import Retraction, contribution_key
from headwater.projections.table.shown import DELETED, Itself, Shown
from headwater.projections.table.types import ColumnType


@dataclass(frozen=True)
class Layout:
    """The layout of a row.

    monoids: the groups of state fields. shown: how each visible column is computed. types: of the visible columns.
    json_texts: the state fields whose texts Spark writes in another form than Python. retraction: of a view over rows
    of captured tables, whose changes take back what the rows contributed before.
    """

    monoids: tuple[Monoid, ...]
    shown: Mapping[str, Shown]
    types: Mapping[str, ColumnType]
    json_texts: JsonTexts = field(default_factory=dict)
    retraction: Retraction | None = None

    @cached_property
    def fields(self) -> tuple[StateField, ...]:
        """Every state field, in a fixed order."""
        return tuple(each for monoid in self.monoids for each in monoid.fields)

    @cached_property
    def derived(self) -> dict[str, Shown]:
        """The visible columns that are not state fields."""
        return {name: shown for name, shown in self.shown.items() if not isinstance(shown, Itself)}

    @cached_property
    def marks_deleted(self) -> bool:
        """Whether a state field says that a row is deleted."""
        return any(field.name == DELETED for field in self.fields)

    def patched_key(self, topic: str, key: str) -> str:
        """The key of the patches of a captured row. topic: of its table. key: the row's."""
        return key if self.retraction is None else contribution_key(topic, key)

    def with_groups(self, patches: list[Patch], rows: Mapping[str, State]) -> list[Patch]:
        """The patches, behind those of the groups that they change if they are of contributions; rows: as before."""
        return patches if self.retraction is None else [*self.retraction.patches(patches, rows), *patches]

    def combine(self, row: State, patch: State) -> None:
        """Combine a patch into a row, in place."""
        for monoid in self.monoids:
            monoid.combine(row, patch)
