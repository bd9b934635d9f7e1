"""A long replay that dies goes on from the slices that it had folded, unless what they hold may have been erased."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headwater.projections.errors import BulkLoadFailed
from headwater.projections.folding import pool
from headwater.projections.folding.combining import DiskFull
from headwater.projections.folding.engine import FoldingEngine
from headwater.projections.generations.rebuild.engine import BulkResult, Load
from tests.integration.commands.small_disk import small_disk
from tests.integration.projections_spark.test_spark_on_kafka import ToFiles
from tests.integration.replay.deployed import Deployed
from tests.integration.replay.things import by_group, things
from tests.support.spark_rows import states
from tests.support.states import differences, expected_states

SLICE = 40


def load(deployed: Deployed, writer: ToFiles) -> BulkResult:
    ends = {
        str(partition): (0, deployed.log.end("events", partition)) for partition in range(deployed.settings.partitions)
    }
    engine = FoldingEngine(deployed.settings, deployed.log, lambda _: pool.opened(), None, SLICE)
    (result,) = engine.bulk_load([Load(by_group, ends, [writer])])
    if not isinstance(result, BulkResult):
        raise result
    return result


def kept(deployed: Deployed) -> dict[Path, int]:
    """The slices that are kept, and when each was written."""
    return {path: path.stat().st_mtime_ns for path in deployed.settings.state.glob("replays/**/shares.msgpack")}


def equals_the_reference(deployed: Deployed, folder: Path) -> None:
    folder.mkdir()
    writer = ToFiles(folder)
    load(deployed, writer)
    assert differences(states(by_group, writer.rows()), expected_states(by_group, deployed.sources)) == []
    assert kept(deployed) == {}, "a replay that succeeds keeps nothing"


@pytest.mark.complete
def test_a_full_disk_is_named_and_is_not_kept_full(deployed: Deployed, tmp_path: Path) -> None:
    deployed.append(things(400))
    with small_disk(16 * 1024, tmp_path) as disk:
        full = replace(deployed, settings=replace(deployed.settings, state=disk))
        # a process that folds may be the one that finds it full, or the one that started it
        with pytest.raises((BulkLoadFailed, DiskFull), match=r"no room is left in .*HEADWATER_STATE"):
            load(full, ToFiles(tmp_path))
        assert kept(full) == {}
        assert [path for path in disk.rglob("*") if path.is_file() and path.suffix != ".msgpack"] == []


@pytest.mark.complete
def test_what_was_folded_is_not_folded_again_and_what_was_erased_is_not_kept(
    deployed: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed.append(things(400))
    with pytest.raises(BulkLoadFailed, match="the store is away"):
        load(deployed, ToFiles(tmp_path, fails=True))
    before = kept(deployed)
    assert len(before) >= 2
    deployed.append(things(200, seed=2))
    with pytest.raises(BulkLoadFailed):
        load(deployed, ToFiles(tmp_path, fails=True))
    after = kept(deployed)
    assert after.keys() > before.keys()
    assert {each: after[each] for each in before} == before
    equals_the_reference(deployed, tmp_path / "resumed")

    with pytest.raises(BulkLoadFailed):
        load(deployed, ToFiles(tmp_path, fails=True))
    before = kept(deployed)
    deployed.erase(deployed.sources[0])
    with pytest.raises(BulkLoadFailed):
        load(deployed, ToFiles(tmp_path, fails=True))
    after = kept(deployed)
    assert after.keys().isdisjoint(before), "folded again, since an event was erased"
    equals_the_reference(deployed, tmp_path / "erased")

    with pytest.raises(BulkLoadFailed):
        load(deployed, ToFiles(tmp_path, fails=True))
    before = kept(deployed)
    monkeypatch.setattr("headwater.projections.folding.slices.code_digest", lambda: "of another release")
    with pytest.raises(BulkLoadFailed):
        load(deployed, ToFiles(tmp_path, fails=True))
    assert len(kept(deployed)) == 2 * len(before), "slices of other code are not taken"
