"""The state of stream views in a folder that machines share, or at a URL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from headwater.eventlog.errors import SettingError
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.settings import LogSettings
from headwater.projections.generations.registry import state_files
from headwater.projections.generations.registry.state_files import StatePlace, known_id, own_place, why_not_here
from headwater.projections.spark.stream_queries.checkpoint import Checkpoint, check_shared, sweep, why_lost
from headwater.projections.stores.store import Target
from tests.support.checkpoints import begin_batch, end_batch
from tests.support.observed import gate_view

GATES = Target(gate_view(), 1)
CLUSTER = {"SPARK_MASTER": "spark://master:7077"}


@pytest.fixture(params=["folder", "file", "s3a"])
def settings(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LogSettings]:
    """Where the state is shared; the object store is a folder that is read as one."""
    shared = tmp_path / "sha red@"
    places = {
        "folder": str(shared),
        "file": f"file://{shared}".replace(" ", "%20"),
        "s3a": "s3a://bucket/head water",
    }
    (tmp_path / "bucket").mkdir()
    opened: list[str] = []

    def from_uri(root: str) -> tuple[Any, str]:
        opened.append(root)
        return fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "bucket"

    monkeypatch.setattr(state_files, "_file_system", from_uri)
    yield LogSettings.from_environment(
        {
            "HEADWATER_CHECKPOINTS": places[request.param],
            "HEADWATER_STATE": str(tmp_path / "machine-1"),
            "HEADWATER_PARTITIONS": "2",
            "HEADWATER_MODULES": "listings",
        }
    )
    assert set(opened) <= ({"s3://bucket"} if request.param == "s3a" else set()), "pyarrow has no s3a"


def on_another_machine(settings: LogSettings) -> LogSettings:
    return LogSettings(
        state=settings.state.with_name("machine-2"), checkpoints=settings.checkpoints, partitions=settings.partitions
    )


def test_another_machine_continues_with_the_state(settings: LogSettings) -> None:
    checkpoint, other = Checkpoint.of(settings, GATES.tag), on_another_machine(settings)
    assert why_lost(GATES, [], other, MemoryLog()) == f"is not in {settings.checkpoints}"
    for batch in (0, 1, 2):
        begin_batch(checkpoint, batch, {"0": 30, "1": 9})
    for batch in (0, 1):
        end_batch(checkpoint, batch, "0/0", "0/1")
    there = Checkpoint.of(other, GATES.tag)
    assert (there.committed(), there.begun()) == (1, 2)
    assert there.ends(2, other) == {"observations/0": 30, "observations/1": 9}
    assert why_lost(GATES, [], other, MemoryLog()) is None
    (checkpoint.folder / "state" / "0" / "1" / "2.changelog").write_text("")
    assert why_lost(GATES, [], other, MemoryLog()) == "cannot be read: state/0/1/2.changelog is damaged or missing"
    assert not settings.state.exists(), "nothing is on the disk of the machine"


def test_the_folder_has_an_id_that_all_machines_read(settings: LogSettings) -> None:
    other = on_another_machine(settings)
    assert known_id(settings) is None
    place = own_place(settings)
    assert place.id == known_id(other) == own_place(other).id
    assert settings.checkpoints in place.place
    assert why_not_here(other, [place]) is None, "a rebuild may run on any machine"
    refused = why_not_here(other, [StatePlace("elsewhere", "host:/elsewhere")])
    assert refused is not None
    assert f"this process at {settings.checkpoints}: run this there, with its HEADWATER_CHECKPOINTS" in refused


def test_state_of_generations_that_are_gone_is_deleted(settings: LogSettings) -> None:
    old, live = (Checkpoint.of(settings, f"gates@1.g{number}") for number in (1, 2))
    for each in (old, live):
        begin_batch(each, 0, {"0": 3})
        with each.held() as is_ours, each.held() as again:
            assert (is_ours, again) == (True, False)
    assert sweep(settings, lambda: ["gates@1.g2"]) == ["gates@1.g1"]
    assert (old.exists, live.exists, old.lock.exists()) == (False, True, False)
    live.create()
    assert (live.exists, live.begun()) == (True, -1)
    assert sweep(settings, lambda: []) == ["gates@1.g2"]
    assert not live.exists


def test_spark_reads_the_same_place(settings: LogSettings, tmp_path: Path) -> None:
    location = Checkpoint.of(settings, "gates@1.g1").location
    shared = "s3a://bucket/head water" if settings.checkpoints.startswith("s3a") else f"file://{tmp_path}/sha red@"
    assert location == f"{shared}/streams/headwater/gates@1.g1"


def test_on_a_cluster_a_shared_folder_is_required(settings: LogSettings) -> None:
    alone = LogSettings()
    for master in ({}, {"SPARK_MASTER": "local[4]"}, {"SPARK_MASTER": "local-cluster[2,1,1024]"}):
        check_shared(alone, master)
    check_shared(settings, CLUSTER)
    with pytest.raises(SettingError, match=r"HEADWATER_CHECKPOINTS.*all machines share.*s3a://.*SPARK_MASTER"):
        check_shared(alone, CLUSTER)


@pytest.mark.parametrize("wrong", [
    "checkpoints", "ftp://host/x", "s3a://", "s3a:///x", "file://", "file:///", "file://host/x", "gs://b/x?y=1",
])  # fmt: skip
def test_what_machines_cannot_share_is_refused(wrong: str) -> None:
    with pytest.raises(SettingError, match="HEADWATER_CHECKPOINTS"):
        LogSettings.from_environment({"HEADWATER_CHECKPOINTS": wrong, "HEADWATER_MODULES": "listings"})
