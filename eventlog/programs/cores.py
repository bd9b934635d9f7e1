"""How many processes or threads can work at a time here: also in a container, which may have less than its machine."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

_CGROUPS: Final = Path("/sys/fs/cgroup")
_OWN: Final = Path("/proc/self/cgroup")


def cores(own: Path = _OWN, cgroups: Path = _CGROUPS) -> int:
    """The number of cores that this process may use: by its affinity and by the CPU quota of its container, rounded up.

    own, cgroups: where Linux lists the control groups of this process, and where they are (version 1 or 2).
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *(math.ceil(quota) for quota in _quotas(own, cgroups))]))


def _quotas(own: Path, cgroups: Path) -> Iterator[float]:
    """The quotas, in cores, of this process's control groups and of those around them."""
    try:
        lines = own.read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _around(cgroups, path, _quota_v2)
        elif "cpu" in controllers.split(","):
            for mount in (controllers, "cpu"):  # the folder, or a link to it
                yield from _around(cgroups / mount, path, _quota_v1)


def _around(mount: Path, path: str, quota_of: Callable[[Path], float | None]) -> Iterator[float]:
    """The quotas of a control group and of those around it, up to the mount; a container may see only the latter."""
    group = mount / path.lstrip("/")
    for folder in (group, *group.parents):
        if (quota := quota_of(folder)) is not None:
            yield quota
        if folder == mount:
            break


def _quota_v2(folder: Path) -> float | None:
    match _read(folder / "cpu.max").split():
        case [quota, period] if quota.isdecimal() and int(period):
            return int(quota) / int(period)
    return None  # "max": no quota


def _quota_v1(folder: Path) -> float | None:
    quota, period = (_read(folder / name) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
    if not quota.isdecimal() or not period.isdecimal() or not int(period):
        return None  # -1: no quota
    return int(quota) / int(period)


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:  # the group at the root has none
        return ""
