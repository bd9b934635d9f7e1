"""Whatever an aggregate's rules do, its command is answered over HTTP, and so is the next one of the same partition."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx
import orjson
import pytest

from api.app import create_app
from api.service import Service
from commands.declaring.registry import CommandRegistry
from commands.handling.command_task import CommandTask
from commands.handling.ownership import PartitionWorker
from commands.local_state.state import MemoryStore
from commands.sending.gateway import CommandGateway
from eventlog.memory import MemoryLog
from eventlog.ports import HANDLER
from tests.badly_behaved import BAD, BAD_COMMANDS, CODES, wild
from tests.unit.api.fake_service import fake_service

REGISTRY = CommandRegistry([("here", wild)])


@contextmanager
def handled(log: MemoryLog) -> Iterator[None]:
    """A handler of the log's one partition, whose local state is empty at its start."""
    worker = PartitionWorker(log, HANDLER, 0, lambda p: CommandTask(log, REGISTRY, p, MemoryStore()))
    worker.start()
    try:
        yield
    finally:
        worker.stop()
        worker.join()
    worker.check()


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_no_command_stops_its_partition_whatever_its_rules_do() -> None:
    async def scenario(log: MemoryLog, client: httpx.AsyncClient) -> None:
        with handled(log):
            for number, what in enumerate(BAD):
                assert await good_version(client, number, what) == number + 1
        with handled(log):
            for number, what in enumerate(BAD, len(BAD)):
                assert await good_version(client, number, what) == number + 1

    async def play() -> None:
        log = MemoryLog(partitions=1)
        gateway = CommandGateway(log, REGISTRY)
        await gateway.start()
        fake: Service = fake_service()
        app = create_app(replace(fake, gateway=gateway, commands=REGISTRY))
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://headwater") as client:
            await scenario(log, client)
        await gateway.close()

    asyncio.run(play())


async def good_version(client: httpx.AsyncClient, number: int, what: str) -> int:
    """Send a command that cannot be decided, and then a good one; returns the stream's version after both."""
    bad, good = (
        {"type": "wild.do", "body": {"wild_id": "w", "what": each}, "id": f"{number}-{place}"}
        for place, each in enumerate((what, "good"))
    )
    content = orjson.dumps(bad) + b"\n" + orjson.dumps(good)
    answer = await client.post("/commands", content=content, headers={"content-type": "application/x-ndjson"})
    found: dict[int, dict[str, Any]] = {each["line"]: each for each in map(orjson.loads, answer.iter_lines())}
    assert [found[1]["status"], found[2]["status"]] == [500, 201], (what, found)
    assert "error_id" in found[1]["problem"]
    receipt = await client.get(f"/receipts/{number}-0")
    if what in BAD_COMMANDS:  # it was not sent
        assert receipt.status_code == 404
    else:
        assert receipt.json()["error"]["code"] == CODES.get(what, "internal_error")
    version: int = found[2]["accepted"]["version"]
    return version
