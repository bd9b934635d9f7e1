"""The local state on disk: restarts, damage, another origin, a full disk, expired receipts, folders of one's own."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from headwater.commands.errors import LocalStateError
from headwater.commands.local_state.disk_state import DAY_MS, DiskBudget, DiskStore
from headwater.commands.local_state.folders import Slot
from tests.support.module_time import set_time

BUDGET = DiskBudget()


def opened(folder: Path, origin: str = "a", **more: Any) -> DiskStore:
    return DiskStore(folder / "0", origin, BUDGET, **more)


def filled(folder: Path, age_days: int = 0) -> None:
    store = opened(folder)
    now_ms = int(time.time() * 1000) - age_days * DAY_MS
    store.apply({f"s{n}": b"x" * 1000 for n in range(100)}, {"c": b"r"}, {"snapshots": 5}, now_ms)
    store.close()


def test_a_store_that_is_opened_again_knows_what_it_knew(tmp_path: Path) -> None:
    filled(tmp_path)
    store = opened(tmp_path)
    assert (store.snapshot("s7"), store.receipts(["c"])[0], store.position("snapshots")) == (b"x" * 1000, b"r", 5)
    # an old time must not be put where nobody looks
    store.apply({}, {"d": b"r"}, {}, 0)
    assert store.receipts(["d"])[0] == b"r"
    store.close()


def test_a_store_of_another_origin_is_emptied(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    filled(tmp_path)
    store = opened(tmp_path, origin="b")
    assert (store.snapshot("s7"), store.receipts(["c"])[0], store.position("snapshots")) == (None, None, 0)
    assert "copy of other topics" in caplog.text
    store.close()


def test_a_store_that_may_have_missed_deletions_is_emptied(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    filled(tmp_path, age_days=4)
    store = opened(tmp_path)
    assert (store.snapshot("s7"), store.position("snapshots")) == (None, 0)
    assert "missed deletions" in caplog.text
    store.close()


def test_a_new_store_is_no_cause_for_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    opened(tmp_path).close()
    assert not caplog.records


@pytest.mark.parametrize("part", ["CURRENT", "MANIFEST-*"])
def test_a_store_that_cannot_be_opened_is_built_anew(
    tmp_path: Path, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path)
    for file in (tmp_path / "0").glob(part):
        file.write_bytes(b"\x00 nothing that RocksDB has written")
    store = opened(tmp_path)
    assert (store.snapshot("s7"), store.position("snapshots")) == (None, 0)
    assert "damaged" in caplog.text
    store.close()


def test_a_store_that_turns_out_to_be_damaged_is_refused_and_then_built_anew(tmp_path: Path) -> None:
    filled(tmp_path)
    opened(tmp_path).close()  # writes what is in the write-ahead log to a table
    tables = list((tmp_path / "0").glob("*.sst"))
    assert tables
    for table in tables:
        content = bytearray(table.read_bytes())
        content[64:1024] = bytes(960)
        table.write_bytes(content)
    store = opened_or_none(tmp_path)
    if store is not None:
        with pytest.raises(LocalStateError, match="Corruption"):
            for number in range(100):
                store.snapshot(f"s{number}")
        store.close()
    store = opened(tmp_path)
    assert (store.snapshot("s7"), store.position("snapshots")) == (None, 0)
    store.close()


def opened_or_none(folder: Path) -> DiskStore | None:
    """A damaged table may be found when it is opened already."""
    try:
        return opened(folder)
    except LocalStateError:
        return None


def test_a_disk_without_room_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store._low_water_bytes = 2**60
    with pytest.raises(LocalStateError, match=r"MiB are free.*free some space"):
        store.check()
    store.close()
    with pytest.raises(LocalStateError, match="MiB are free"):
        opened(tmp_path, low_water_bytes=2**60)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LocalStateError, match="HEADWATER_STATE"):
        opened(tmp_path / "file")
    with pytest.raises(LocalStateError, match="HEADWATER_STATE"):
        Slot(tmp_path / "file" / "handler")


def test_a_store_of_a_time_to_come_is_emptied(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    filled(tmp_path, age_days=-365)
    store = opened(tmp_path)
    assert (store.snapshot("s7"), store.position("snapshots")) == (None, 0)
    assert "from the future" in caplog.text
    store.close()


class Days:
    """A store that takes a receipt every quarter of a day; its first day is 40 days ago."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch, self.day = folder, monkeypatch, 0
        self.start_ms = int(time.time() * 1000) - 40 * DAY_MS

    def live(self, days: int, receipts_days: int) -> set[int]:
        """Open it, go on for some days, and close it; returns the days whose receipts there are then."""
        start_ms, started = self.start_ms + self.day * DAY_MS, self.day
        set_time(self.monkeypatch, "headwater.commands.local_state.disk_state", time=lambda: start_ms / 1000)
        store = opened(self.folder, receipts_days=receipts_days)
        for quarter in range(days * 4):
            self.day = started + quarter // 4
            store.apply({}, {f"{self.day}.{quarter % 4}": b"x"}, {}, start_ms + quarter * DAY_MS // 4)
        kept = {day for day in range(self.day + 1) if all(store.receipts([f"{day}.{q}"])[0] for q in range(4))}
        keys = [key for key in store._db.keys() if isinstance(key, bytes)]  # noqa: SIM118
        written = {int(key[9:].partition(b".")[0]) for key in keys if key.startswith(b"r")}
        assert kept <= written
        assert len(written) <= len(kept) + 1
        store.close()
        self.day += 1
        return kept


@pytest.mark.parametrize("days", [1, 3, 7])
def test_receipts_are_kept_for_as_many_days_as_one_likes_and_not_much_longer(
    tmp_path: Path, days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Days(tmp_path, monkeypatch).live(30, days)
    assert kept >= set(range(29 - days, 30))
    assert not kept & set(range(29 - 2 * days - 3))


@pytest.mark.parametrize(("before", "after"), [(7, 3), (3, 7), (1, 7), (7, 1), (7, 30)])
def test_another_number_of_days_forgets_nothing_that_is_still_promised(
    tmp_path: Path, before: int, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = Days(tmp_path, monkeypatch)
    days.live(16, before)
    for day in range(16, 23):
        promised = set(range(max(day - after, 16 - before), day + 1))
        assert days.live(1, after) >= promised
    kept = days.live(16, after)
    assert kept >= set(range(38 - min(after, 16 + before), 39))
    assert not kept & set(range(38 - 2 * after - 3))


def test_two_of_one_machine_never_have_the_same_folder(tmp_path: Path) -> None:
    first, second = Slot(tmp_path), Slot(tmp_path)
    assert (first.folder, second.folder) == (tmp_path / "0", tmp_path / "1")
    first.release()
    assert Slot(tmp_path).folder == tmp_path / "0"


@pytest.mark.programs
def test_the_folder_of_a_killed_process_is_free_at_once(tmp_path: Path) -> None:
    holding = (
        "import pathlib; from headwater.commands.local_state.folders import Slot; "
        f"slot = Slot(pathlib.Path({str(tmp_path)!r})); "
    )
    holding += "print(slot.folder.name, flush=True); input()"
    held = subprocess.Popen([sys.executable, "-c", holding], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with held:
        assert held.stdout is not None
        assert held.stdout.readline() == b"0\n"
        assert Slot(tmp_path).folder.name == "1"
        held.kill()
        held.wait()
    assert Slot(tmp_path).folder.name == "0"
