"""The same servers for all processes of a test run: the first to need them starts them, and stops them after all.

Its data are in a folder beside pytest's own: every pytest that starts closes that one to other users, and PostgreSQL
runs as one of these.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from headwater.compose.ports import free_ports
from headwater.compose.settings import Ports, StackSettings
from headwater.compose.stack import Stack

Start = Callable[[StackSettings], AbstractContextManager[object]]
"""Starts servers on these ports, and stops them at the end of the block."""


@contextmanager
def shared_servers(folder: Path, start: Start = Stack) -> Iterator[StackSettings]:
    """The servers of the run whose processes share `folder`."""
    described = folder / "stack.json"
    with (folder / "stack.users").open("w") as users, (folder / "stack.starting").open("w") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        if described.exists():
            found = json.loads(described.read_text())
            settings = StackSettings(Path(found["state"]), Ports(**found["ports"]))
            fcntl.flock(users, fcntl.LOCK_SH)
            fcntl.flock(starting, fcntl.LOCK_UN)
            yield settings
            return
        with own_folder() as state, start(settings := StackSettings(state, free_ports())):
            described.write_text(json.dumps({"state": str(state), "ports": asdict(settings.ports)}))
            fcntl.flock(starting, fcntl.LOCK_UN)
            yield settings
            _wait_for_the_others(users, starting)
            described.unlink()


@contextmanager
def own_folder() -> Iterator[Path]:
    """A folder for a stack, removed afterwards."""
    with TemporaryDirectory(prefix="headwater-stack-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)  # a server's own user must pass it, if this is root
        yield Path(folder)


def _wait_for_the_others(users: IO[str], starting: IO[str]) -> None:
    """Return once nobody else uses the stack, with the lock that lets nobody begin to."""
    while True:
        fcntl.flock(starting, fcntl.LOCK_EX)
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(starting, fcntl.LOCK_UN)
            time.sleep(0.2)
        else:
            return
