"""API keys: their file, which has the SHA-256 of each key and never the key, and the callers that have them."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import stat
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec

from headwater.api.errors import Unauthenticated
from headwater.api.guard.caller import Caller
from headwater.api.guard.scopes import Scopes
from headwater.api.guard.watched_file import WatchedFile
from headwater.api.settings import KEY_BEGINS, KEYS
from headwater.eventlog.errors import SettingError

KEY: Final = re.compile(r"hw_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
NAME: Final = re.compile(r"[a-z][a-z0-9._-]{0,62}")
_SECRET_BYTES: Final = 32
_DIGEST: Final = r"^[0-9a-f]{64}\Z"
_NO_DIGEST: Final = "0" * 64
"""Compared with an unknown key, so that it takes as long as a wrong one."""


class StoredKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One key. id: its public part. name: the actor of what it sends. sha256: of the whole key, in hexadecimal.

    claims: what it stands for in fields that the API fills. expires_at, revoked_at: None: not.
    """

    id: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16}\Z")]
    name: Annotated[str, msgspec.Meta(pattern=rf"^{NAME.pattern}\Z")]
    sha256: Annotated[str, msgspec.Meta(pattern=_DIGEST)]
    scopes: tuple[str, ...]
    created_at: Annotated[datetime, msgspec.Meta(tz=True)]
    expires_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    revoked_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    claims: Mapping[str, str] = {}

    def state(self, now: datetime) -> str:
        """`active`, `expired` or `revoked`."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "active"


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keys: tuple[StoredKey, ...]


Keys = Mapping[str, StoredKey]
"""By id."""


def read_keys(path: Path) -> Keys:
    """The keys in a file; raises SettingError if it is no file of keys, or others may write it."""
    try:
        if path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise _wrong(path, f"a file that only its owner may write: chmod 600 {path}")
        keys = msgspec.json.decode(path.read_bytes(), type=_Document).keys
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise _wrong(path, f"a file of `headwater keys new` ({reason})") from error
    except (msgspec.MsgspecError, UnicodeError) as error:
        # the text of the error has no value of the file
        reason = " ".join(str(error).split()).replace("`", '"')[:200]
        raise _wrong(path, f"a file of `headwater keys new` ({reason})") from None
    keys_by_id = {key.id: key for key in keys}
    if len(keys_by_id) < len(keys):
        raise _wrong(path, "a file in which no two keys have the same id")
    return keys_by_id


def write_keys(path: Path, keys: Sequence[StoredKey]) -> None:
    """Replace the file at once, readable for its owner only; raises SettingError if that is not possible."""
    text = msgspec.json.format(msgspec.json.encode(_Document(tuple(keys))), indent=2) + b"\n"
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # with mode 0600
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise _wrong(path, f"a file in a folder that can be written ({reason})") from error


def new_key(
    name: str, scopes: Sequence[str], now: datetime, expires_at: datetime | None, claims: Mapping[str, str]
) -> tuple[str, StoredKey]:
    """A new key with 256 random bits, which is shown once, and what is stored of it."""
    key_id, secret = secrets.token_hex(8), secrets.token_urlsafe(_SECRET_BYTES)
    key = f"{KEY_BEGINS}{key_id}_{secret}"
    return key, StoredKey(key_id, name, digest(key), tuple(scopes), now, expires_at, claims=dict(claims))


def digest(key: str) -> str:
    """The SHA-256 of a key, in hexadecimal; a key is random, so it needs no salt and no slow function."""
    return hashlib.sha256(key.encode()).hexdigest()


def now() -> datetime:
    """The time in UTC, in whole seconds."""
    return datetime.now(UTC).replace(microsecond=0)


def _wrong(path: Path, needs: str) -> SettingError:
    return SettingError(KEYS, str(path), needs)


class _Content(NamedTuple):
    keys: Keys
    callers: Mapping[str, Caller]
    names: frozenset[str]


class ApiKeys:
    """The keys of a file, which is read again when it changes. While it cannot be read, no key is valid."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the file; raises SettingError."""
        self._file = WatchedFile(path, lambda path: _content(read_keys(path)), _content({}), clock)

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


def _content(keys: Keys) -> _Content:
    callers: dict[str, Caller] = {}
    for key_id, stored in keys.items():
        expires_s = None if stored.expires_at is None else stored.expires_at.timestamp()
        claims = {**stored.claims, "sub": stored.name}
        callers[key_id] = Caller(stored.name, Scopes.of(stored.scopes), expires_s, claims, key_id)
    return _Content(keys, callers, frozenset(key.name for key in keys.values()))
