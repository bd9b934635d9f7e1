"""A blocking HTTP client of an application in this process."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
from fastapi import FastAPI

from headwater.api.app import create_app
from headwater.api.service import Service


class AppClient:
    """Sends each request in an event loop of its own."""

    def __init__(self, app: FastAPI, root_path: str = "") -> None:
        """root_path: the prefix of all paths, which a proxy adds."""
        self.app, self.root_path = app, root_path

    def get(self, url: str, **request: Any) -> httpx.Response:
        return self.request("GET", url, **request)

    def post(self, url: str, **request: Any) -> httpx.Response:
        return self.request("POST", url, **request)

    def request(self, method: str, url: str, **request: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False, root_path=self.root_path)
            async with httpx.AsyncClient(transport=transport, base_url="http://headwater") as client:
                return await client.request(method, url, **request)

        return asyncio.run(send())


_latest: list[tuple[Service, FastAPI]] = []


def client_of(service: Service) -> AppClient:
    """Of the app that the last call made, if it was for this very service: to make one takes as long as ten requests.

    What an app remembers, such as which stores failed, is there in the next call.
    """
    if not _latest or _latest[0][0] is not service:
        _latest[:] = [(service, create_app(service))]
    return AppClient(_latest[0][1])
