"""A view compiled to Python means what the reference means: rows, in parts of any size, and what nobody can read."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest

from commands.declaring.registry import CommandRegistry
from projections.folding.arrow_rows import batches
from projections.folding.compiled import Program, compiled
from projections.folding.folder import Folder, Rows
from projections.registry import ViewRegistry
from projections.stores.documents import DocumentForm
from projections.table.expressions import Source
from projections.table.view import TableView
from projections.testing.histories import history as random_history
from tests.contracts.fold_views import FOLD_VIEWS
from tests.contracts.view_histories import BY_GROUP, BY_THING, Put, Removed, Restored, Taken
from tests.domains import SHIPPED
from tests.spark_histories import history
from tests.states import differences, expected_states, touched

SHIPPED_VIEWS = ViewRegistry.load(SHIPPED).views
AGGREGATES = list(CommandRegistry.load(SHIPPED).aggregates.values())
FOLDED = {view.name: view for view in (BY_THING, BY_GROUP, *FOLD_VIEWS.values())}


def folder_of(program: Program, sources: Iterable[Source]) -> Folder:
    folder = Folder(program)
    for each in sources:
        place, key = each.position, each.envelope.id.encode()
        folder.add(place.partition, place.offset, each.timestamp_ms, key, each.record.encode())
    return folder


def states(view: TableView, rows: Rows) -> dict[str, dict[str, Any]]:
    names = [field.name for field in view.layout.fields]
    return {key: touched(dict(zip(names, row, strict=True))) for key, row in rows.items()}


def check(view: TableView, sources: Sequence[Source], seed: int = 1) -> None:
    program = compiled(view)
    if view.name != "with_own_fold":  # whose module exists in this process only
        program = pickle.loads(pickle.dumps(program))
    whole = folder_of(program, sources)
    assert whole.folded.unclear == []
    assert differences(states(view, whole.rows()), expected_states(view, sources)) == []

    chance, together = random.Random(seed), Folder(program)
    dealt: list[list[Source]] = [[] for _ in range(4)]
    for each in sources:
        chance.choice(dealt).append(each)
    for part in dealt:
        together.take_in(msgspec.msgpack.decode(msgspec.msgpack.encode(folder_of(program, part).rows()), type=Rows))
    assert differences(states(view, together.folded.rows), expected_states(view, sources)) == []

    form = DocumentForm.of(view)
    stored = [form.from_arrow(row) for batch in batches(program, together.folded.rows) for row in batch.to_pylist()]
    assert differences({key: touched(state) for key, state in stored}, expected_states(view, sources)) == []


@pytest.mark.parametrize("name", FOLDED)
@pytest.mark.parametrize("seed", range(3))
def test_every_fold_over_every_type_is_the_references(name: str, seed: int) -> None:
    view = FOLDED[name]
    events = list(view.events.values()) if name in FOLD_VIEWS else [Put, Taken, Removed, Restored]
    check(view, random_history(view, events, seed, length=150).sources, seed)


@pytest.mark.parametrize("name", SHIPPED_VIEWS)
def test_rows_of_random_histories_are_the_references(name: str) -> None:
    for seed in (1, 2):
        check(SHIPPED_VIEWS[name], history(AGGREGATES, seed, 150, 3), seed)
