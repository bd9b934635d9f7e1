"""Numbered folders of the state directory; each is held by one process."""

from __future__ import annotations

import fcntl
import os
from itertools import count
from pathlib import Path

from headwater.commands.errors import LocalStateError


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

    def release(self) -> None:
        """Let another process use the folder."""
        os.close(self._lock)
