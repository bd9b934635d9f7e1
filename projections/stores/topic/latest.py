"""The latest value of each key of a partition, in a temporary file: topics may have more rows than fit into memory."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from headwater.projections.errors import StoreUnavailable
from headwater.projections.stores.topic.records import NAME

_TABLE: Final = "CREATE TABLE held (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
_REPLACE: Final = "INSERT OR REPLACE INTO held VALUES (?, ?)"
_FIND: Final = "SELECT value FROM held WHERE key = ?"
_ALL: Final = "SELECT key, value FROM held ORDER BY key"
_COUNT: Final = "SELECT count(*) FROM held"
_REMOVE: Final = "DELETE FROM held WHERE key = ?"


class Latest:
    """Values by key, on disk; the file ends with the process, however that ends."""

    def __init__(self, folder: Path) -> None:
        """folder: in which the file is; a container may have no other place to write to. Raises StoreUnavailable."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            number, name = tempfile.mkstemp(prefix="topic-rows-", dir=folder)
        except OSError as error:
            raise StoreUnavailable(NAME, f"rows of topics cannot be kept in HEADWATER_STATE: {error}") from error
        os.close(number)
        self._held = sqlite3.connect(name, isolation_level=None, check_same_thread=False)
        for setting in ("locking_mode = EXCLUSIVE", "synchronous = OFF", "journal_mode = OFF"):
            self._held.execute(f"PRAGMA {setting}")
        self._held.execute(_TABLE)
        Path(name).unlink()

    def put(self, items: Iterable[tuple[str, bytes]]) -> None:
        """Put values, in their order; if `items` raises an error, those before it."""
        self._held.execute("BEGIN")
        try:
            self._held.executemany(_REPLACE, ((_encoded(key), value) for key, value in items))
        finally:
            self._held.execute("COMMIT")

    def get(self, key: str) -> bytes | None:
        """The value of a key."""
        row = self._held.execute(_FIND, [_encoded(key)]).fetchone()
        return None if row is None else row[0]

    def pop(self, key: str) -> bytes | None:
        """The value of a key, which is removed."""
        value = self.get(key)
        if value is not None:
            self._held.execute(_REMOVE, [_encoded(key)])
        return value

    def items(self) -> Iterator[tuple[str, bytes]]:
        """Keys and values, in the order of keys; nothing is put meanwhile."""
        for key, value in self._held.execute(_ALL):
            yield key.decode(errors="surrogateescape"), value

    def __len__(self) -> int:
        return int(self._held.execute(_COUNT).fetchone()[0])

    def close(self) -> None:
        """Remove the file."""
        self._held.close()


def _encoded(key: str) -> bytes:
    return key.encode(errors="surrogateescape")
