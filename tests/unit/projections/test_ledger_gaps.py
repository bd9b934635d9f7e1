"""Whether a generation still has its ledgers, and `patches` the records that they need."""

from __future__ import annotations

import pytest

from headwater.projections.stores.ledgers import Gap, gap
from headwater.projections.stores.store import Ledger

LEDGERS = {0: Ledger(10), 1: Ledger(20), 2: Ledger(30)}


def test_the_next_patch_of_each_partition_must_be_there() -> None:
    first = {0: 10, 1: 20, 2: 0}
    assert gap(LEDGERS, first, first.__getitem__) is None, "nothing that it needs was deleted"
    assert gap(LEDGERS, first, {0: 10, 1: 21, 2: 99}.__getitem__) == Gap(1, needed=20, first=21), "the first gap"
    assert gap(LEDGERS, [0, 2], {0: 10, 1: 21, 2: 30}.__getitem__) is None, "only the given partitions count"
    assert gap({}, [], first.__getitem__) is None


@pytest.mark.parametrize("first", [0, 99])
def test_a_missing_ledger_is_named_before_the_log_is_asked_for_anything(first: int) -> None:
    asked: list[int] = []

    def first_kept(partition: int) -> int:
        asked.append(partition)
        return first

    assert gap(LEDGERS, [0, 1, 5], first_kept) == Gap(5, needed=None)
    assert not asked
