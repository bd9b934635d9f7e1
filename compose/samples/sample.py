"""The interface of a sample in `headwater run`, where it runs, and its HTTP client."""

from __future__ import annotations

import asyncio
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final
from urllib.parse import quote

import httpx
import orjson
from rich.console import Console

from headwater.compose.errors import ComposeError
from headwater.compose.settings import Endpoints
from headwater.eventlog.errors import SettingError
from headwater.eventlog.settings import LogSettings

TOKEN: Final = "HEADWATER_API_TOKEN"  # noqa: S105  # the name of the variable
VISIBLE: Final = re.compile(r"[\x21-\x7e]+")
CONCURRENCY = 64
LINES = 500
"""Commands per request, if there are many: the API has at most 1,000 of a request in progress."""
REQUESTS_OF_LINES = 4
"""At once: more would not be decided sooner."""
SETTLE_S = 300.0
LOOK_AGAIN_S = 0.5
IDLE_S = 2.0
"""How long an idle connection is kept: the API closes it after 5 s, which must not happen while a request is sent."""

console = Console(stderr=True)


@dataclass(frozen=True)
class Deployment:
    """Where samples run. variables: the environment of Headwater's processes."""

    endpoints: Endpoints
    variables: Mapping[str, str]

    @property
    def environment(self) -> str:
        """The prefix of its names in every store."""
        return LogSettings.from_environment(self.variables).environment


@dataclass(frozen=True)
class Request:
    """One command or observation, as it is sent over HTTP."""

    type: str
    body: dict[str, Any]
    is_observation: bool = False


def open_http(api: str) -> httpx.AsyncClient:
    """An HTTP client of the API at this address, with the caller's key or token (see `authorization`)."""
    limits = httpx.Limits(keepalive_expiry=IDLE_S)
    headers = authorization(os.environ)
    return httpx.AsyncClient(base_url=api, timeout=60.0, trust_env=False, limits=limits, headers=headers)


def authorization(environ: Mapping[str, str]) -> dict[str, str]:
    """The header with the API key or token in HEADWATER_API_TOKEN, for an API that answers known callers only."""
    token = environ.get(TOKEN, "")
    if not token:
        return {}
    if not VISIBLE.fullmatch(token):
        raise SettingError(TOKEN, "…", "an API key or a token, without spaces")
    return {"authorization": f"Bearer {token}"}


class Client:
    """Sends commands and observations, and remembers the last position in each partition. sent: how many it sent.

    positions: an offset by source, as in `after=`.
    """

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.sent = 0
        self.positions: dict[str, int] = {}
        self._slots, self._line_slots = asyncio.Semaphore(CONCURRENCY), asyncio.Semaphore(REQUESTS_OF_LINES)

    async def send(self, request: Request, command_id: str | None = None) -> dict[str, Any]:
        """Send one command or observation; with an id, the repetition of a command does no harm.

        Raises ComposeError with the API's answer if it is not accepted.
        """
        headers = {} if command_id is None or request.is_observation else {"Idempotency-Key": command_id}
        path = f"/{'observations' if request.is_observation else 'commands'}/{request.type}"
        async with self._slots:
            answer = await self.http.post(path, json=request.body, headers=headers)
        if not answer.is_success:
            raise ComposeError(f"{request.type} {request.body} was answered {answer.status_code}: {answer.text}")
        self.sent += 1
        receipt: dict[str, Any] = answer.json()
        self._note([receipt] if request.is_observation else receipt["events"])
        return receipt

    async def send_all(self, requests: Sequence[Request], command_ids: Sequence[str] = ()) -> None:
        """Send many at once, in any order; with an id for each, the repetition of a command does no harm.

        Commands go as NDJSON, because a request for each would cost this client more than it costs the API to decide.
        Raises ComposeError with the API's answer if one is not accepted.
        """
        ids: Sequence[str | None] = command_ids or [None] * len(requests)
        pairs = list(zip(requests, ids, strict=True))
        lines = [_line(report, command_id) for report, command_id in pairs if not report.is_observation]
        await asyncio.gather(
            *(self.send(request) for request in requests if request.is_observation),
            *(self._send_lines(lines[at : at + LINES]) for at in range(0, len(lines), LINES)),
        )

    async def _send_lines(self, lines: Sequence[bytes]) -> None:
        headers = {"content-type": "application/x-ndjson"}
        async with self._line_slots:
            answer = await self.http.post("/commands", content=b"".join(lines), headers=headers)
        answered = [orjson.loads(line) for line in answer.content.splitlines()] if answer.is_success else []
        refused = next((answer for answer in answered if "accepted" not in answer), None)
        if refused is not None:
            raise ComposeError(f"{lines[refused['line'] - 1].decode().strip()} was answered {refused['problem']}")
        if len(answered) != len(lines):
            raise ComposeError(f"{len(lines)} commands were answered {answer.status_code}: {answer.text[-1000:]}")
        self.sent += len(lines)
        for accepted_line in answered:
            self._note(accepted_line["accepted"]["events"])

    def _note(self, recorded: Iterable[Mapping[str, Any]]) -> None:
        """Remember the positions of events, or of an observation."""
        for event in recorded:
            source, _, offset = event["position"].rpartition(":")
            self.positions[source] = max(int(offset), self.positions.get(source, -1))

    async def settle(self, rows: Mapping[str, str]) -> None:
        """Wait until some views have applied every event of this client's commands, and its observations.

        rows: the views, with the key of a row of each. Raises ComposeError if a view has not done so within SETTLE_S.
        """
        after = ",".join(f"{source}:{offset}" for source, offset in sorted(self.positions.items()))
        deadline = time.monotonic() + SETTLE_S
        for view, key in rows.items():
            path = f"/views/{view}/{quote(key)}"
            while (answer := await self.http.get(path, params={"after": after})).status_code in (503, 504):
                if time.monotonic() > deadline:
                    raise ComposeError(f"{view} has not caught up within {SETTLE_S:.0f} s: {answer.text}")


def _line(request: Request, command_id: str | None) -> bytes:
    """A command as a line of NDJSON."""
    named = {} if command_id is None else {"id": command_id}
    return orjson.dumps({"type": request.type, **named, "body": request.body}, option=orjson.OPT_APPEND_NEWLINE)


class Sample(ABC):
    """What `headwater run` loads of a sample.

    rows: the views to wait for afterwards, with the key of a row of each.
    """

    rows: Mapping[str, str] = {}

    async def prepare(self, client: Client, deployment: Deployment) -> None:
        """Make what exists before requests are sent, such as a database that is captured; does nothing if it exists.

        Called once, before all other methods.
        """
        return

    @abstractmethod
    def loading(self) -> Sequence[Sequence[Request]]:
        """What is sent, in rounds, the same each time; requests of one round may be sent at once."""


def sample_of(domain: str) -> Sample:
    """A new sample by its name."""
    sample: Sample = import_module(f"headwater.compose.samples.{domain}").sample()
    return sample


def to_try(domain: str) -> Sequence[tuple[str, str]]:
    """What can be tried with a sample, and the command for it."""
    requests: Sequence[tuple[str, str]] = import_module(f"headwater.compose.samples.{domain}").TO_TRY
    return requests
