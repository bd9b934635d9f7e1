"""Numbered folders of the state directory, each held by one process; removes copies that are not used any more.

Those are copies of partitions that another process has owned for long: they would fill the disk.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

from headwater.commands.errors import LocalStateError
from headwater.commands.local_state.disk_state import DiskStore, check_room


class Slot:
    """The first numbered folder in `parent` that no other living process holds; it is held until `release`.

    Two processes on one machine never share a folder, a restarted process finds its folder again, and a paused process
    keeps it: the lock is a kernel lock on an open file.
    """

    def __init__(self, parent: Path) -> None:
        """Raises LocalStateError if `parent` cannot be written."""
        try:
            parent.mkdir(parents=True, exist_ok=True)
            for number in count():
                lock = os.open(parent / f"{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(lock)
                    continue
                self._lock, self.folder = lock, parent / str(number)
                break
        except OSError as error:
            raise LocalStateError(parent, str(error)) from error

    def check(self) -> None:
        """Raise LocalStateError if a file cannot be written here, or if there is too little room for any state."""
        probe = self.folder.with_suffix(".probe")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with probe.open("wb") as file:
                file.write(b"\0" * 4096)
                file.flush()
                os.fsync(file.fileno())
            probe.unlink()
        except OSError as error:
            raise LocalStateError(self.folder, str(error)) from error
        check_room(self.folder)

    def release(self) -> None:
        """Let another process use the folder."""
        os.close(self._lock)


UNUSED_DAYS: Final = 1
"""So long a copy is kept for a partition that may come back; then it is restored from the log. An owner writes to its
copy with every heartbeat."""
CHECK_S: Final = 3_600.0
UNUSED: Final = ".unused"
PROCESSES_FOLDER: Final = "processes"
"""In the folder of a slot: the copies of process instances."""

logger = logging.getLogger(__name__)


def sweep(slot: Slot, stopped: threading.Event) -> threading.Thread:
    """Remove unused copies now and every hour, in a thread that ends when `stopped` is set."""

    def run() -> None:
        while True:
            remove_unused(slot)
            if stopped.wait(CHECK_S):
                return

    thread = threading.Thread(target=run, name="unused-copies", daemon=True)
    thread.start()
    return thread


def remove_unused(slot: Slot, clock: Callable[[], float] = time.time) -> list[Path]:
    """Remove the copies in this slot, and in slots that no process holds, that were unused for UNUSED_DAYS.

    clock: seconds since 1970. Returns the removed folders. An error of the disk is logged; the next call tries again.
    """
    before_s = clock() - UNUSED_DAYS * 24 * 60 * 60
    removed: list[Path] = []
    try:
        for folder in sorted(path for path in slot.folder.parent.iterdir() if path.name.isdecimal()):
            with _held(folder, slot) as is_ours:
                for path in (folder, folder / PROCESSES_FOLDER) if is_ours else ():
                    removed += _remove(path, before_s)
    except OSError as error:
        logger.warning('unused copies in "%s" cannot be removed: %s', slot.folder.parent, error)
    return removed


def _remove(folder: Path, before_s: float) -> Iterator[Path]:
    for copy in list(folder.iterdir()) if folder.is_dir() else ():
        if copy.suffix == UNUSED:
            shutil.rmtree(copy)  # a sweep was interrupted
        if not copy.name.isdecimal() or max(file.stat().st_mtime for file in (copy, *copy.iterdir())) >= before_s:
            continue
        with DiskStore.opening:
            if copy in DiskStore.opened:
                continue
            unused = copy.rename(copy.with_suffix(UNUSED))
        logger.info('removing "%s": its partition has had another owner for %d days', copy, UNUSED_DAYS)
        shutil.rmtree(unused)
        yield copy


@contextmanager
def _held(folder: Path, slot: Slot) -> Iterator[bool]:
    """Whether nobody else uses the folder of a slot, which stays so meanwhile."""
    if folder == slot.folder:
        yield True
        return
    lock = os.open(folder.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(lock)
