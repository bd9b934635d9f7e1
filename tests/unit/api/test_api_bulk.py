"""Many commands as NDJSON: answers in order of completion, wrong lines beside right ones, slow and vanished clients."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
from starlette.requests import ClientDisconnect

from headwater.api.app import create_app
from headwater.api.limits import Limits
from headwater.api.requests.ndjson import SLICE_BYTES, SLICE_LINES, DuplexResponse, LineSplitter, Write
from headwater.api.service import Service
from headwater.commands.receipt import Receipt, ReceiptError
from headwater.commands.sending.prepared_command import PreparedCommand
from headwater.eventlog.errors import LogUnavailable
from tests.support.settled import settled
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import FakeGateway, FakeService, fake_service, receipt

NDJSON = {"content-type": "application/x-ndjson"}


def sell(listing_id: str, **more: Any) -> dict[str, Any]:
    return {"type": "listing.sell", "body": {"listing_id": listing_id, "sold_for": 1}, **more}


def ndjson(*lines: Any) -> bytes:
    return b"".join(line if isinstance(line, bytes) else orjson.dumps(line) + b"\n" for line in lines)


def answers(client: AppClient, content: bytes, **headers: str) -> dict[int, dict[str, Any]]:
    answer = client.post("/commands", content=content, headers=NDJSON | headers)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-ndjson")
    found = [orjson.loads(line) for line in answer.content.splitlines()]
    assert len({line["line"] for line in found}) == len(found)
    return {line["line"]: line for line in found}


def test_each_line_is_answered(client: AppClient, service: FakeService) -> None:
    found = answers(client, ndjson(sell("L1", id="k-1"), sell("L2")))
    assert [found[1]["id"], found[1]["status"]] == ["k-1", 201]
    assert found[1]["accepted"]["events"][0]["position"] == "3:1042"
    assert found[2]["accepted"]["stream"] == "listing/L2"
    assert service.gateway.calls[1]["command_id"] == found[2]["id"]


def test_options_of_a_line_and_of_all(client: AppClient, service: FakeService) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    lines = ndjson(
        sell("L1", id="k-1", expected_version=7, correlation_id="own", causation_id="cause", traceparent=trace),
        sell("L2", id="k-2", traceparent="nonsense"),
    )
    answers(client, lines, **{"X-Correlation-ID": "all", "X-Causation-ID": "why"})
    expected: dict[str, Any] = {"type": "listing.sell", "command_id": "k-1", "expected_version": 7}
    assert service.gateway.calls == [
        expected | {"correlation_id": "own", "causation_id": "cause", "traceparent": trace},
        expected
        | {
            "command_id": "k-2",
            "expected_version": None,
            "correlation_id": "all",
            "causation_id": "why",
            "traceparent": None,
        },
    ]


@pytest.mark.parametrize(
    ("line", "status", "code"),
    [
        (b"{\n", 400, "malformed_json"),
        (b'{"type":"\xff"}\n', 400, "malformed_json"),
        (b"[" * 100_000 + b"\n", 400, "malformed_json"),
        ([1], 422, "malformed_line"),
        (None, 422, "malformed_line"),
        ({"body": {}}, 422, "malformed_line"),
        ({"type": "listing.sell"}, 422, "malformed_line"),
        ({"type": "listing.sell", "body": []}, 422, "malformed_line"),
        (sell("L1", more=1), 422, "malformed_line"),
        (sell("L1", id="a b"), 422, "malformed_line"),
        (sell("L1", id="a\n"), 422, "malformed_line"),
        (sell("L1", id=""), 422, "malformed_line"),
        (sell("L1", expected_version=-1), 422, "malformed_line"),
        (sell("L1", expected_version="1"), 422, "malformed_line"),
        (sell("L1", expected_version=10**18), 422, "malformed_line"),
        ({"type": "listing.burn", "body": {}}, 404, "unknown_command"),
        ({"type": "listing.sell", "body": {"listing_id": "L1"}}, 422, "malformed_command"),
        ({"type": "listing.sell", "body": {"listing_id": "a\0", "sold_for": 1}}, 422, "malformed_command"),
        (b'{"type":"' + b"x" * 600_000 + b'"}\n', 413, "too_large"),
    ],
)
def test_a_wrong_line_does_not_stop_the_others(client: AppClient, line: Any, status: int, code: str) -> None:
    found = answers(client, ndjson(sell("L1"), b"\n  \n", line, sell("L2"))[:-1])
    assert [found[1]["status"], found[5]["status"]] == [201, 201]
    assert [found[4]["status"], found[4]["problem"]["type"]] == [status, f"urn:headwater:problem:{code}"]
    assert found[4]["problem"]["detail"]
    assert set(found) == {1, 4, 5}


def test_refusals_and_bugs_are_answered_on_their_line(client: AppClient, service: FakeService) -> None:
    gateway = service.gateway
    gateway.answer = receipt(outcome="conflict", events=(), error=ReceiptError("wrong_version", "", 3, 7))
    assert answers(client, ndjson(sell("L1")))[1]["problem"]["actual"] == 7
    gateway.error = LogUnavailable("appending", "no broker")
    assert answers(client, ndjson(sell("L1", id="k")))[1] | {"problem": 0} == {
        "line": 1,
        "id": "k",
        "status": 503,
        "problem": 0,
    }
    gateway.error = ZeroDivisionError("oops")
    problem = answers(client, ndjson(sell("L1")))[1]["problem"]
    assert problem["error_id"] in problem["detail"]


@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_nothing_is_answered_with_nothing(client: AppClient, content: bytes) -> None:
    assert answers(client, content) == {}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "application/json"}, 415),
        ({"content-type": "application/x-ndjson; charset=utf-16"}, 415),
        (NDJSON | {"content-encoding": "gzip"}, 415),
        (NDJSON | {"X-Correlation-ID": "a b"}, 422),
    ],
)
def test_a_wrong_request(client: AppClient, headers: dict[str, str], status: int) -> None:
    answer = client.post("/commands", content=ndjson(sell("L1")), headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


def test_lines_are_cut_wherever_the_chunks_are() -> None:
    content = b'{"a":1}\n\n{"b":"\xc3\xa9"}\r\n' + b"x" * 30 + b"\n" + b"y" * 20 + b"\nlast"
    for size in (1, 2, 7, 1000):
        splitter = LineSplitter(limit_bytes=20)
        lines = [line for at in range(0, len(content), size) for line in splitter.feed(content[at : at + size])]
        lines += splitter.end()
        assert [line.number for line in lines] == [1, 3, 4, 5, 6]
        assert [line.content for line in lines] == [b'{"a":1}', b'{"b":"\xc3\xa9"}\r', None, b"y" * 20, b"last"]
        assert lines[2].size_bytes == 30
        assert splitter.end() == []


@dataclass
class HeldGateway(FakeGateway):
    """Answers when it is told to; counts what was submitted."""

    released: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: int = 0

    async def decide(self, command: PreparedCommand) -> Receipt:
        self.waiting += 1
        try:
            await self.released.wait()
        finally:
            self.waiting -= 1
        return receipt(command_id=command.command_id)


class Wire:
    """The two ends of a connection as ASGI has them: `sent` chunks wait to be received, answers wait to be read."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self.chunks = chunks
        self.read = asyncio.Event()
        self.answer = b""

    async def receive(self) -> dict[str, Any]:
        try:
            return {"type": "http.request", "body": await anext(self.chunks), "more_body": True}
        except StopAsyncIteration:
            return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.read.wait()
        self.answer += message.get("body", b"")

    async def call(self, service: Service) -> None:
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "path": "/commands",
            "query_string": b"",
            "headers": [(b"content-type", b"application/x-ndjson")],
        }
        await create_app(service)(scope, self.receive, self.send)


