"""The caller of a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fastapi import Request

from headwater.api.errors import Forbidden
from headwater.api.guard.readable import readable
from headwater.api.guard.scopes import EVERYTHING, OPERATE, PERSONAL, PLAIN, Kind, Scopes
from headwater.api.requests.filters import Filter
from headwater.projections.view import View

STATE: Final = "caller"
"""Under which the state of a request has its caller."""


@dataclass(frozen=True)
class Caller:
    """Who sent a request.

    name: of the key, or the token's subject; None if the API is open, so that nobody is known. expires_s: since 1970;
    None: never. claims: of the token, or what the key stands for. key_id: of a key.
    """

    name: str | None
    scopes: Scopes
    expires_s: float | None = None
    claims: Mapping[str, Any] = field(default_factory=dict)
    key_id: str | None = None

    def must(self, kind: Kind, name: str) -> None:
        """Raise Forbidden unless this is allowed; name: see `Scopes.allow`."""
        if not self.scopes.allow(kind, name):
            raise Forbidden(kind if kind == OPERATE or kind in PLAIN else f"{kind}:{name}")

    @property
    def reads_personal(self) -> bool:
        """Whether personal values are shown to this caller."""
        return self.scopes.allow(PERSONAL, "*")

    def readable(self, view: View) -> tuple[Filter, ...]:
        """What the rows of a view must fulfil so that they exist for this caller; nothing, if all do."""
        if not view.readable_by or self.scopes.allow(OPERATE, "*"):
            return ()
        return readable(view, self.claims)

    def must_some(self, kind: Kind) -> None:
        """Raise Forbidden unless any name of this kind is allowed."""
        if not self.scopes.allow_some(kind):
            raise Forbidden(f"{kind}:*")


ANYONE: Final = Caller(None, EVERYTHING)
"""Of an open API."""


def caller_of(request: Request) -> Caller:
    """The caller of a request, which the edge has made known."""
    caller: Caller = getattr(request.state, STATE)
    return caller
