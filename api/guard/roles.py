"""Scopes of roles, for issuers that put roles into tokens, not scopes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from headwater.api.guard.settings import ROLES
from headwater.api.guard.watched_file import WatchedFile
from headwater.eventlog.errors import SettingError


class Roles:
    """The roles of a file, which is read again when it changes. While it cannot be read, no role has a scope."""

    def __init__(self, path: Path | None, claim: str) -> None:
        """Read the file; raises SettingError. claim: with the roles of a token, such as `realm_access.roles`."""
        self._file: WatchedFile[Mapping[str, Sequence[str]]] | None = (
            None if path is None else WatchedFile(path, read_roles, {})
        )
        self.claim = claim

    def every(self) -> Mapping[str, Sequence[str]]:
        """The scopes of each role."""
        return {} if self._file is None else self._file.current()

    def scopes(self, claims: Mapping[str, Any]) -> Sequence[str]:
        """The scopes of the roles in these claims."""
        if self._file is None:
            return ()
        found: Any = claims.get(self.claim)  # a name may have dots itself, as that of a URL
        if found is None:
            found = claims
            for part in self.claim.split("."):
                found = found.get(part) if isinstance(found, Mapping) else None
        named = found.split() if isinstance(found, str) else found if isinstance(found, list) else ()
        roles = self._file.current()
        return [scope for each in named if isinstance(each, str) for scope in roles.get(each, ())]


def read_roles(path: Path) -> Mapping[str, Sequence[str]]:
    """The scopes of each role in a file such as `{"clerk": ["commands:order.*"]}`; raises SettingError."""
    needs = 'a JSON file such as {"clerk": ["commands:order.*", "views:orders"]}'
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, tuple[str, ...]])
    except OSError as error:
        raise SettingError(ROLES, str(path), f"{needs} ({error.strerror or type(error).__name__})") from error
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise SettingError(ROLES, str(path), f"{needs} ({' '.join(str(error).split())[:200]})") from error
