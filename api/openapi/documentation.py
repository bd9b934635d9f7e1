"""The OpenAPI document, and the page at `/docs` that shows it; neither needs the internet."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import RedirectResponse

from headwater.api.guard.needs import needs_of
from headwater.api.limits import Shared
from headwater.api.openapi import schemas
from headwater.api.openapi.components import Schema, documented
from headwater.api.service import Service

PATH: Final = "/docs"
ASSETS: Final = "/docs/assets"
"""The path of the page's scripts and styles, from the package `fastapi-offline`."""
PAGE: Final[Mapping[str, Any]] = {
    "validatorUrl": None,  # else the page asks another site to check the document
    "displayRequestDuration": True,
    "defaultModelsExpandDepth": 0,
}
SECURITY: Final[Schema] = {
    "caller": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key, or a token of the issuer that the API trusts. An open API needs none.",
    }
}
ORDER: Final = (
    "health", "commands", "receipts", "observations", "views", "streams", "positions", "metrics", "persons",
)  # fmt: skip
"""Of the paths in the document, by their first parts."""


def install(app: FastAPI, service: Service, declared: Schema) -> None:
    """Serve the OpenAPI document, made at its first request, and redirect from `/` to the page.

    declared: paths of what is declared, one by one, which a general route answers.
    """

    def document() -> Schema:
        if app.openapi_schema is None:
            schema = get_openapi(
                title=app.title,
                version=app.version,
                summary=app.summary,
                description=app.description,
                routes=app.routes,
            )
            schema["paths"] = dict(sorted({**declared, **schema["paths"]}.items(), key=lambda item: _place(item[0])))
            _secure(schema["paths"], app)
            _identify(schema["paths"])
            # instead of FastAPI's own, which describe validation errors that are never sent
            schema["components"] = {"schemas": schemas.components(service), "securitySchemes": SECURITY}
            app.openapi_schema = schema
        return app.openapi_schema

    texts = dict[str, Shared[bytes]]()

    def text(root_path: str) -> bytes:
        servers = {"servers": [{"url": root_path}]} if root_path else {}
        return orjson.dumps({**document(), **servers})

    async def read(request: Request) -> Response:
        """The document: made once, and not in the event loop, where it would hold up all requests for seconds."""
        prefix = request.scope.get("root_path", "").rstrip("/")  # which a proxy adds
        shared = texts.setdefault(prefix, Shared(partial(asyncio.to_thread, text, prefix), math.inf))
        return Response(await shared.current(), media_type="application/json")

    async def redirect(request: Request) -> RedirectResponse:
        """Redirect to the documentation."""
        return RedirectResponse(request.scope.get("root_path", "") + PATH)

    app.openapi = document  # type: ignore[method-assign]
    app.router.routes[:] = [route for route in app.routes if getattr(route, "path", "") != app.openapi_url]
    app.add_api_route(str(app.openapi_url), read, methods=["GET"], include_in_schema=False)
    app.add_api_route("/", redirect, methods=["GET"], include_in_schema=False)


def _place(path: str) -> tuple[int, bool]:
    """Where a path stands in the document: lists come first, and general paths after those of what is declared."""
    return ORDER.index(path.split("/")[1]), path.count("/") > 1


def operations(paths: Schema) -> Iterator[Schema]:
    """Every operation of a document."""
    for path in paths.values():
        yield from path.values()


def _secure(paths: Schema, app: FastAPI) -> None:
    """Say what each operation needs of its caller, and how it refuses others."""
    scopes = {
        (route.path_format, "".join(route.methods or ()).lower()): need.scope for route, need in needs_of(app.routes)
    }
    for path, methods in paths.items():
        for method, operation in methods.items():
            scope = scopes.get((path, method))
            if scope is not None:
                operation["security"] = [{"caller": [scope]}]
            if "security" in operation:
                operation["responses"] |= {
                    str(status): refused for status, refused in documented(401, 403, 429).items()
                }


def _identify(paths: Schema) -> None:
    """Give each operation a unique id that is an identifier in any language."""
    taken: set[str] = set()
    for operation in operations(paths):
        plain = name = re.sub(r"\W+", "_", operation["operationId"]).strip("_").lower()
        number = 1
        while name in taken:
            number += 1
            name = f"{plain}_{number}"
        taken.add(name)
        operation["operationId"] = name
