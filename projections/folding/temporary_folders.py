"""Folders for what a fold needs only until it ends. Those of killed processes are removed by the next fold."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

PREFIX: Final = "rest-"
LOCK: Final = "lock"
"""A file in each; its process holds a kernel lock on it, which ends with the process."""


@contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """A new folder in `parent`, which is removed at the end."""
    parent.mkdir(parents=True, exist_ok=True)
    while True:
        with tempfile.TemporaryDirectory(prefix=PREFIX, dir=parent, ignore_cleanup_errors=True) as name:
            folder = Path(name)
            try:
                lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            except FileNotFoundError:
                continue
            try:
                # another process may have taken it for one of a killed process
                if _locked(lock) and folder.exists():
                    yield folder
                    return
            finally:
                os.close(lock)


def remove_abandoned(parent: Path) -> None:
    """Remove such folders of processes that were killed."""
    for folder in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):  # it has just been removed, or has no lock yet
            lock = os.open(folder / LOCK, os.O_RDWR)
            try:
                if _locked(lock):
                    shutil.rmtree(folder, ignore_errors=True)
                    log.info("removed %s, which a killed process left", folder)
            finally:
                os.close(lock)


def is_held(folder: Path) -> bool:
    """Whether a process has taken this folder; then only `remove_abandoned` knows if the process is alive."""
    return (folder / LOCK).exists()


def _locked(lock: int) -> bool:
    """Whether this process holds the lock now."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
