"""A folder of this process for the working files of its local Spark: shuffled rows, and copies of RocksDB's state.

Spark removes what it has made there when it ends. What a killed process left is removed by the next one.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

log = logging.getLogger(__name__)

_LOCK: Final = ".lock"
_held: Final[list[int]] = []
"""Locks of this process's folders, until it ends: descriptors, of which Python does not say that nobody closes them."""


def working_folder(state: Path) -> Path | None:
    """A new folder in `state`; None if there can be none: then Spark uses the folder of temporary files.

    Spark would take a path with a comma for two.
    """
    root = state.absolute() / "spark"
    if "," in str(root):
        return None
    try:
        root.mkdir(parents=True, exist_ok=True)
        with (root / _LOCK).open("w") as starting:  # or another process would remove a folder that is not yet locked
            fcntl.flock(starting, fcntl.LOCK_EX)
            for left in root.iterdir():
                if left.is_dir() and _is_left(left):
                    shutil.rmtree(left, ignore_errors=True)
            folder = Path(mkdtemp(dir=root))
            _held.append(os.open(folder / _LOCK, os.O_CREAT | os.O_WRONLY, 0o666))
            fcntl.flock(_held[-1], fcntl.LOCK_EX)
    except OSError as error:
        log.warning("working files of Spark are in the folder of temporary files, because of %s: %s", root, error)
        return None
    return folder


def _is_left(folder: Path) -> bool:
    """Whether no process holds it."""
    with (folder / _LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
