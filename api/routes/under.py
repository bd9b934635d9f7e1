"""Routes that are tried only for paths below a prefix: FastAPI tries all routes of an application one after another."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.routing import Match
from starlette.types import Scope


class RoutesUnder(APIRouter):
    """A router whose routes all begin with `start`; for other paths it does not look at them."""

    def __init__(self, start: str, **options: Any) -> None:
        super().__init__(**options)
        self._start = start

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """As APIRouter's; the path may have a prefix of its own, behind a proxy."""
        return super().matches(scope) if self._start in scope["path"] else (Match.NONE, {})