def held(**limits: Any) -> tuple[Service, HeldGateway]:
    service = fake_service(Limits(**limits))
    gateway = HeldGateway(service.commands)
    object.__setattr__(service, "gateway", gateway)
    return service, gateway


def test_a_slow_reader_slows_the_reading_of_the_request() -> None:
    async def scenario() -> None:
        service, gateway = held(in_flight=3)
        taken = 0

        async def chunks() -> AsyncIterator[bytes]:
            nonlocal taken
            for taken in range(1, 21):
                yield ndjson(sell(f"L{taken}"))

        wire = Wire(chunks())
        call = asyncio.create_task(wire.call(service))
        await settled()
        assert (gateway.waiting, taken) == (3, 4)  # one was read, and waits for its turn
        gateway.released.set()
        await settled()
        assert (gateway.waiting, taken) == (0, 4)  # decided, but the answers are not read
        wire.read.set()
        await call
        assert taken == 20
        assert wire.answer.count(b"\n") <= 20

    asyncio.run(scenario())


def test_large_commands_of_all_requests_wait_for_each_other() -> None:
    async def scenario() -> None:
        service, gateway = held(in_flight_bytes=1)

        async def chunks() -> AsyncIterator[bytes]:
            yield ndjson(*(sell("L1") for _ in range(5)))

        wire = WholeWire(chunks())
        wire.read.set()
        call = asyncio.create_task(wire.call(service))
        await settled()
        assert gateway.waiting == 1
        gateway.released.set()
        await call
        assert wire.answer.count(b"\n") == 5
        assert service.in_flight._free_bytes == 1

    asyncio.run(scenario())


def test_a_client_that_goes_away_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        service, gateway = held()

        async def chunks() -> AsyncIterator[bytes]:
            yield ndjson(sell("L1"), sell("L2")) + orjson.dumps(sell("L3"))  # the third breaks off

        wire = Wire(chunks())
        wire.read.set()
        before = len(asyncio.all_tasks())
        await wire.call(service)
        assert gateway.waiting == 0
        assert len(asyncio.all_tasks()) == before

    asyncio.run(scenario())


