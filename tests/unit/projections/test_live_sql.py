"""The SQL of the live query as people see it: for two views as a file, in which a review sees what changes."""

from pathlib import Path

import pytest

from headwater.eventlog.settings import LogSettings
from headwater.projections.kinds import table_view
from headwater.projections.registry import ViewRegistry
from headwater.projections.spark.patch_sql import live_sql

GOLDEN = Path(__file__).parent / "golden"
SETTINGS = LogSettings(environment="golden", partitions=1, patch_partitions=1)


@pytest.mark.parametrize(("module", "view"), [("listings", "city_market"), ("shop", "product_search")])
def test_the_live_query_of_a_view_is_the_one_in_its_file(module: str, view: str) -> None:
    made = live_sql(table_view(ViewRegistry.load([module]).view(view)), SETTINGS)
    assert made == (GOLDEN / f"{view}.sql").read_text(), (
        f"the SQL changed: if that is meant, write what `live_sql` returns to {GOLDEN / view}.sql"
    )
