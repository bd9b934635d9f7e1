"""The rows of a partition of a table view, with which its writer combines patches."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import orjson

from headwater.eventlog.ports import EventLog
from headwater.projections.errors import StoreUnavailable
from headwater.projections.stores import ledgers
from headwater.projections.stores.store import Target
from headwater.projections.stores.topic.records import NAME, ROW, generation_topic
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import Patch

CHUNK: Final = 5_000

_TABLE: Final = "CREATE TABLE held (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
_REPLACE: Final = "INSERT OR REPLACE INTO held VALUES (?, ?)"
_FIND: Final = "SELECT value FROM held WHERE key = ?"


class FoldedRows:
    """A copy of the rows in the topic of a generation, in a temporary file that ends with it.

    The topic alone is the truth. The copy is made anew by whoever takes the partition over, and has what was committed
    since, so it cannot be behind the topic.
    """

    def __init__(self, log: EventLog, target: Target, partition: int, folder: Path) -> None:
        """Read the partition, which nobody else may write to any more. Raises EventLogError, and StoreUnavailable.

        folder: in which the file is; a container may have no other place to write to.
        """
        self._layout = target.view.layout
        try:
            folder.mkdir(parents=True, exist_ok=True)
            number, name = tempfile.mkstemp(prefix="topic-rows-", dir=folder)
        except OSError as error:
            raise StoreUnavailable(NAME, f"its loader cannot keep rows in HEADWATER_STATE: {error}") from error
        os.close(number)
        self._held = sqlite3.connect(name, isolation_level=None, check_same_thread=False)
        self._held.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._held.execute("PRAGMA synchronous = OFF")
        self._held.execute("PRAGMA journal_mode = OFF")
        self._held.execute(_TABLE)
        Path(name).unlink()  # it ends with the process, however that ends
        found: list[tuple[bytes, bytes]] = []
        for record in log.read(generation_topic(target), partition, 0):
            if record.key.startswith(ROW) and record.value is not None:
                found.append((record.key.removeprefix(ROW).encode(), orjson.dumps(orjson.loads(record.value)["state"])))
            if len(found) >= CHUNK:
                self._put(found)
                found = []
        self._put(found)

    def changed(self, patches: Sequence[Patch]) -> dict[str, tuple[State, State]]:
        """The rows that patches change, with their groups: each before and after them.

        Raises what `combine` raises if a patch does not fit its fields.
        """
        stored = self._states(patch.key for patch in patches)
        new = self._layout.with_groups(list(patches), stored)
        stored |= self._states(patch.key for patch in new if patch.key not in stored)
        after = ledgers.combined(self._layout, stored, new)
        return {key: (stored[key], state) for key, state in after.items()}

    def replace(self, rows: Mapping[str, State]) -> None:
        """Keep what the topic has now."""
        self._put([(key.encode(), orjson.dumps(state)) for key, state in rows.items()])

    def close(self) -> None:
        """Remove the copy."""
        self._held.close()

    def _states(self, keys: Iterable[str]) -> dict[str, State]:
        found: dict[str, State] = {}
        for key in keys:
            if key not in found:
                row = self._held.execute(_FIND, [key.encode()]).fetchone()
                found[key] = {} if row is None else orjson.loads(row[0])
        return found

    def _put(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        self._held.execute("BEGIN")
        self._held.executemany(_REPLACE, rows)
        self._held.execute("COMMIT")
