"""Finds out who sends a request: the one way into the API."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable
from typing import Final

from headwater.api.errors import Unauthenticated
from headwater.api.guard.caller import ANYONE, Caller
from headwater.api.guard.console_paths import needs_nobody
from headwater.api.guard.keys import ApiKeys
from headwater.api.guard.limits import CallerLimits
from headwater.api.guard.needs import DOCUMENTATION, PUBLIC
from headwater.api.guard.sessions import Session, Sessions, session_id_in
from headwater.api.guard.settings import KEY_BEGINS
from headwater.api.guard.tokens import LEEWAY_S, Tokens

HEADER: Final = b"authorization"
BEARER: Final = re.compile(rb"bearer +([A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE)


class Guard:
    """Knows callers by API keys and tokens. A resource of the application.

    keys, tokens: None: none are accepted. Without both, the API is open: everybody may do everything.
    """

    def __init__(
        self,
        keys: ApiKeys | None = None,
        tokens: Tokens | None = None,
        *,
        has_public_documentation: bool = False,
        limits: CallerLimits | None = None,
    ) -> None:
        """limits: of each caller. has_public_documentation: whether `/docs` and `/openapi.json` need no caller."""
        self._keys, self._tokens = keys, tokens
        self.limits = limits or CallerLimits()
        self.sessions = Sessions()
        self._public = PUBLIC | (DOCUMENTATION if has_public_documentation else frozenset())
        self._has_public_documentation = has_public_documentation

    @property
    def is_open(self) -> bool:
        """Whether callers are not known."""
        return self._keys is None and self._tokens is None

    def needs_caller(self, path: str) -> bool:
        """Whether this path needs a caller."""
        if self.is_open or path in self._public or needs_nobody(path):
            return False
        return not (self._has_public_documentation and path.startswith("/docs/assets/"))

    async def caller(self, headers: Iterable[tuple[bytes, bytes]]) -> Caller:
        """The caller of a request with these headers; raises Unauthenticated or IssuerUnavailable."""
        if self.is_open:
            return ANYONE
        given = [value for name, value in headers if name == HEADER]
        if not given:
            raise Unauthenticated(
                "the request has no API key or token: send it as Authorization: Bearer …", missing=True
            )
        if len(given) > 1:
            raise Unauthenticated("the request has several headers Authorization: send one")
        found = BEARER.fullmatch(given[0])
        if found is None:
            raise Unauthenticated("the header Authorization is not of the form Bearer and a key or token")
        text = found[1].decode()
        if self._keys is not None and text.startswith(KEY_BEGINS):
            return self._keys.caller(text)
        if self._tokens is None:
            raise Unauthenticated("this is not an API key of this API")
        return await self._tokens.caller(text)

    def session(self, headers: Iterable[tuple[bytes, bytes]]) -> Session | None:
        """The session of a browser; None without one, or if its key or token is not valid any more."""
        session_id = session_id_in(headers)
        session = None if session_id is None else self.sessions.of(session_id)
        if session_id is None or session is None:
            return None
        if not self.is_valid(session.caller):
            self.sessions.end(session_id)
            return None
        return session

    def is_valid(self, caller: Caller) -> bool:
        """Whether a caller of a request that takes long may still do the same."""
        if self.is_open:
            return True
        if caller.key_id is not None:
            return self._keys is not None and self._keys.is_valid(caller)
        return self._tokens is not None and self._tokens.is_valid(caller)

    def must_be_valid(self, caller: Caller) -> None:
        """Raise Unauthenticated if a caller of a request that takes long may not do the same any more."""
        if not self.is_valid(caller):
            raise Unauthenticated("the API key or token has expired, or was revoked or changed, during the request")

    def left_s(self, caller: Caller) -> float:
        """How long the key or token of a caller is still valid by its own time, in seconds; at least 0."""
        if caller.expires_s is None:
            return math.inf
        leeway_s = 0 if caller.key_id is not None else LEEWAY_S
        return max(0.0, caller.expires_s + leeway_s - time.time())

    async def open(self) -> None:
        """Nothing to do: everything was read when it was made."""

    async def close(self) -> None:
        """Stop looking for keys of tokens."""
        if self._tokens is not None:
            self._tokens.close()
