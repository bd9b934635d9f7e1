"""Which command works with a connector that is stopped: one at a time, by a lock in the database of its source.

While rows are swept or a connector is told what to read, nothing may be captured. The server frees the lock as soon as
the command has ended, however it has, and a note says in which state the command found the connector. So a connector
that was left stopped is known from one that is worked with, and from one that somebody else has stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from headwater.eventlog.capturing.connector_states import is_reached
from headwater.eventlog.capturing.errors import SourceProblem
from headwater.eventlog.capturing.ports import Database

BUSY: Final = "another command works with its connector: wait until that has ended, then run this again"
HOLD_S: Final = 60.0
"""How long a command waits for the one before it."""

Open = Callable[[], AbstractContextManager[Database]]


@dataclass(slots=True)
class Hold:
    """The lock of a source, as far as this process has it. depth: how many commands of this process are within it."""

    opened: ExitStack = field(default_factory=ExitStack)
    database: Database | None = None
    depth: int = 0

    @contextmanager
    def taken(self, open_database: Open, timeout_s: float | None = None) -> Iterator[bool]:
        """Have the lock for the block; whether it was free within this time (None: HOLD_S). Raises SourceProblem."""
        if self.database is None and not self._take(open_database, HOLD_S if timeout_s is None else timeout_s):
            yield False
            return
        self.depth += 1
        try:
            yield True
        finally:
            self.depth -= 1
            if self.depth == 0:
                self.database = None
                with suppress(SourceProblem):  # the lock ends with its connection, however that ends
                    self.opened.close()

    def check(self, source: str) -> None:
        """Raise SourceProblem if this process has lost the lock: then the connector may run again."""
        if self.database is None or not self.database.still_holds():
            raise SourceProblem(source, f"the connection that held its connector stopped was lost; {BUSY}")

    def _take(self, open_database: Open, timeout_s: float) -> bool:
        with ExitStack() as opening:
            database = opening.enter_context(open_database())
            if not is_reached(database.hold, timeout_s):
                return False
            self.database, self.opened = database, opening.pop_all()
        return True
