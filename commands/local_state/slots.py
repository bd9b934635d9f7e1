"""Which folder of the state directory a process may call its own."""

from __future__ import annotations

import fcntl
import os
from itertools import count
from pathlib import Path

from commands.errors import LocalStateError


class Slot:
    """The first numbered folder in `parent` that no other living process holds; its number stays until `release`.

    Two processes on one machine never share one, a process that is started again finds the one it had, and one that
    is paused keeps its own: the lock is the kernel's, on an open file.
    """

    def __init__(self, parent: Path) -> None:
        """Raises LocalStateError where `parent` cannot be written."""
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
        """Let another process have the folder."""
        os.close(self._lock)
