"""How many cores a process in a container may use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from headwater.eventlog.programs.cores import cores

MACHINE = 8


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/\n", {}, MACHINE),
        ("0::/\n", {"cpu.max": "max 100000\n"}, MACHINE),
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "20000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "6400000 100000\n"}, MACHINE),
        ("0::/pod/one\n", {"pod/cpu.max": "300000 100000\n", "pod/one/cpu.max": "max 100000\n"}, 3),
        ("0::/pod/one\n", {"pod/cpu.max": "300000 100000\n", "pod/one/cpu.max": "100000 100000\n"}, 1),
        ("0::/docker/4711\n", {"cpu.max": "400000 100000\n"}, 4),
        (
            "4:cpu,cpuacct:/\n",
            {"cpu,cpuacct/cpu.cfs_quota_us": "-1", "cpu,cpuacct/cpu.cfs_period_us": "100000"},
            MACHINE,
        ),
        ("4:cpu,cpuacct:/\n", {"cpu,cpuacct/cpu.cfs_quota_us": "250000", "cpu,cpuacct/cpu.cfs_period_us": "100000"}, 3),
        ("1:cpu:/docker/4711\n", {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, 2),
        ("2:cpuacct:/\n0::/\n", {"cpuacct/cpu.cfs_quota_us": "1000", "cpuacct/cpu.cfs_period_us": "1000"}, MACHINE),
    ],
)
def test_the_quota_of_a_container_limits_the_cores(
    own: str, files: Mapping[str, str], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(MACHINE)), raising=False)
    (listed := tmp_path / "cgroup").write_text(own)
    mounted = tmp_path / "mounted"
    for name, text in files.items():
        (file := mounted / name).parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert cores(listed, mounted) == expected


def test_without_control_groups_the_affinity_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3}, raising=False)
    assert cores(tmp_path / "none", tmp_path) == 2
