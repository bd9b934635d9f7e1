"""What contract tests share: clients that wait for a busy machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.patience import patient


@pytest.fixture(scope="package", autouse=True)
def patience() -> Iterator[None]:
    with patient():
        yield


DECIDING_ON_ELASTICSEARCH: Final = frozenset(
    (
        "test_a_crash_between_any_two_writes_loses_and_doubles_nothing",
        "test_a_crash_between_two_groups_of_rows_loses_and_doubles_nothing",
        "test_a_rebuild_writes_what_patches_wrote",
        "test_a_row_that_cannot_move_to_its_group_stays_where_it_was",
        "test_a_server_that_comes_back_as_it_was_during_bulk_has_lost_the_generation",
        "test_a_store_that_lost_its_last_writes_is_noticed",
        "test_bulk_then_live_counts_every_event_once",
        "test_each_row_reads_as_it_was_folded_and_is_written_back_unchanged",
        "test_every_store_finds_the_same_rows",
        "test_it_is_in_no_list_count_search_or_facet",
        "test_it_is_missing_by_its_key",
        "test_random_histories_leave_the_rows_of_the_reference",
        "test_writers_that_race_for_one_partition_leave_exact_rows",
    )
)
"""Contract tests that decide on Elasticsearch, too, where an index takes a second to create; the others decide on the
other stores, and are of the complete suite on this one.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        if (
            item.path.parent == Path(__file__).parent
            and "elasticsearch" in [value for value in parameters if isinstance(value, str)]
            and getattr(item, "originalname", "") not in DECIDING_ON_ELASTICSEARCH
        ):
            item.add_marker(pytest.mark.complete)
