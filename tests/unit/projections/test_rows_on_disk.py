"""Rows that do not fit into memory: the same rows, nothing left on disk, and a clear error if the disk is full."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headwater.commands.declaring.aggregate import Event
from headwater.eventlog.settings import LogSettings
from headwater.projections.folding import combining, tasks
from headwater.projections.folding.combining import DiskFull
from headwater.projections.folding.slices import KEPT_S, LOCK, Slices, remove_abandoned, remove_left, temporary_folder
from headwater.projections.folding.tasks import FoldTask, Share
from headwater.projections.generations.registry.sources import ALL
from headwater.projections.reading.compiled import compiled
from headwater.projections.reading.fold_records import ALWAYS, Part, Rows
from headwater.projections.reading.program import Program, decoders
from headwater.projections.stores.documents import DocumentForm
from headwater.projections.table.expressions import Source
from headwater.projections.table.view import TableView
from headwater.projections.testing.contracts import history as random_history
from tests.contracts.fold_views import FOLD_VIEWS
from tests.contracts.view_histories import BY_GROUP, BY_THING, Put, Removed, Restored, Taken
from tests.integration.commands.small_disk import small_disk
from tests.support.states import differences, expected_states, touched
from tests.unit.projections.test_folding import Record

FOLDED = {view.name: view for view in (BY_THING, BY_GROUP, *FOLD_VIEWS.values())}
MIB = 1024 * 1024


class Message(Record):
    """With the size of its value, as Kafka's client has it."""

    def __len__(self) -> int:
        return len(self.text or b"")


@dataclass
class Log:
    """Some sources, by partition, as a fold reads them: a few at a time."""

    messages: dict[int, list[Record]] = field(default_factory=dict)

    def batches(self, topic: str, partition: int, start: int, end: int) -> Iterator[Sequence[Record]]:
        found = [each for each in self.messages.get(partition, []) if start <= each.at < end]
        for at in range(0, len(found), 7):
            yield found[at : at + 7]

    def close(self) -> None: ...


@dataclass
class Kept:
    """A writer that keeps its rows."""

    form: DocumentForm
    rows: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def write(self, rows: Any) -> int:
        before = len(self.rows)
        for batch in rows:
            self.sizes.append(batch.num_rows)
            self.rows += [self.form.from_arrow(row) for row in batch.to_pylist()]
        return len(self.rows) - before


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds of a few rows, entries, bytes and runs."""
    for module, name, value in (
        (tasks, "ROWS_IN_MEMORY", 3), (tasks, "ENTRIES_IN_MEMORY", 5), (tasks, "CHECKED_RECORDS", 4),
        (tasks, "READ_BYTES", 600), (tasks, "SHARE_BYTES", 500), (tasks, "GROUP_BYTES", 1_000),
        (combining, "ROWS_COMBINED", 2), (combining, "ENTRIES_COMBINED", 3), (combining, "CHECKED_BYTES", 100),
        (combining, "MAX_RUNS", 2),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr("headwater.projections.folding.writing.BATCH_ROWS", 4)
    monkeypatch.setattr("headwater.projections.folding.writing.BATCH_ENTRIES", 6)


def folded(view: TableView, log: Log, sources: Sequence[Source], path: Path | None, seed: int) -> list[Share]:
    """The shares of two tasks, each with a random part of every partition."""
    ends = {source.position.partition: 0 for source in sources}
    for source in sources:
        ends[source.position.partition] = max(ends[source.position.partition], source.position.offset + 1)
    chance, parts = random.Random(seed), ([], [])  # type: ignore[var-annotated]
    for partition, end in ends.items():
        cut = chance.randrange(end + 1)
        parts[0].append(Part(str(partition), 0, cut))
        parts[1].append(Part(str(partition), cut, end))
    shares: list[Share] = []
    for number, some in enumerate(parts):
        file = path and path / str(number)
        task = FoldTask(decoders([view]), [compiled(view)], LogSettings(), some, ALWAYS, {}, 2, file)
        shares += tasks.fold(task, lambda _: None)
    return shares


@pytest.mark.parametrize(
    ("name", "in_files"),
    [
        *((name, True) for name in FOLDED),
        (BY_THING.name, False),
        *(pytest.param(name, False, marks=pytest.mark.complete) for name in FOLDED if name != BY_THING.name),
    ],
)
def test_rows_that_do_not_fit_into_memory_are_the_same_rows(
    name: str, in_files: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    view = FOLDED[name]
    events: list[type[Event]] = [Put, Taken, Removed, Restored]
    if name in FOLD_VIEWS:
        events = list(view.plan.events.values())
    sources = random_history(view, events, 5, length=150).sources
    log = Log()
    for source in sources:
        log.messages.setdefault(source.position.partition, []).append(Message.of(source))
    for found in log.messages.values():
        found.sort(key=lambda each: each.at)
    monkeypatch.setattr(tasks, "KafkaLog", lambda _: log)
    runs = counted_runs(monkeypatch)

    def written(folder: Path) -> tuple[dict[str, Any], list[int]]:
        folder.mkdir()
        shares = folded(view, log, sources, folder if in_files else None, 5)
        writers = [Kept(DocumentForm.of(view)), Kept(DocumentForm.of(view))]
        program = compiled(view)
        rows = sum(tasks.write(program, writers, group).rows for group in tasks.groups(shares, 0, program, 1))
        assert rows == len(writers[0].rows)
        assert writers[0] == writers[1], "a second store has the same rows"
        assert len(dict(writers[0].rows)) == rows, "a key is written once"
        assert {path.name for path in folder.iterdir()} <= {"0", "1"}
        return {key: touched(state) for key, state in writers[0].rows}, writers[0].sizes

    whole, _ = written(tmp_path / "whole")
    assert runs == []
    small(monkeypatch)
    bounded, sizes = written(tmp_path / "bounded")
    assert len(runs) > 2, "more than are merged at a time"
    assert differences(whole, bounded) == []
    assert differences(bounded, expected_states(view, sources)) == []
    assert max(sizes) <= 4


def counted_runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made: list[str] = []
    plain = combining.Combined._run

    def run(self: combining.Combined, items: Any, folder: str) -> Any:
        made.append(folder)
        return plain(self, items, folder)

    monkeypatch.setattr(combining.Combined, "_run", run)
    return made


def rows_of(program: Program, count: int) -> Rows:
    row = [None] * len(program.fields)
    return {f"{number:08d}{'x' * 200}": row for number in range(count)}


def test_a_full_disk_is_named_and_nothing_stays_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = compiled(BY_THING)
    with (
        small_disk(MIB, tmp_path) as disk,
        pytest.raises(DiskFull, match=r"no room is left in .*HEADWATER_STATE"),
        tasks.chunks(disk / "task", 2) as held,
    ):
        held.add(0, rows_of(program, 20_000))
    monkeypatch.setattr(combining, "ROWS_COMBINED", 2_000)
    with small_disk(MIB, tmp_path) as disk:
        with combining.Combined(program) as combined, pytest.raises(DiskFull):
            for _ in range(4):
                combined.add(rows_of(program, 2_500), 1, disk)
        assert list(disk.iterdir()) == []
        assert shutil.disk_usage(disk).free == MIB


def settings_in(state: Path) -> LogSettings:
    return LogSettings("test", state=state)


@pytest.mark.programs
def test_what_a_fold_leaves_is_gone_at_its_end_and_after_a_kill_at_the_next_start(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    folding = Slices(settings, [BY_THING], ALL)
    with folding.folding() as rest:
        (rest / "0").write_bytes(b"rows")
        remove_left(settings)
        assert (rest / "0").exists(), "its process is alive"
    assert not rest.exists()
    with pytest.raises(ZeroDivisionError), folding.folding() as rest:
        raise ZeroDivisionError
    assert not rest.exists()

    script = f"""
