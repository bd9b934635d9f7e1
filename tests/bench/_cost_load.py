"""`python -m tests.bench._cost_load`: commands at a steady rate, by a client that costs little; prints what it saw.

It keeps some connections and reads only what it must of the answers, for a client library would take more of the two
cores than the API does. A quarter of the commands list a property, the others change the price of one.
"""

from __future__ import annotations

import asyncio
import sys
import time
import uuid
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from tests.bench._listing import LISTING

LISTED: Final = 400
"""Properties whose prices change."""
CONNECTIONS: Final = 64
CLIENTS: Final = 4
CHUNK_LINES: Final = 500
IDLE_S: Final = 2.0
"""A connection that was not used for so long is not used again, because the API closes idle ones."""
LIMIT_S: Final = 300.0

Command = tuple[str, dict[str, Any]]


class Refused(Exception):
    """The API did not accept something that was sent."""


class Client:
    """Requests on kept connections; at most CONNECTIONS are on their way at once."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._host, self._port = address.hostname or "", address.port or 80
        self._idle: list[tuple[float, asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self.took_ms: list[float] = []
        """From each request, once it is on its way, to its answer."""

    async def get(self, path: str) -> bytes:
        """The body of the answer; raises Refused if its status is no success."""
        return await self._answer(path, f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode())

    async def post(self, path: str, content: bytes, media: str) -> bytes:
        """Likewise."""
        head = f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: {media}\r\n"
        head += f"Content-Length: {len(content)}\r\n\r\n"
        return await self._answer(path, head.encode() + content)

    async def _answer(self, path: str, request: bytes) -> bytes:
        async with self._slots:
            reader, writer = await self._connected()
            began = time.perf_counter()
            writer.write(request)
            received = (await reader.readuntil(b"\r\n\r\n")).lower()
            body = await _body(reader, received)
            self.took_ms.append((time.perf_counter() - began) * 1000)
            if b"connection: close" in received:
                writer.close()
            else:
                self._idle.append((time.monotonic(), reader, writer))
        if not received.startswith(b"http/1.1 20"):
            raise Refused(f"{path}: {received[:20]!r} {body[:300]!r}")
        return body

    def close(self) -> None:
        """Close the connections, once every request was answered."""
        for _, _, writer in self._idle:
            writer.close()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._idle:
            since, reader, writer = self._idle.pop()  # the last one, so that the others may become too old
            if time.monotonic() - since < IDLE_S:
                return reader, writer
            writer.close()
        return await asyncio.open_connection(self._host, self._port)


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    if b"transfer-encoding: chunked" not in head:
        return await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r")[0]))
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readexactly(2)
    return body


def commands(run: str, number: int) -> Iterator[Command]:
    """Commands that are all accepted, if the properties of `run` are listed. number: of the first price."""
    while True:
        yield "listing.list_property", {"listing_id": uuid.uuid4().hex, **LISTING}
        for _ in range(3):
            number += 1
            yield "listing.change_price", {"listing_id": f"{run}-{number % LISTED}", "price": 50_000 + number}


def observations(run: str) -> Iterator[Command]:
    """Page views of the properties of `run`."""
    number = 0
    while True:
        number += 1
        data = {"listing_id": f"{run}-{number % LISTED}", "came_from": "search"}
        yield "listing_viewed", {"id": uuid.uuid4().hex, "source": f"site-{number % 8}", "data": data}


async def one_by_one(client: Client, path: str, some: Iterator[Command], rate: float, seconds: float) -> int:
    """A request for each, at a steady rate, whether or not earlier ones were answered; returns how many."""
    number = round(rate * seconds)
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        start = time.perf_counter()
        for at, (type_name, body) in enumerate(islice(some, number)):
            await asyncio.sleep(max(0.0, start + at / rate - time.perf_counter()))
            group.create_task(client.post(f"/{path}/{type_name}", orjson.dumps(body), "application/json"))
    return number


async def in_lines(client: Client, some: Iterator[Command], rate: float, seconds: float) -> int:
    """A request per second (or per command, if these are fewer) as NDJSON; returns how many commands."""
    each = max(1, round(rate))
    number = round(rate * seconds) // each
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        start = time.perf_counter()
        for at in range(number):
            await asyncio.sleep(max(0.0, start + at * each / rate - time.perf_counter()))
            lines = (orjson.dumps({"type": name, "body": body}) for name, body in islice(some, each))
            group.create_task(_lines(client, b"\n".join(lines)))
    return number * each


async def at_once(client: Client, some: Iterator[Command], number: int) -> int:
    """CLIENTS requests of CHUNK_LINES at a time, as fast as they are answered; returns how many commands."""
    left = number

    async def one_after_the_other() -> None:
        nonlocal left
        while left > 0:
            lines = list(islice(some, min(left, CHUNK_LINES)))
            left -= len(lines)
            await _lines(client, b"\n".join(orjson.dumps({"type": name, "body": body}) for name, body in lines))

    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(one_after_the_other())
    return number


async def _lines(client: Client, content: bytes) -> None:
    answers = await client.post("/commands", content, "application/x-ndjson")
    if wrong := [line for line in answers.splitlines() if orjson.loads(line)["status"] != 201]:
        raise Refused(wrong[0].decode())


async def load(client: Client, how: str, run: str, first: int, rate: float, seconds: float) -> int:
    """Send as `how` says: list the properties of `run` (`prepare`), or some at a steady rate; returns how many.

    `full` sends `rate * seconds` commands, as fast as they are answered. Closes the client.
    """
    try:
        match how:
            case "prepare":
                listed = [("listing.list_property", {"listing_id": f"{run}-{n}", **LISTING}) for n in range(LISTED)]
                return await in_lines(client, iter(listed), LISTED, 1)
            case "ndjson":
                return await in_lines(client, commands(run, first), rate, seconds)
            case "full":
                return await at_once(client, commands(run, first), round(rate * seconds))
            case "observations":
                return await one_by_one(client, how, observations(run), rate, seconds)
        return await one_by_one(client, "commands", commands(run, first), rate, seconds)
    finally:
        client.close()


if __name__ == "__main__":
    url_, how_, run_, first_, rate_, seconds_ = sys.argv[1:]
    client_ = Client(url_)
    number_ = asyncio.run(load(client_, how_, run_, int(first_), float(rate_), float(seconds_)))
    took_ = sorted(client_.took_ms)
    p50_, p99_ = (round(took_[int(len(took_) * share)], 2) for share in (0.5, 0.99))
    print(orjson.dumps({"sent": number_, "p50_ms": p50_, "p99_ms": p99_}).decode())
