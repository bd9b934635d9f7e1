"""A folder of this process for the working files of its local Spark: shuffled rows, and copies of RocksDB's state.

Spark removes what it has made there when it ends. What a killed process left is removed by the next one.
"""

from __future__ import annotations

import fcntl
import logging
import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import IO, Final

log = logging.getLogger(__name__)

_LOCK: Final = ".lock"
_held: Final[list[IO[str]]] = []
"""Locks of this process's folders, until it ends."""


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
            lock = (folder / _LOCK).open("w")
            fcntl.flock(lock, fcntl.LOCK_EX)
            _held.append(lock)
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