def test_a_client_that_goes_away_after_its_last_answer_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def scenario() -> None:
        service, gateway = held()
        gateway.released.set()

        async def chunks() -> AsyncIterator[bytes]:
            yield ndjson(sell("L1"))
            await settled()

        wire = Wire(chunks())
        wire.read.set()
        await wire.call(service)
        assert wire.answer.count(b"\n") == 1

    asyncio.run(scenario())
    assert "the client disconnected" in caplog.text


def test_an_exchange_that_never_starts_to_answer_is_still_an_answer() -> None:
    async def scenario() -> list[str]:
        async def gone(write: Write) -> None:
            raise ClientDisconnect

        async def quiet(write: Write) -> None:
            return

        sent: list[str] = []

        async def send(message: Any) -> None:
            sent.append(message["type"])

        for exchange in (gone, quiet):
            await DuplexResponse(exchange)({"type": "http", "path": "/"}, None, send)  # type: ignore[arg-type]
        return sent

    assert asyncio.run(scenario()) == ["http.response.start", "http.response.body"]


class WholeWire(Wire):
    """One whose body comes to its end."""

    async def receive(self) -> dict[str, Any]:
        message = await super().receive()
        ended = message["type"] == "http.disconnect"
        return {"type": "http.request", "body": b"", "more_body": False} if ended else message


@dataclass
class CountingGateway(HeldGateway):
    """Also notes in which turn of the loop each command was submitted."""

    turn: int = 0
    turns: list[int] = field(default_factory=list)
    most: int = 0

    def send(self, commands: Sequence[PreparedCommand]) -> list[asyncio.Task[Receipt]]:
        self.turns += [self.turn] * len(commands)
        return super().send(commands)

    async def decide(self, command: PreparedCommand) -> Receipt:
        self.most = max(self.most, self.waiting + 1)
        return await super().decide(command)


def counted(**limits: Any) -> tuple[Service, CountingGateway]:
    service = fake_service(Limits(**limits))
    gateway = CountingGateway(service.commands)
    object.__setattr__(service, "gateway", gateway)
    return service, gateway


async def send_at_once(service: Service, gateway: CountingGateway, clients: int, lines: int) -> list[WholeWire]:
    """Some clients send all their lines in one chunk; every turn of the loop is counted."""

    async def chunks(name: int) -> AsyncIterator[bytes]:
        yield ndjson(*(sell(f"L{name}-{number}") for number in range(lines)))

    wires = [WholeWire(chunks(name)) for name in range(clients)]
    calls = [asyncio.create_task(wire.call(service)) for wire in wires]
    for wire in wires:
        wire.read.set()
    while not all(call.done() for call in calls):
        gateway.turn += 1
        if gateway.turn == 1_000:  # whatever can be submitted has been
            gateway.released.set()
        await asyncio.sleep(0)
    return wires


def test_however_much_is_sent_little_is_begun_in_a_turn_of_the_loop() -> None:
    async def scenario() -> None:
        service, gateway = counted()
        gateway.released.set()
        wires = await send_at_once(service, gateway, clients=5, lines=400)
        assert [wire.answer.count(b"\n") for wire in wires] == [400] * 5
        assert max(Counter(gateway.turns).values()) <= SLICE_LINES

    asyncio.run(scenario())


def test_commands_of_all_clients_wait_within_one_bound() -> None:
    async def scenario() -> None:
        service, gateway = counted(in_flight=100, in_flight_in_all=150)
        wires = await send_at_once(service, gateway, clients=3, lines=100)
        assert [wire.answer.count(b"\n") for wire in wires] == [100] * 3
        assert gateway.most == 150

    asyncio.run(scenario())


def test_a_flood_of_blank_lines_is_read_in_turns_too() -> None:
    async def scenario() -> int:
        service, gateway = counted()

        async def chunks() -> AsyncIterator[bytes]:
            yield b"\n" * 64 * SLICE_BYTES + ndjson(sell("L1"))

        wire = WholeWire(chunks())
        wire.read.set()
        gateway.released.set()
        call = asyncio.create_task(wire.call(service))
        while not call.done():
            gateway.turn += 1
            await asyncio.sleep(0)
        assert orjson.loads(wire.answer)["line"] == 64 * SLICE_BYTES + 1
        return gateway.turn

    assert asyncio.run(scenario()) > 64


def test_a_line_s_problem_points_into_the_line(client: AppClient) -> None:
    found = answers(client, ndjson(sell("L1") | {"body": {"listing_id": "L1", "x": 1}}, sell("L1", more=1)))
    assert sorted(error["pointer"] for error in found[1]["problem"]["errors"]) == ["#/body/sold_for", "#/body/x"]
    assert [error["pointer"] for error in found[2]["problem"]["errors"]] == ["#/more"]
