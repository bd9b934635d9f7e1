"""Renders pages: what every page shows, and the headers that let a browser load nothing from elsewhere."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import orjson
from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import StreamingResponse

from headwater.api.guard.caller import STATE as CALLER
from headwater.api.guard.caller import Caller
from headwater.api.guard.needs import CONSOLE
from headwater.api.service import Service

FOLDER: Final = Path(__file__).parent
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
SECTIONS: Final = (
    ("now", "Now", ()),
    ("views", "Views", ("views",)),
    ("streams", "Streams", ("streams",)),
    ("processes", "Processes", ("processes",)),
    ("sources", "Databases", ("sources",)),
    ("letters", "Dead letters", ("letters",)),
    ("audit", "Audit", ("audit",)),
)
"""The pages of the navigation: their names, titles and places."""
SHOWN_CHARACTERS: Final = 300
"""Of a value in a table."""


class Pages:
    """The pages of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        has = {"processes": service.processes, "sources": service.captured.sources}
        self._without = {name for name, declared in has.items() if not declared}

    def answer(self, request: Request, template: str, status: int = 200, /, **facts: Any) -> Response:
        """A page; facts: for its template."""
        return HTMLResponse(self.text(request, template, **facts), status, headers=HEADERS)

    def text(self, request: Request, template: str, /, **facts: Any) -> str:
        """A page, or a part of one, as text."""
        caller: Caller | None = getattr(request.state, CALLER, None)
        shared = {
            "href": Links(request),
            "environment": self._service.environment,
            "signed_in": caller.name if caller is not None and caller.session_ends_s is not None else None,
            "is_known": caller is not None,
            "sections": [section for section in SECTIONS if section[0] not in self._without],
            "section": "",
            "changes": "",
            "refresh_s": 0,
        }
        text = _templates().get_template(template).render(shared | facts)
        return text.encode(errors="replace").decode()  # an error may quote what UTF-8 cannot encode


def growing(page: str, content: AsyncIterator[str]) -> Response:
    """A page that gets its content as it is read."""
    head, _, tail = page.partition("<!-- content -->")

    async def parts() -> AsyncIterator[str]:
        yield head
        async for chunk in content:
            yield chunk
        yield tail

    return StreamingResponse(parts(), media_type="text/html", headers=HEADERS | {"X-Accel-Buffering": "no"})


class Links:
    """Makes paths of the console: `href("views", view, key=key)`."""

    def __init__(self, request: Request) -> None:
        self._start = f"{request.scope.get('root_path') or ''}{CONSOLE}"

    def __call__(self, *parts: str, **parameters: Any) -> str:
        """The path of these parts, with parameters that are not None."""
        path = self._start + "".join(f"/{quote(part, safe='$')}" for part in parts)
        given = {name: parameter for name, parameter in parameters.items() if parameter is not None}
        return f"{path}?{urlencode(given)}" if given else path

    def asset(self, name: str) -> str:
        """The path of a file that pages need."""
        return self("static", name, v=assets()[name].version)

    def stream(self, stream: str, **parameters: Any) -> str:
        """The path of a stream."""
        return self("streams", stream=stream, **parameters)


class Asset:
    """A file that pages need. version: changes with its content, so that browsers keep it for long."""

    def __init__(self, path: Path) -> None:
        self.content = path.read_bytes()
        self.version = hashlib.sha256(self.content).hexdigest()[:12]
        self.media_type = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}[path.suffix[1:]]


@cache
def assets() -> Mapping[str, Asset]:
    """The files by name."""
    return {path.name: Asset(path) for path in sorted((FOLDER / "static").iterdir())}


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "value": shown_value,
        "number": number,
        "when": when,
        "seconds": seconds,
        "json": pretty,
        "marked": marked,
    }
    return environment


def shown_value(value: Any) -> str:
    """A value of a row or an event in a table, cut if it is long."""
    text = value if isinstance(value, str) else json.dumps(value, default=_plain, ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def pretty(value: Any) -> str:
    """A value as JSON over several lines."""
    return json.dumps(value, default=_plain, ensure_ascii=False, indent=2)


def _plain(value: Any) -> Any:
    """What JSON has of a value that is none of its own, such as the JSON text that a row has in a column."""
    return json.loads(orjson.dumps(value)) if isinstance(value, orjson.Fragment) else str(value)


def marked(text: str) -> Markup:
    """A text of Headwater's in which `…` are commands and paths."""
    parts = shown_value(text).split("`")
    if len(parts) % 2 == 0:  # cut, or not meant so
        return escape(shown_value(text))
    return Markup().join(
        Markup("<code>{}</code>").format(part) if at % 2 else escape(part) for at, part in enumerate(parts)
    )


def number(value: float | None) -> str:
    """A number with separators; empty without one."""
    return "" if value is None else f"{value:,}"


def seconds(value: float | None) -> str:
    """A duration, as short as it can be compared."""
    if value is None:
        return "-"
    if value < 100:
        return f"{value:.1f} s"
    if value < 7200:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.0f} h" if value < 48 * 3600 else f"{value / 86_400:.0f} d"


def when(value: datetime | None) -> Markup:
    """A time, in UTC."""
    if value is None:
        return Markup("")
    at = value.astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(at.isoformat(), f"{at:%Y-%m-%d %H:%M:%S}.{at:%f}"[:23])
