"""Local copies of partitions that moved away are removed, those that are in use or may come back soon are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwater.commands.local_state.disk_state import DiskBudget, DiskStore
from headwater.commands.local_state.folders import UNUSED_DAYS, Slot, remove_unused

NOW_S = 1_800_000_000.0
OLD_S = NOW_S - UNUSED_DAYS * 24 * 60 * 60 - 1


def copied(slot: Path, partition: int, used_s: float) -> Path:
    """A closed copy that was last written at this time."""
    folder = slot / str(partition)
    store = DiskStore(folder, "a", DiskBudget())
    store.apply({"a/1": b"{}"}, {}, {})
    store.close()
    aged(folder, used_s)
    return folder


def aged(folder: Path, used_s: float) -> None:
    for each in (*folder.iterdir(), folder):
        os.utime(each, (used_s, used_s))


def clock() -> float:
    return NOW_S


def test_a_copy_that_nobody_used_for_a_day_is_removed_and_a_younger_one_is_kept(tmp_path: Path) -> None:
    slot = Slot(tmp_path)
    old, young = copied(slot.folder, 3, OLD_S), copied(slot.folder, 4, OLD_S + 2)
    (slot.folder / "notes").mkdir()
    aged(slot.folder / "notes", OLD_S)
    assert remove_unused(slot, clock) == [old]
    assert sorted(path.name for path in slot.folder.iterdir()) == ["4", "notes"]
    store = DiskStore(young, "a", DiskBudget())
    assert store.snapshot("a/1") == b"{}", "a quick return finds it"
    store.close()


def test_one_that_is_open_is_kept_however_old_its_files_are(tmp_path: Path) -> None:
    slot = Slot(tmp_path)
    folder = copied(slot.folder, 3, OLD_S)
    store = DiskStore(folder, "a", DiskBudget())
    aged(folder, OLD_S)
    assert remove_unused(slot, clock) == []
    assert store.snapshot("a/1") == b"{}"
    store.close()
    aged(folder, OLD_S)
    assert remove_unused(slot, clock) == [folder]


def test_copies_of_processes_that_are_gone_are_removed_and_those_of_living_ones_are_kept(tmp_path: Path) -> None:
    slot, living, gone = Slot(tmp_path), Slot(tmp_path), Slot(tmp_path)
    kept, old = copied(living.folder, 1, OLD_S), copied(gone.folder, 2, OLD_S)
    gone.release()
    assert remove_unused(slot, clock) == [old]
    assert kept.exists()
    assert Slot(tmp_path).folder == gone.folder, "its slot is free"


def test_an_interrupted_sweep_is_finished_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slot = Slot(tmp_path)
    copied(slot.folder, 3, OLD_S)

    def fails(folder: Path) -> None:
        raise OSError("the disk is away")

    with monkeypatch.context() as patched:
        patched.setattr("headwater.commands.local_state.folders.shutil.rmtree", fails)
        assert remove_unused(slot, clock) == []
    remove_unused(slot, clock)
    assert list(slot.folder.iterdir()) == []


def test_a_store_that_cannot_be_opened_is_not_taken_for_an_open_one(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    first = DiskStore(tmp_path / "0", "a", DiskBudget())
    with pytest.raises(Exception, match="lock"):
        DiskStore(tmp_path / "0", "a", DiskBudget())
    assert tmp_path / "0" in DiskStore.opened
    first.close()
    assert tmp_path / "0" not in DiskStore.opened
