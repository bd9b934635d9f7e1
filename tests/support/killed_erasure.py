"""`python -m tests.support.killed_erasure PERSON STEP LOG`: an erasure by a process that kills itself at a step.

The audit log is the file LOG, in which each record is on disk before the next step. Without such a step, it ends; then
it prints how many steps there were.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from headwater.eventlog.audit.trail import AuditRecord
from headwater.eventlog.erasing.person import erase_person
from headwater.eventlog.personal.master_keys import MasterKeys
from headwater.eventlog.personal.postgres import PostgresKeys

Answer = TypeVar("Answer")


class Killed(PostgresKeys):
    """Counts the steps, among them one before each commit, and dies at one of them."""

    def __init__(self, url: str, environment: str, masters: MasterKeys, at: int) -> None:
        super().__init__(url, environment, masters)
        self.at, self.steps = at, 0

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def stepped(self, call: Callable[..., Answer]) -> Callable[..., Answer]:
        def called(*given: Any) -> Answer:
            self.step()
            answer = call(*given)
            self.step()
            return answer

        return called

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        with super()._connected() as connection:
            yield connection
            self.step()
        self.step()


def appending(log: Path) -> Callable[[AuditRecord], None]:
    """Adds records to a file, each on disk before the next step."""

    def append(record: AuditRecord) -> None:
        with log.open("ab") as file:
            file.write(record.to_json() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    return append


def main() -> None:
    person, at, log = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    environment = os.environ["HEADWATER_ENVIRONMENT"]
    keys = Killed(os.environ["HEADWATER_KEYS"], environment, MasterKeys.from_environment(os.environ), at)
    erase_person(keys, keys.stepped(appending(log)), person, environment, os.environ)
    keys.close()
    print(keys.steps)


if __name__ == "__main__":
    main()
