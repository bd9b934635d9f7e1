"""The members of a group: it is there while it has some."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headwater.projections.table.monoids.monoid import State, StateField
from headwater.projections.table.types import ColumnType

MEMBERS: Final = "_members"


@dataclass(frozen=True, slots=True)
class Members:
    """Add the number of members; a group without any is deleted. A row that is no group says whether it is.

    deleted: the state field that says so.
    """

    deleted: str

    @property
    def fields(self) -> tuple[StateField, ...]:
        return (StateField(MEMBERS, ColumnType.INTEGER), StateField(self.deleted, ColumnType.BOOLEAN))

    def combine(self, row: State, patch: State) -> None:
        more = patch.get(MEMBERS)
        if more is not None:
            row[MEMBERS] = (row.get(MEMBERS) or 0) + more
            row[self.deleted] = row[MEMBERS] == 0
        elif patch.get(self.deleted) is not None:
            row[self.deleted] = patch[self.deleted]
