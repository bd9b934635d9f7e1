"""Numbers in JSON texts: what Spark reads live is what Python reads in bulk, however their producer wrote them."""

from __future__ import annotations

import pytest

from headwater.projections.loading.decoding import read_into
from headwater.projections.reading.reader import states
from headwater.projections.stores.store import Batch
from headwater.projections.table.monoids import State
from headwater.projections.table.view import TableView
from tests.support.noted import ODD, VIEWS, doubles, noted
from tests.support.seeds import examples, seed_of
from tests.support.spark_rows import SETTINGS, made_of, records_of
from tests.support.states import differences, touched

pytestmark = pytest.mark.jvm


@pytest.mark.complete
@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_rows_of_patches_are_the_references(view: TableView) -> None:
    sources = noted([*ODD * 3, *map(repr, doubles(seed_of(2), 100 * examples(30)))])
    batch = Batch(0)
    for row in made_of(records_of(sources), [view], SETTINGS):
        read_into(batch, row.key.encode(), row.value.encode(), json_texts={view.tag: view.layout.json_texts})
    rows: dict[str, State] = {}
    for patch in batch.patches[view.tag]:
        view.layout.combine(rows.setdefault(patch.key, {}), patch.fields)
    found = {key: touched(row) for key, row in rows.items()}
    assert differences(found, {key: touched(row) for key, row in states(view, sources).items()}) == []
