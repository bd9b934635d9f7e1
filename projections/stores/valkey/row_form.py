"""What scripts write of a row: its guard, state and document, and its places in rankings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from headwater.projections.stores.documents import DocumentForm, Guard
from headwater.projections.stores.store import Target
from headwater.projections.stores.valkey.bulk import document
from headwater.projections.stores.valkey.rankings import Rankings, ScoredMember, changed_places
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import places_to_json


@dataclass(frozen=True)
class RowForm:
    """How the rows of one generation, and their places in its rankings, are written."""

    form: DocumentForm
    rankings: Rankings

    @classmethod
    def of(cls, target: Target, environment: str) -> RowForm:
        return cls(DocumentForm.of(target.view), Rankings.of(environment, target.view, target.generation))

    def changed(self, key: str, state_json: bytes | None, state: State, guard: Guard) -> tuple[Any, ...]:
        """For WRITE_ROW: a list of the sorted sets that change, and then its arguments after the guard as it was read.

        state_json: as it was read; None if there is no row yet.
        """
        if not self.rankings.ranked:
            return ([], *_row(self.form, key, state, guard))
        return self.replaced(key, state_json, state, guard)

    def replaced(self, key: str, state_json: bytes | None, state: State, guard: Guard) -> tuple[Any, ...]:
        """The same for a whole row in place of the one that was read, which must not have changed at all."""
        names, places = _changes(self._read_places(key, state_json), self._places(key, state))
        return (names, *_row(self.form, key, state, guard), state_json or b"", *places)

    def removed(self, key: str, state_json: bytes | None) -> tuple[list[str], list[Any]]:
        """For DELETE_ROW: the sorted sets that have the row, and the member in each."""
        old = self._read_places(key, state_json)
        return list(old), [place.member for place in old.values()]

    def _read_places(self, key: str, state_json: bytes | None) -> Mapping[str, ScoredMember]:
        return self._places(key, orjson.loads(state_json) if state_json else None)

    def _places(self, key: str, state: State | None) -> Mapping[str, ScoredMember]:
        return {} if state is None else self.rankings.places(self.form, key, state)


def _changes(old: Mapping[str, ScoredMember], new: Mapping[str, ScoredMember]) -> tuple[list[str], list[Any]]:
    """The sorted sets that change, and the score and member in each."""
    changes = list(changed_places(old, new))
    return [name for name, _, _ in changes], [each for _, score, member in changes for each in (score, member)]


def _row(form: DocumentForm, key: str, state: State, guard: Any) -> tuple[bytes, bytes, bytes]:
    """A row's guard, state and document."""
    return orjson.dumps(places_to_json(guard)), orjson.dumps(state), document(form, key, state)