from pathlib import Path
from headwater.projections.folding.slices import temporary_folder
with temporary_folder(Path({str(rest.parent)!r})) as folder:
    (folder / "0").write_bytes(b"rows")
    print(folder, flush=True)
    input()
"""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        remove_left(settings)
        assert (left / "0").exists()
        os.kill(process.pid, signal.SIGKILL)
    assert (left / "0").exists()
    with folding.folding() as rest:
        assert sorted(rest.parent.iterdir()) == [rest]


def test_a_folder_that_another_process_takes_for_an_abandoned_one_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, seen = os.open, list[Path]()

    def opened(path: Any, *args: Any, **named: Any) -> int:
        found = plain(path, *args, **named)
        if Path(path).name == LOCK and not seen:
            seen.append(Path(path).parent)
            remove_abandoned(tmp_path)
        return found

    monkeypatch.setattr(os, "open", opened)
    with temporary_folder(tmp_path) as folder:
        assert seen != [folder]
        assert list(tmp_path.iterdir()) == [folder]


def test_slices_that_are_too_old_or_not_complete_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.projections.folding.slices.topic_id", lambda *_: "its id")
    settings = settings_in(tmp_path)
    folding = Slices(settings, [BY_THING], ALL, size=10)

    def fold(part: Any, folder: Path) -> list[Share]:
        (folder / "0").write_bytes(b"rows")
        if part["0"][0] == 20:
            raise DiskFull(str(folder))
        return [Share(path=str(folder / "0"))]

    with folding.folding() as rest, pytest.raises(DiskFull):
        folding.fold({"0": (0, 35)}, {}, 2, rest, fold)
    kept = sorted(path.parent.name for path in tmp_path.glob("replays/**/0") if path.is_file())
    assert kept == ["0", "1"], "the third is not complete"
    remove_left(settings)
    assert len(list(tmp_path.glob("replays/**/shares.msgpack"))) == 2
    old = time.time() - KEPT_S - 60
    for path in tmp_path.glob("replays/test/**/*"):
        os.utime(path, (old, old))
    remove_left(settings)
    assert [path for path in tmp_path.glob("replays/**/*") if path.is_file()] == []
