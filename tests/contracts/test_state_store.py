"""The contract of a partition's local state, in memory and on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.commands.local_state.disk_state import DiskBudget, DiskStore
from headwater.commands.local_state.state import MemoryStore, StateStore

DAY_MS = 24 * 60 * 60 * 1000
START_MS = 20_000 * DAY_MS


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StateStore]:
    opened: StateStore
    opened = MemoryStore() if request.param == "memory" else DiskStore(tmp_path / "0", "a", DiskBudget())
    yield opened
    opened.close()


def test_an_empty_store_knows_nothing(store: StateStore) -> None:
    assert store.snapshot("a/1") is None
    assert store.receipts(["c"])[0] is None
    assert store.position("snapshots") == 0


def test_what_was_applied_is_found_by_its_own_name(store: StateStore) -> None:
    store.apply({"a/1": b"1", "ü/\udcff": b"2"}, {"a/1": b"3", "": b"4"}, {"snapshots": 7, "receipts": 2**40})
    assert (store.snapshot("a/1"), store.snapshot("ü/\udcff"), store.snapshot("a")) == (b"1", b"2", None)
    assert (store.receipts(["a/1"])[0], store.receipts([""])[0], store.receipts(["a"])[0]) == (b"3", b"4", None)
    assert (store.position("snapshots"), store.position("receipts"), store.position("events")) == (7, 2**40, 0)


def test_the_latest_value_counts_and_none_forgets(store: StateStore) -> None:
    store.apply({"a": b"1", "b": b"1"}, {"c": b"1", "d": b"1"}, {"snapshots": 1})
    store.apply({"a": b"2", "b": None, "never": None}, {"c": b"2", "d": None}, {"snapshots": 0})
    assert (store.snapshot("a"), store.snapshot("b"), store.snapshot("never")) == (b"2", None, None)
    assert (store.receipts(["c"])[0], store.receipts(["d"])[0]) == (b"2", None)
    assert store.position("snapshots") == 0


def test_an_empty_snapshot_is_not_none(store: StateStore) -> None:
    store.apply({"a": b""}, {}, {})
    assert store.snapshot("a") == b""


def test_a_store_that_was_cleared_is_empty_and_goes_on(store: StateStore) -> None:
    store.apply({"a": b"1"}, {"c": b"1"}, {"snapshots": 1})
    store.clear()
    test_an_empty_store_knows_nothing(store)
    store.apply({"a": b"2"}, {}, {})
    assert store.snapshot("a") == b"2"


@pytest.mark.parametrize("forget", [False, True])
def test_receipts_are_found_for_at_least_seven_days(store: StateStore, forget: bool) -> None:
    for quarter in range(30 * 4):
        store.apply({}, {f"c{quarter}": b"x"}, {}, START_MS + quarter * DAY_MS // 4)
        promised = range(max(0, quarter - 7 * 4), quarter + 1)
        assert [store.receipts([f"c{n}"])[0] for n in promised] == [b"x"] * len(promised)
    if forget:
        store.apply({}, {"c95": None}, {}, START_MS + 30 * DAY_MS)
        assert store.receipts(["c95"])[0] is None


@pytest.mark.parametrize("wrong_ms", [1, START_MS - DAY_MS, START_MS + DAY_MS, START_MS + 365 * DAY_MS])
def test_a_clock_that_goes_wrong_hides_no_receipt(store: StateStore, wrong_ms: int) -> None:
    """Nor one that goes wrong again and again."""
    for number in range(8):
        store.apply({}, {f"right{number}": b"1"}, {}, START_MS + number)
        store.apply({}, {f"wrong{number}": b"2"}, {}, wrong_ms)
    store.apply({}, {"last": b"3"}, {}, START_MS + DAY_MS)
    assert [store.receipts([f"right{number}"])[0] for number in range(8)] == [b"1"] * 8
    assert [store.receipts([f"wrong{number}"])[0] for number in range(8)] == [b"2"] * 8
    assert store.receipts(["last"])[0] == b"3"


def test_snapshots_are_listed_in_the_order_of_their_names_from_any_place_on(store: StateStore) -> None:
    names = ["t/10", "t/2", "t/2/a", "t/2\x00", "t/ü", "t/\udcff"]
    store.apply({name: name.encode(errors="surrogateescape") for name in names} | {"u/1": b"", "s/9": b""}, {}, {})
    in_order = ["t/10", "t/2", "t/2\x00", "t/2/a", "t/ü", "t/\udcff"]
    assert [name for name, _ in store.snapshots("t")] == in_order
    assert [name for name, _ in store.snapshots("t", "2")] == in_order[1:]
    assert [name for name, _ in store.snapshots("t", "2\x00\x00")] == in_order[3:]
    assert list(store.snapshots("t", "\udcff\udcff")) == []


def test_the_snapshots_of_an_aggregate_are_listed_without_those_of_others(store: StateStore) -> None:
    store.apply({"a/2": b"2", "a/1": b"1", "ab/1": b"3", "a": b"4", "b/1": b"5"}, {"a/3": b"6"}, {"a/4": 7})
    listed = store.snapshots("a")
    store.apply({"a/1": b"changed", "a/9": b"9"}, {}, {})  # while they are listed
    assert dict(listed).keys() >= {"a/1", "a/2"}
    assert dict(store.snapshots("a")) == {"a/1": b"changed", "a/2": b"2", "a/9": b"9"}
    assert dict(store.snapshots("c")) == {}
