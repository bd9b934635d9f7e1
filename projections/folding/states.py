"""Patches combined into rows."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.projections.folding.fold_records import Rows
from headwater.projections.folding.program import Program
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import Patch


class States:
    """Rows as states, by key; see Program for their form as rows."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._states: dict[str, State] = {}

    def __len__(self) -> int:
        return len(self._states)

    def add(self, patches: Iterable[Patch]) -> None:
        """Combine patches into their rows."""
        for patch in patches:
            state = self._states.setdefault(patch.key, {})
            for monoid in self._program.monoids:
                monoid.combine(state, patch.fields)

    def drain(self) -> Rows:
        """The rows so far, which are then forgotten."""
        names = [field.name for field in self._program.fields]
        states, self._states = self._states, {}
        return {key: [state.get(name) for name in names] for key, state in states.items()}
