"""Bench `guard`: what known callers cost, with and without: commands, many commands, reads, and a flood of tokens.

The rows that are read are those of a view with `readable_by`, which an open API does not apply.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from headwater.api.guard.keys import new_key, now, write_keys
from headwater.compose.ports import free_port
from headwater.projections import service as projections
from headwater.projections.registry import ViewRegistry
from tests.bench._deployment import JSON, Deployment, accepted, body, process, quantiles, services
from tests.bench._listing import LISTING
from tests.bench._waiting import eventually
from tests.bench.bulk_http import commands, exchange, probe

NAMES = ("guard",)
ISSUER, AUDIENCE = "https://login.example.com/", "headwater"
ROUNDS, COMMANDS, READS = 5, 200, 400
ROWS = 200
MODULE = "tests.bench._own_listings"
FLOOD, CLIENTS = 10_000, 16
SLOW_S = 2.0
"""How long the issuer takes to answer while tokens with unknown keys arrive."""


def run(name: str) -> Iterator[dict[str, Any]]:
    """Six lines; each compares an open API with a guarded one of the same deployment, in turns."""
    os.environ["HEADWATER_MODULES"] = f"listings,{MODULE}"
    with TemporaryDirectory(prefix="headwater-bench-") as folder, issuing() as (keys_url, sign, delay):
        key, stored = new_key("bench", ["commands:*", "views:*"], now(), None, {"city": str(LISTING["city"])})
        write_keys(Path(folder) / "keys.json", [stored])
        with services("commands", "api") as deployment:
            port = free_port()
            guarded = {
                **deployment.variables,
                "HEADWATER_API_PORT": str(port),
                "HEADWATER_API_KEYS": f"{folder}/keys.json",
                "HEADWATER_API_ISSUER": ISSUER,
                "HEADWATER_API_AUDIENCE": AUDIENCE,
                "HEADWATER_API_JWKS": keys_url,
            }
            with process(["-m", "headwater.api"], guarded, Path(folder) / "api.log"):
                url = f"http://127.0.0.1:{port}"
                eventually(lambda: accepted(deployment.url, uuid.uuid4().hex), "commands are answered", 60)
                eventually(lambda: is_ready(url), "the guarded API is ready", 60)
                callers = {"key": key, "token": sign("key-1")}
                apis: dict[str, tuple[str, dict[str, str]]] = {"open": (deployment.url, {})}
                apis |= {each: (url, {"authorization": f"Bearer {text}"}) for each, text in callers.items()}
                yield compared("command latency", "ms (p50)", COMMANDS, apis, one_command)
                yield compared("read of a receipt", "ms (p50)", READS, apis, one_read(apis))
                row, page = own_rows(deployment)
                yield compared("read of a row with readable_by", "ms (p50)", READS, apis, row)
                yield compared("read of a page of rows with readable_by", "ms (p50)", READS, apis, page)
                yield many(apis)
                delay.set()
                yield flood(url, sign)


def is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health/live").is_success
    except httpx.TransportError:
        return False


def compared(what: str, unit: str, times: int, apis: Mapping[str, Any], request: Any) -> dict[str, Any]:
    """The median of each, in rounds one after another; the first one warms up."""
    took_ms: dict[str, list[float]] = {each: [] for each in apis}
    with httpx.Client(timeout=30) as client:
        for number in range(ROUNDS + 1):
            for each, (url, headers) in apis.items():
                for _ in range(times):
                    began = time.perf_counter()
                    request(client, url, headers)
                    if number:
                        took_ms[each].append((time.perf_counter() - began) * 1000)
    found = {each: round(statistics.median(some), 3) for each, some in took_ms.items()}
    return {
        "value": found["token"],
        "unit": unit,
        "floor": found["open"],
        "ratio": round(found["token"] / found["open"], 3),
        "ratio_key": round(found["key"] / found["open"], 3),
        "difference_ms": round(found["token"] - found["open"], 3),
        "conditions": f"{what}: {ROUNDS} rounds of {times} one after another; with a token (ES256) and without",
    }


def one_command(client: httpx.Client, url: str, headers: Mapping[str, str]) -> None:
    content = body(uuid.uuid4().hex)
    client.post(
        f"{url}/commands/listing.list_property", content=content, headers={**JSON, **headers}
    ).raise_for_status()


def one_read(apis: Mapping[str, Any]) -> Any:
    command_id = uuid.uuid4().hex
    url, _ = apis["open"]
    headers = {**JSON, "idempotency-key": command_id}
    sent = httpx.post(f"{url}/commands/listing.list_property", content=body(command_id), headers=headers, timeout=30)
    sent.raise_for_status()

    def read(client: httpx.Client, url: str, headers: Mapping[str, str]) -> None:
        client.get(f"{url}/receipts/{command_id}?stream=listing/{command_id}", headers=headers).raise_for_status()

    return read


def own_rows(deployment: Deployment) -> tuple[Any, Any]:
    """Reads one row, and a page of them."""
    keys = [uuid.uuid4().hex for _ in range(ROWS)]
    for key in keys:
        eventually(partial(accepted, deployment.url, key), "a property is listed", 60)
    views = ViewRegistry.load([MODULE, "listings"])
    only = ViewRegistry([(MODULE, views.view("bench_own_listings"))])
    projections.Service(deployment.log, deployment.stores, only).build_missing()

    def row(client: httpx.Client, url: str, headers: Mapping[str, str]) -> None:
        client.get(f"{url}/views/bench_own_listings/{keys[0]}", headers=headers).raise_for_status()

    def page(client: httpx.Client, url: str, headers: Mapping[str, str]) -> None:
        client.get(f"{url}/views/bench_own_listings?limit=20", headers=headers).raise_for_status()

    return row, page


def many(apis: Mapping[str, Any]) -> dict[str, Any]:
    """Commands per second in one request, one client at a time."""
    rates: dict[str, list[float]] = {each: [] for each in apis}
    for number in range(ROUNDS + 1):
        for each, (url, headers) in apis.items():
            chunks = commands()
            began = time.perf_counter()
            statuses = exchange(url, chunks, headers)
            if set(statuses) != {201}:
                raise ValueError(f"not every command was accepted: {dict(statuses)}")
            if number:
                rates[each].append(statuses.total() / (time.perf_counter() - began))
    found = {each: statistics.median(some) for each, some in rates.items()}
    return {
        "value": round(found["token"], 1),
        "unit": "commands/s",
        "floor": round(found["open"], 1),
        "ratio": round(found["open"] / found["token"], 3),
        "ratio_key": round(found["open"] / found["key"], 3),
        "conditions": f"POST /commands, one client, {ROUNDS} rounds; with a token (ES256) and without",
    }


def flood(url: str, sign: Any) -> dict[str, Any]:
    """How long `/health/live` takes while tokens with unknown keys arrive, and the issuer is slow."""
    texts, took_ms = [sign(f"unknown-{number}") for number in range(FLOOD)], list[float]()

    async def attack() -> float:
        probing = asyncio.create_task(probe(url, took_ms))
        began = time.perf_counter()
        # in a process of its own: its threads would hold up those that measure
        words = [sys.executable, "-m", "tests.bench.guard", url]
        client = await asyncio.create_subprocess_exec(*words, stdin=subprocess.PIPE)
        try:
            await client.communicate("\n".join(texts).encode())
        finally:
            probing.cancel()
        if client.returncode != 0:
            raise ValueError("a token with an unknown key was not refused")
        return time.perf_counter() - began

    seconds = asyncio.run(attack())
    live = quantiles(took_ms)
    return {
        "value": live["p99_ms"],
        "unit": "ms (p99 of /health/live)",
        "max_ms": round(max(took_ms), 2),
        "refused_per_s": round(FLOOD / seconds, 1),
        "conditions": f"{FLOOD} requests with tokens of unknown keys, {CLIENTS} clients; the issuer takes {SLOW_S:g} s",
    }


def send_all(url: str, texts: list[str]) -> None:
    """Some clients share the texts; raises ValueError if one is not refused."""

    def some(number: int) -> None:
        with httpx.Client(timeout=60) as client:
            for text in texts[number::CLIENTS]:
                answer = client.get(f"{url}/views", headers={"authorization": f"Bearer {text}"})
                if answer.status_code != 401:
                    raise ValueError(f"an unknown key was answered {answer.status_code}")

    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(some, range(CLIENTS)))


@contextmanager
def issuing() -> Iterator[tuple[str, Any, threading.Event]]:
    """The URL of an issuer's keys, what signs a token with a key id, and what makes the issuer slow once it is set."""
    private, delay = ec.generate_private_key(ec.SECP256R1()), threading.Event()
    public: dict[str, Any] = json.loads(ECAlgorithm.to_jwk(private.public_key()))
    document = json.dumps({"keys": [{**public, "kid": "key-1", "use": "sig"}]}).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if delay.is_set():
                time.sleep(SLOW_S)
            self.send_response(200)
            self.send_header("content-length", str(len(document)))
            self.end_headers()
            self.wfile.write(document)

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    def sign(key_id: str) -> str:
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": "user-1",
            "exp": int(time.time()) + 3_600,
            "scope": "commands:* views:*",
            "city": LISTING["city"],
        }
        return jwt.encode(claims, private, "ES256", {"kid": key_id})

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/keys", sign, delay
    finally:
        server.shutdown()
        server.server_close()
        serving.join()


if __name__ == "__main__":
    send_all(sys.argv[1], sys.stdin.read().splitlines())
