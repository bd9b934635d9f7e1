"""Finds out who sends a request: the one way into the API."""

from __future__ import annotations

import math
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import jwt

from headwater.api.errors import TooManyRequests, Unauthenticated
from headwater.api.guard.caller import ANYONE, Caller
from headwater.api.guard.jwks import open_keys
from headwater.api.guard.keys import ApiKeys
from headwater.api.guard.needs import DOCUMENTATION, PUBLIC, needs_nobody
from headwater.api.guard.scopes import Declared, Scopes
from headwater.api.guard.tokens import LEEWAY_S, Roles, Tokens
from headwater.api.settings import KEY_BEGINS, KEYS, ROLES, GuardSettings
from headwater.eventlog.errors import SettingError

REMEMBERED: Final = 10_000
"""Callers; one that has not called for a second is as good as a new one."""
HEADER: Final = b"authorization"
BEARER: Final = re.compile(rb"bearer +([A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE)
COOKIE: Final = "headwater_console"
SESSION_S: Final = 8 * 60 * 60
"""How long a person stays signed in to the console at most, in seconds."""
MAX_COOKIE_BYTES: Final = 3_900
"""Browsers keep no cookie with more than 4,096 bytes, its name and attributes included."""
_COOKIE_BEGINS: Final = f"{COOKIE}=".encode()
_SIGNED_WITH: Final = "HS256"


@dataclass(slots=True)
class _Usage:
    """What a caller has used. left: of its requests, as of `at_s`. running: requests."""

    left: float
    at_s: float
    running: int = 0


class CallerLimits:
    """The limits of each caller, by its name; for one event loop. 0: no limit.

    A caller saves up the requests of one second at most (a token bucket).
    """

    def __init__(self, per_second: int = 0, at_once: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: returns the time in seconds."""
        self._per_second, self._at_once, self._clock = per_second, at_once, clock
        self._used = OrderedDict[str, _Usage]()

    @property
    def has_any(self) -> bool:
        """Whether there is a limit."""
        return bool(self._per_second or self._at_once)

    @contextmanager
    def admitted(self, name: str) -> Iterator[None]:
        """Run a request of this caller; raises TooManyRequests."""
        usage = self._usage(name)
        if self._at_once and usage.running >= self._at_once:
            raise TooManyRequests(f"at once: {self._at_once}", self._at_once)
        if self._per_second:
            if usage.left < 1:
                raise TooManyRequests(f"per second: {self._per_second}", self._per_second)
            usage.left -= 1
        usage.running += 1
        try:
            yield
        finally:
            usage.running -= 1

    def _usage(self, name: str) -> _Usage:
        now_s = self._clock()
        usage = self._used.pop(name, None) or _Usage(float(self._per_second), now_s)
        usage.left = min(float(self._per_second), usage.left + (now_s - usage.at_s) * self._per_second)
        usage.at_s = now_s
        self._used[name] = usage
        self._forget(now_s)
        return usage

    def _forget(self, now_s: float) -> None:
        """Forget who has not called for a second, from the one that called first."""
        while len(self._used) > REMEMBERED:
            name, usage = next(iter(self._used.items()))
            if now_s - usage.at_s < 1:
                return
            if usage.running:  # of a caller that follows changes: what is running counts
                self._used.move_to_end(name)
                return
            del self._used[name]


def session_cookie(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The cookie of the console in these headers; empty if there is none. It is never quoted."""
    given = (cookie.strip() for name, value in headers if name == b"cookie" for cookie in value.split(b";"))
    cookie_value = next((cookie for cookie in given if cookie.startswith(_COOKIE_BEGINS)), None)
    return (
        ""
        if cookie_value is None
        else cookie_value.removeprefix(_COOKIE_BEGINS)[: MAX_COOKIE_BYTES + 1].decode("latin-1")
    )


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
        session_key: str = "",
    ) -> None:
        """limits: of each caller. has_public_documentation: whether `/docs` and `/openapi.json` need no caller.

        session_key: signs the cookies of the console; empty: one that nobody else has.
        """
        self._keys, self._tokens = keys, tokens
        self.limits = limits or CallerLimits()
        self._session_key = session_key or secrets.token_urlsafe(32)
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
        bearer_match = BEARER.fullmatch(given[0])
        if bearer_match is None:
            raise Unauthenticated("the header Authorization is not of the form Bearer and a key or token")
        text = bearer_match[1].decode()
        if self._keys is not None and text.startswith(KEY_BEGINS):
            return self._keys.caller(text)
        if self._tokens is None:
            raise Unauthenticated("this is not an API key of this API")
        return await self._tokens.caller(text)

    def begin_session(self, caller: Caller) -> str:
        """The cookie of a session of the console; raises Unauthenticated if it would be too large.

        It names the caller's key, or has those claims of its token that give it scopes: neither is in it.
        """
        content: dict[str, Any] = {"exp": int(time.time()) + SESSION_S, "sub": caller.name, "key": caller.key_id}
        if caller.key_id is None and self._tokens is not None:
            claims = self._tokens.granting(caller.claims)
            content |= {"token_exp": caller.expires_s, "claims": claims, "signed_by": caller.signed_by}
        cookie = jwt.encode(content, self._session_key, _SIGNED_WITH)
        if len(cookie) > MAX_COOKIE_BYTES:
            raise Unauthenticated("the scopes and roles of the token do not fit into a cookie: sign in with an API key")
        return cookie

    def session(self, cookie: str) -> Caller | None:
        """The caller of a session with its scopes now; None if it is over, or its key or token is not valid any more.

        Any process with the same session key reads the cookie of another one.
        """
        try:
            content = jwt.decode(cookie, self._session_key, [_SIGNED_WITH], options={"require": ["exp", "sub"]})
        except jwt.PyJWTError:
            return None
        if (key_id := content["key"]) is not None:
            api_key = None if self._keys is None else self._keys.active(key_id)
        elif (signed_by := content.get("signed_by")) is None or self._tokens is None:
            return None
        else:
            api_key = self._tokens.renewed(
                Caller(content["sub"], Scopes(), content["token_exp"], content["claims"], signed_by=signed_by)
            )
        return None if api_key is None else replace(api_key, session_ends_s=content["exp"])

    def is_valid(self, caller: Caller) -> bool:
        """Whether a caller of a request that takes long may still do the same. Call it in the event loop."""
        if self.is_open:
            return True
        if caller.session_ends_s is not None and time.time() >= caller.session_ends_s:
            return False
        if caller.key_id is not None:
            return self._keys is not None and self._keys.is_valid(caller)
        return self._tokens is not None and self._tokens.is_valid(caller)

    def refusal(self, caller: Caller) -> Unauthenticated | None:
        """Why a caller of a request that takes long may not do the same any more; None if it may."""
        if self.is_valid(caller):
            return None
        return Unauthenticated("the API key or token has expired, or was revoked or changed, during the request")

    def must_be_valid(self, caller: Caller) -> None:
        """Raise Unauthenticated if a caller of a request that takes long may not do the same any more."""
        if (refusal := self.refusal(caller)) is not None:
            raise refusal

    def left_s(self, caller: Caller) -> float:
        """How long the key or token of a caller is still valid by its own time, in seconds; at least 0."""
        leeway_s = 0 if caller.key_id is not None else LEEWAY_S
        expires_s = math.inf if caller.expires_s is None else caller.expires_s + leeway_s
        session_ends_s = math.inf if caller.session_ends_s is None else caller.session_ends_s
        return max(0.0, min(expires_s, session_ends_s) - time.time())

    def close(self) -> None:
        """Stop looking for keys of tokens."""
        if self._tokens is not None:
            self._tokens.close()


def open_guard(settings: GuardSettings, declared: Declared) -> Guard:
    """Read the files and the issuer's keys; raises SettingError naming what is wrong, also scopes of nothing."""
    if not settings.knows_callers:
        return Guard()
    keys = None if settings.keys is None else ApiKeys(settings.keys)
    roles = Roles(settings.roles, settings.roles_claim)
    named: list[tuple[str, str, str, Sequence[str]]] = []
    if keys is not None:
        named += [
            (KEYS, str(settings.keys), f'key "{api_key.name}"', api_key.scopes) for api_key in keys.every().values()
        ]
    named += [(ROLES, str(settings.roles), f'role "{role}"', scopes) for role, scopes in roles.every().items()]
    check_scopes(named, declared)
    tokens = None
    if settings.issuer:
        is_taken = keys.has_name if keys else lambda _: False
        source = open_keys(settings.issuer, settings.jwks)
        tokens = Tokens(settings.issuer, settings.audience, source, roles, is_taken)
    limits = CallerLimits(settings.caller_per_second, settings.caller_at_once)
    return Guard(
        keys,
        tokens,
        has_public_documentation=settings.public_docs,
        limits=limits,
        session_key=settings.session_key,
    )


def check_scopes(named: Iterable[tuple[str, str, str, Iterable[str]]], declared: Declared) -> None:
    """Refuse scopes that allow nothing; raises SettingError naming all of them.

    named: for each key or role: the variable of its file, the file, what it is called, and its scopes.
    """
    faults = [
        SettingError(variable, path, f"a file without this mistake: {who}: {problem}")
        for variable, path, who, scopes in named
        for scope in scopes
        if (problem := declared.problem(scope)) is not None
    ]
    if faults:
        raise SettingError.of(faults)
