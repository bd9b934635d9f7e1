"""What `make run` and `make demo` do with a shipped domain, and the HTTP client with which they do it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import httpx

from compose.errors import ComposeError
from compose.settings import Endpoints

CONCURRENCY = 64
SETTLE_S = 120.0


@dataclass(frozen=True)
class Request:
    """One command as it goes over HTTP."""

    type: str
    body: dict[str, Any]


class Client:
    """Sends commands, and remembers the last position in each partition of the events that they caused."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.positions: dict[int, int] = {}
        self._slots = asyncio.Semaphore(CONCURRENCY)

    async def send(self, request: Request, command_id: str | None = None) -> dict[str, Any]:
        """Send one command, under an id that makes a repetition harmless where one is given.

        Raises ComposeError with the API's answer when it is not accepted.
        """
        headers = {} if command_id is None else {"Idempotency-Key": command_id}
        async with self._slots:
            answer = await self.http.post(f"/commands/{request.type}", json=request.body, headers=headers)
        if not answer.is_success:
            raise ComposeError(f"{request.type} {request.body} was answered {answer.status_code}: {answer.text}")
        receipt: dict[str, Any] = answer.json()
        for event in receipt["events"]:
            partition, offset = map(int, event["position"].split(":"))
            self.positions[partition] = max(offset, self.positions.get(partition, -1))
        return receipt

    async def send_all(self, requests: Sequence[Request]) -> None:
        """Send many at once; their order is not kept."""
        await asyncio.gather(*(self.send(request) for request in requests))

    async def settle(self, rows: Mapping[str, str]) -> None:
        """Wait until some views have applied every event that this client caused.

        rows: the views, with the key of a row of each. Raises ComposeError if one has not within SETTLE_S.
        """
        after = ",".join(f"{partition}:{offset}" for partition, offset in sorted(self.positions.items()))
        deadline = time.monotonic() + SETTLE_S
        for view, key in rows.items():
            path = f"/views/{view}/{key}"
            while (answer := await self.http.get(path, params={"after": after})).status_code == 503:
                if time.monotonic() > deadline:
                    raise ComposeError(f"{view} is still behind after {SETTLE_S:.0f} s: {answer.text}")


class Sample(Protocol):
    """A shipped domain at work: what is asked of it, and what its views must show then."""

    views: Sequence[str]
    """The views that `mismatches` checks."""
    rows: Mapping[str, str]
    """The views that show it, with the key of a row of each that is there once `loading` or `rounds` is carried out."""

    @property
    def number(self) -> int:
        """How many listings, orders and so on `rounds` is about."""

    def loading(self) -> Sequence[Mapping[str, Request]]:
        """What `make run` begins with, by command id, in rounds; commands of one round may run at once."""

    def rounds(self) -> Sequence[Sequence[Request]]:
        """What the demo begins with; commands of one round may run at once."""

    async def write_and_read(self, client: Client, number: int) -> tuple[float, str]:
        """Change one thing and read it back from PostgreSQL: seconds from the receipt to the row, and what is wrong.

        number: from 0, another one at each call.
        """

    async def trade(self, client: Client, number: int) -> int:
        """Change something, so that there is traffic; returns how many commands were sent. number: from 0, rising."""

    async def mismatches(self, client: Client, endpoints: Endpoints, environment: str) -> list[str]:
        """Every place where a view differs from what was asked, read from the stores themselves."""
