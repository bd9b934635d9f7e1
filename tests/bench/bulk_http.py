"""Benches `bulk_http`: commands through `POST /commands` as NDJSON, and how long `/health/live` takes meanwhile.

`bulk_http_invalid` sends large and invalid bodies instead, as bodies and as lines, and then requests with which one
client could hold up all others.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import orjson
import psutil

from tests.bench._deployment import Deployment, accepted, quantiles, services
from tests.bench._listing import LISTING
from tests.bench._waiting import eventually

NAMES = ("bulk_http", "bulk_http_invalid")
CLIENTS = 4
STREAMS = 5_000
"""Of each client; each is listed and repriced three times."""
CHUNK_LINES = 500
PROBES_A_SECOND = 50
LIMIT_S = 180.0
INVALID_S = 10.0
ATTACK_S = 5.0
BODY_BYTES = 500_000
"""Of each invalid body, a little less than the API takes."""


def run(name: str) -> Iterator[dict[str, Any]]:
    """Its line, and one per attack: some clients send as fast as they can."""
    with services("commands", "api") as deployment:
        eventually(lambda: accepted(deployment.url, uuid.uuid4().hex), "commands are answered", 60)
        took_ms: list[float] = []
        spent = cpu_seconds(deployment)
        sent, seconds = asyncio.run(measure(name, deployment.url, took_ms))
        spent = cpu_seconds(deployment) - spent
        peak_mb = peak_bytes(deployment) / 1e6
        attacks = [] if name == "bulk_http" else [attacked(deployment.url, *each) for each in ATTACKS.items()]
    live = quantiles(took_ms)
    valid = name == "bulk_http"
    yield {
        "value": round(sent / seconds, 1),
        "unit": "commands/s" if valid else "bodies/s",
        "live_p50_ms": live["p50_ms"],
        "live_p99_ms": live["p99_ms"],
        "live_max_ms": round(max(took_ms), 2),
        f"api_cpu_us_per_{'command' if valid else 'body'}": round(spent / sent * 1e6, 1),
        "api_peak_mb": round(peak_mb),
        "conditions": (
            f"{sent} commands of {CLIENTS * STREAMS} listings, {CLIENTS} clients with one request each"
            if valid
            else f"{sent} invalid bodies of {BODY_BYTES // 1000} kB, {CLIENTS} clients: too many values, as many wrong "
            "ones as are allowed, and one large text; alone and on a line"
        )
        + f"; one handler, one API process; /health/live {PROBES_A_SECOND} times a second meanwhile, each on a new "
        "connection",
    }
    yield from attacks


def get(path: str, *headers: str) -> bytes:
    """A request without a body, on a connection of its own."""
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers, "", ""]).encode()


INTEGERS = b'{"listing_id":"L1","sold_for":[' + b",".join([b"9" * 21] * 19_900) + b"]}"
ATTACKS = {
    "none": b"",
    "a quoted cookie of 60 kB": get("/health/live", 'Cookie: headwater_console="' + 60_000 * "\\" + '"'),
    "GET /health/ready": get("/health/ready"),
    "GET /openapi.json": get("/openapi.json"),
    "19,900 integers of 21 digits": b"POST /commands/listing.sell HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(INTEGERS), INTEGERS),
}
"""Requests that need no rows, by what they do."""


def attacked(url: str, what: str, request: bytes) -> dict[str, Any]:
    """The line of an attack: how many requests were answered, and `/health/live` meanwhile."""
    took_ms: list[float] = []
    answered = asyncio.run(attack(url, request, took_ms))
    conditions = f"{what}, {CLIENTS} clients for {ATTACK_S:g} s, each request on a new connection"
    live = quantiles(took_ms)
    value = {"value": round(answered / ATTACK_S, 1), "unit": "requests/s"}
    return {**value, "live_p50_ms": live["p50_ms"], "live_p99_ms": live["p99_ms"], "conditions": conditions}


async def attack(url: str, request: bytes, took_ms: list[float]) -> int:
    """Send a request again and again; empty: only wait. Returns how many were answered."""
    address, ends = urlsplit(url), time.perf_counter() + ATTACK_S

    async def repeat() -> int:
        answered = 0
        while time.perf_counter() < ends:
            if not request:
                await asyncio.sleep(0.1)
                continue
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            writer.write(request)
            await reader.read()
            writer.close()
            answered += 1
        return answered

    probing = asyncio.create_task(probe(url, took_ms))
    try:
        async with asyncio.timeout(LIMIT_S):
            return sum(await asyncio.gather(*(repeat() for _ in range(CLIENTS))))
    finally:
        probing.cancel()


async def measure(name: str, url: str, took_ms: list[float]) -> tuple[int, float]:
    """How much was answered, and the seconds from the first line to the last answer."""
    words = [sys.executable, "-m", "tests.bench.bulk_http", name, url]
    client = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE)
    probing = asyncio.create_task(probe(url, took_ms))
    try:
        async with asyncio.timeout(LIMIT_S):
            written, _ = await client.communicate()
    finally:
        probing.cancel()
        if client.returncode is None:
            client.kill()
    sent, seconds = orjson.loads(written)
    return sent, seconds


async def probe(url: str, took_ms: list[float]) -> None:
    """Ask at a steady rate, whether or not earlier requests were answered; runs until it is cancelled."""

    address = urlsplit(url)
    question = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

    async def ask(due: float) -> None:
        # by hand, for a client library would take more of the two cores than the answer does
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(question)
        answer = await reader.read()
        writer.close()
        if not answer.startswith(b"HTTP/1.1 200"):
            raise ValueError(f"/health/live answered {answer[:100]!r}")
        took_ms.append((time.perf_counter() - due) * 1000)

    async with asyncio.TaskGroup() as group:
        start = time.perf_counter()
        for number in range(int(LIMIT_S * PROBES_A_SECOND)):
            due = start + number / PROBES_A_SECOND
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            group.create_task(ask(due))


def cpu_seconds(deployment: Deployment) -> float:
    """User and system time of the API's process."""
    times = api_process(deployment).cpu_times()
    return float(times.user + times.system)


