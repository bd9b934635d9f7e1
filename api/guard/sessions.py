"""Sessions of people who use the console with a browser: an opaque id in a cookie, everything else in this process."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Final

from headwater.api.guard.caller import Caller

COOKIE: Final = "headwater_console"
STATE: Final = "session"
"""Under which the state of a request has its session."""
SESSION_S: Final = 8 * 60 * 60
"""How long a session lasts at most, in seconds."""
IDLE_S: Final = 60 * 60
"""How long a session lasts that nobody uses, in seconds."""
MAX_SESSIONS: Final = 1_000
MAX_OF_CALLER: Final = 20
"""Sessions of one caller: the next one ends its oldest, so that no caller ends those of others."""


@dataclass(slots=True)
class Session:
    """One browser. token: what its forms send, which no other website knows. began_s, used_s: by the clock."""

    caller: Caller
    token: str
    began_s: float
    used_s: float


class Sessions:
    """The sessions of one process, by a digest of their ids."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: returns the time in seconds."""
        self._clock = clock
        self._sessions = OrderedDict[str, Session]()
        """The one that began first is the first."""

    def begin(self, caller: Caller) -> str:
        """The id of a new session, for the cookie only."""
        self._forget()
        session_id, now_s = secrets.token_urlsafe(32), self._clock()
        own = [key for key, each in self._sessions.items() if each.caller.name == caller.name]
        for key in own[: max(0, len(own) + 1 - MAX_OF_CALLER)]:
            del self._sessions[key]
        while len(self._sessions) >= MAX_SESSIONS:
            self._sessions.popitem(last=False)
        self._sessions[_digest(session_id)] = Session(caller, secrets.token_urlsafe(32), now_s, now_s)
        return session_id

    def of(self, session_id: str) -> Session | None:
        """The session with this id, which is used now; None if there is none any more."""
        key = _digest(session_id)
        found = self._sessions.get(key)
        if found is None:
            return None
        if not self._lasts(found):
            del self._sessions[key]
            return None
        found.used_s = self._clock()
        return found

    def end(self, session_id: str) -> None:
        """End the session with this id, if there is one."""
        self._sessions.pop(_digest(session_id), None)

    def _lasts(self, session: Session) -> bool:
        now_s = self._clock()
        return now_s - session.began_s < SESSION_S and now_s - session.used_s < IDLE_S

    def _forget(self) -> None:
        """Remove the sessions that are over."""
        for key in [key for key, each in self._sessions.items() if not self._lasts(each)]:
            del self._sessions[key]


def session_id_in(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The id in the cookie of a request; None if it has none, or several cookies of this name."""
    values = [value.decode("latin-1") for name, value in headers if name == b"cookie"]
    found = []
    for part in "; ".join(values).split(";"):
        if part.strip().partition("=")[0] != COOKIE:
            continue
        try:
            found += [morsel.value for morsel in SimpleCookie(part).values()]
        except CookieError:
            return None
    return found[0] if len(found) == 1 and found[0] else None


def _digest(session_id: str) -> str:
    """What is kept of an id, so that a copy of the memory is no session; and so that look-ups tell nothing by time."""
    return hashlib.sha256(session_id.encode(errors="surrogatepass")).hexdigest()
