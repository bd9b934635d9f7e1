"""What a route needs of its caller: a dependency of every route, so that none is open by mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from fastapi import Depends, Request
from fastapi.params import Depends as Dependency
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Mount, Route

from headwater.api.guard.caller import Caller, caller_of
from headwater.api.guard.scopes import OPERATE, PLAIN, Kind

PUBLIC: Final = frozenset({"/health/live", "/health/ready"})
"""Paths that need no caller: load balancers have no key, and the answers show nothing of what is stored."""
DOCUMENTATION: Final = frozenset({"/", "/openapi.json", "/docs", "/docs/oauth2-redirect", "/docs/assets"})
"""Paths that need any caller, or none by a setting."""
CONSOLE: Final = "/console"
SIGN_IN: Final = "/console/sign-in"
ASSETS: Final = "/console/static/{asset}"
SIGNING_IN: Final = frozenset({SIGN_IN, ASSETS})
"""Routes of the console that need no caller: they show nothing of what is stored."""


@dataclass(frozen=True)
class Need:
    """A dependency that refuses callers whose scopes do not allow what the route does.

    scope: as the documentation shows it.
    """

    scope: str
    check: Callable[[Caller, Request], None]

    async def __call__(self, request: Request) -> None:
        """Raise Forbidden if the caller of the request may not use the route."""
        self.check(caller_of(request), request)


def named(kind: Kind, name: str) -> Sequence[Dependency]:
    """The dependencies of a route about one command, observation, view or aggregate, or for operators."""
    if kind == OPERATE:
        return operating()
    if kind in PLAIN:
        return [Depends(Need(kind, lambda caller, _: caller.must(kind, "*")))]
    return [Depends(Need(f"{kind}:{name}", lambda caller, _: caller.must(kind, name)))]


def of_parameter(kind: Kind, parameter: str) -> Sequence[Dependency]:
    """Those of a route whose path has the name as a parameter."""

    def check(caller: Caller, request: Request) -> None:
        caller.must(kind, request.path_params[parameter])

    return [Depends(Need(f"{kind}:{{{parameter}}}", check))]


def some(kind: Kind) -> Sequence[Dependency]:
    """Those of a route that checks each name itself, and refuses who may do nothing of this kind."""
    return [Depends(Need(f"{kind}:…", lambda caller, _: caller.must_some(kind)))]


def operating() -> Sequence[Dependency]:
    """Those of a route for operators."""
    return [Depends(Need(OPERATE, lambda caller, _: caller.must(OPERATE, "*")))]


def is_console(path: str) -> bool:
    """Whether a path is one of the console."""
    return path == CONSOLE or path.startswith(f"{CONSOLE}/")


def needs_nobody(path: str) -> bool:
    """Whether a path of the console shows nothing of what is stored, and so needs no caller."""
    start, _, asset = path.rpartition("/")
    return path == SIGN_IN or (start == ASSETS.rpartition("/")[0] and asset != "")


def need_of(route: BaseRoute) -> Need | None:
    """What a route needs; None if it says nothing."""
    dependencies = route.dependencies if isinstance(route, APIRoute) else ()
    return next((dependency.dependency for dependency in dependencies if isinstance(dependency.dependency, Need)), None)


def needs_of(routes: Sequence[BaseRoute]) -> Iterator[tuple[APIRoute, Need]]:
    """Every route that needs something."""
    for route in routes:
        if isinstance(route, APIRoute) and (need := need_of(route)) is not None:
            yield route, need


def unguarded(routes: Sequence[BaseRoute]) -> Iterator[str]:
    """The paths of routes that need nothing, although they should."""
    for route in routes:
        is_public = isinstance(route, Route | Mount) and route.path in PUBLIC | DOCUMENTATION | SIGNING_IN
        if need_of(route) is None and not is_public:
            yield getattr(route, "path", None) or repr(route)
