"""Callers with API keys."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from headwater.api.errors import Unauthenticated
from headwater.api.guard.caller import Caller
from headwater.api.guard.key_file import KEY, Keys, StoredKey, digest, read_keys
from headwater.api.guard.scopes import Scopes
from headwater.api.guard.watched_file import WatchedFile

_NO_DIGEST: Final = "0" * 64
"""Compared with an unknown key, so that it takes as long as a wrong one."""


class _Content(NamedTuple):
    keys: Keys
    callers: Mapping[str, Caller]
    names: frozenset[str]


class ApiKeys:
    """The keys of a file, which is read again when it changes. While it cannot be read, no key is valid."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the file; raises SettingError."""
        self._file = WatchedFile(path, _read, _content({}), clock)

    def every(self) -> Keys:
        """All keys by id, also those that are not valid any more."""
        return self._file.current().keys

    def has_name(self, name: str) -> bool:
        """Whether a key has this name, or had it."""
        return name in self._file.current().names

    def caller(self, key: str) -> Caller:
        """Whose key it is; raises Unauthenticated."""
        content, parts = self._file.current(), KEY.fullmatch(key)
        stored = content.keys.get(parts[1]) if parts else None
        if not hmac.compare_digest(digest(key), _NO_DIGEST if stored is None else stored.sha256) or stored is None:
            raise Unauthenticated("the API key is not valid")
        if (state := stored.state(datetime.now(UTC))) != "active":
            raise Unauthenticated(f"the API key is {state}: use a new one")
        return content.callers[stored.id]

    def active(self, key_id: str) -> Caller | None:
        """Whose key has this id; None if it is not valid any more."""
        content = self._file.current()
        stored = content.keys.get(key_id)
        return content.callers[key_id] if stored is not None and stored.state(datetime.now(UTC)) == "active" else None

    def is_valid(self, caller: Caller) -> bool:
        """Whether the key of this caller is still valid, with the same scopes and claims."""
        return self.active(caller.key_id or "") == caller


def _read(path: Path) -> _Content:
    return _content(read_keys(path))


def _content(keys: Keys) -> _Content:
    callers = {key_id: _caller(each) for key_id, each in keys.items()}
    return _Content(keys, callers, frozenset(each.name for each in keys.values()))


def _caller(stored: StoredKey) -> Caller:
    expires_s = None if stored.expires_at is None else stored.expires_at.timestamp()
    return Caller(stored.name, Scopes.of(stored.scopes), expires_s, {**stored.claims, "sub": stored.name}, stored.id)
