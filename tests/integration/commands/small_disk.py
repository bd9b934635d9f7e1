"""A disk so small that it can be filled: a tmpfs that one process of the tests has mounted, and nobody else sees."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MOUNT = 'mount -t tmpfs -o "size=$1" tmpfs "$2" && echo mounted && exec cat'
FILLER = "filler"
ATTEMPTS = 100
"""To fill a disk that others write to: they may have taken some of what was free a moment ago."""


@contextmanager
def small_disk(size_bytes: int, mounted_at: Path) -> Iterator[Path]:
    """Such a disk, which is gone afterwards; skips the test where the machine allows no mounts of one's own."""
    if shutil.which("unshare") is None:
        pytest.skip("there is no `unshare` here, so no small disk can be mounted")
    namespaces = ["--mount"] if os.geteuid() == 0 else ["--mount", "--map-root-user"]
    holder = subprocess.Popen(
        ["unshare", *namespaces, "sh", "-c", MOUNT, "sh", str(size_bytes), str(mounted_at)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stderr is not None
        try:
            if not holder.stdout.readline():
                pytest.skip(f"this machine lets nobody mount a small disk: {holder.stderr.read().decode().strip()}")
            # a process's own view of the file system can be entered from outside by this path
            yield Path(f"/proc/{holder.pid}/root{mounted_at}")
        finally:
            holder.kill()


def fill(disk: Path, left_bytes: int = 0) -> None:
    """Write another file until so much room is left."""
    with (disk / FILLER).open("wb") as filler:
        for _ in range(ATTEMPTS):
            room = shutil.disk_usage(disk).free - left_bytes
            if room <= 0:
                break
            try:
                os.posix_fallocate(filler.fileno(), os.fstat(filler.fileno()).st_size, room)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
    assert shutil.disk_usage(disk).free <= left_bytes


def free(disk: Path) -> None:
    """Remove what `fill` has written."""
    (disk / FILLER).unlink()