def peak_bytes(deployment: Deployment) -> int:
    """The most memory that the API's process has had."""
    status = Path(f"/proc/{api_process(deployment).pid}/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def api_process(deployment: Deployment) -> psutil.Process:
    """The one of ours that listens on the API's port."""
    port = urlsplit(deployment.url).port
    for process in psutil.Process().children():
        if any(
            connection.laddr.port == port and connection.status == psutil.CONN_LISTEN
            for connection in process.net_connections()
        ):
            return process
    raise LookupError(f"no process of ours listens on port {port}")


def commands() -> list[bytes]:
    """The body of one client, in chunks of complete lines."""
    name, lines = uuid.uuid4().hex[:12], []
    steps: list[tuple[str, Mapping[str, object]]] = [("list_property", LISTING)]
    steps += [("change_price", {"price": price}) for price in (58_000, 57_000, 56_000)]
    for step, body in steps:
        for number in range(STREAMS):
            command = {"type": f"listing.{step}", "body": {"listing_id": f"{name}-{number}", **body}}
            lines.append(orjson.dumps(command, option=orjson.OPT_APPEND_NEWLINE))
    return [b"".join(lines[at : at + CHUNK_LINES]) for at in range(0, len(lines), CHUNK_LINES)]


def exchange(url: str, chunks: list[bytes], headers: Mapping[str, str] = MappingProxyType({})) -> Counter[int]:
    """Send all chunks in one request while its answers are read; returns how many lines had each status."""
    address = urlsplit(url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=LIMIT_S)
    connection.putrequest("POST", "/commands")
    connection.putheader("Content-Type", "application/x-ndjson")
    connection.putheader("Transfer-Encoding", "chunked")
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()

    def write() -> None:
        for chunk in chunks:
            connection.send(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        connection.send(b"0\r\n\r\n")

    with ThreadPoolExecutor(1) as writing:
        written = writing.submit(write)
        answer = HTTPResponse(connection.sock, method="POST")
        answer.begin()
        statuses = Counter(orjson.loads(line)["status"] for line in answer)
        written.result()
    connection.close()
    return statuses


def send_all(url: str) -> tuple[int, float]:
    """Have every client send; raises ValueError if not every command was accepted."""
    bodies = [commands() for _ in range(CLIENTS)]
    began = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as clients:
        statuses = sum(clients.map(lambda chunks: exchange(url, chunks), bodies), Counter[int]())
    seconds = time.perf_counter() - began
    if set(statuses) != {201}:
        raise ValueError(f"not every command was accepted: {dict(statuses)}")
    return statuses.total(), seconds


def invalid_bodies() -> list[bytes]:
    """Objects that are not `listing.list_property`, of BODY_BYTES each."""
    fields = [f'"f{number}":[{"1," * 20}1]' for number in range(BODY_BYTES // 50)]
    wrong = [f'"{number:04x}{"x" * 20}":0' for number in range(15_000)]
    return [f"{{{','.join(some)}}}".encode() for some in (fields, wrong, [f'"city":"{"x" * BODY_BYTES}"'])]


def send_invalid(url: str) -> tuple[int, float]:
    """Have every client send invalid bodies for INVALID_S; raises ValueError if one was not refused."""
    alone = invalid_bodies()
    lines = [b'{"type":"listing.list_property","body":' + each + b"}\n" for each in alone]
    requests = [("/commands/listing.list_property", "application/json", each) for each in alone]
    requests += [("/commands", "application/x-ndjson", line) for line in lines]
    ends = time.perf_counter() + INVALID_S

    def repeat() -> int:
        answered = 0
        address = urlsplit(url)
        while time.perf_counter() < ends:
            for path, media, content in requests:
                connection = HTTPConnection(address.hostname or "", address.port, timeout=LIMIT_S)
                connection.request("POST", path, content, {"content-type": media})
                answer = connection.getresponse()
                statuses = [orjson.loads(line)["status"] for line in answer.read().splitlines()]
                connection.close()
                if len(statuses) != 1 or statuses[0] not in (413, 422):
                    raise ValueError(f"{path} answered {statuses}")
                answered += 1
        return answered

    began = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as clients:
        answered = sum(each.result() for each in [clients.submit(repeat) for _ in range(CLIENTS)])
    return answered, time.perf_counter() - began


if __name__ == "__main__":
    send = send_all if sys.argv[1] == "bulk_http" else send_invalid
    print(orjson.dumps(send(sys.argv[2])).decode())
