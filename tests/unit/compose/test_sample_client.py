"""The client of samples sends many commands as NDJSON, and notices each that is not accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import orjson
import pytest

from headwater.compose.errors import ComposeError
from headwater.compose.samples.sample import LINES, Client, Request

Answering = Callable[[httpx.Request], httpx.Response]


def accepted(number: int, command: dict[str, Any]) -> dict[str, Any]:
    receipt = {"events": [{"position": f"{number % 3}:{number}"}]}
    return {"line": number, "id": command.get("id", "new"), "status": 201, "accepted": receipt}


def answer_lines(asked: list[dict[str, Any]]) -> Answering:
    """The API: it decides the lines, in another order."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/observations/seen":
            return httpx.Response(201, json={"position": "observations/1:7"})
        commands = [orjson.loads(line) for line in request.content.splitlines()]
        asked.extend(commands)
        answers = [orjson.dumps(accepted(at, command)) for at, command in enumerate(commands, 1)]
        return httpx.Response(200, content=b"\n".join(reversed(answers)))

    return answer


def send(answering: Answering, requests: Sequence[Request], ids: Sequence[str] = ()) -> Client:
    async def main() -> Client:
        async with httpx.AsyncClient(base_url="http://api", transport=httpx.MockTransport(answering)) as http:
            client = Client(http)
            await client.send_all(requests, ids)
            return client

    return asyncio.run(main())


def test_many_commands_are_few_requests_with_an_id_for_each() -> None:
    asked = list[dict[str, Any]]()
    requests = [Request("listing.sell", {"listing_id": f"L{number}"}) for number in range(LINES + 1)]
    client = send(answer_lines(asked), requests, [f"id-{number}" for number in range(LINES + 1)])
    assert (client.sent, len(asked)) == (LINES + 1, LINES + 1)
    assert sorted((event["id"], event["body"]["listing_id"]) for event in asked) == sorted(
        (f"id-{number}", f"L{number}") for number in range(LINES + 1)
    )
    assert client.positions == {"0": 498, "1": 499, "2": 500}


def test_observations_among_them_leave_their_positions() -> None:
    client = send(answer_lines([]), [Request("listing.sell", {}), Request("seen", {}, is_observation=True)])
    assert (client.sent, client.positions) == (2, {"1": 1, "observations/1": 7})


def refuse(request: httpx.Request) -> httpx.Response:
    first, second = (orjson.loads(line) for line in request.content.splitlines())
    wrong = {"line": 2, "id": "x", "status": 422, "problem": {"code": "sold", "of": second["body"]}}
    return httpx.Response(200, content=orjson.dumps(wrong) + b"\n" + orjson.dumps(accepted(1, first)))


def answer_one(request: httpx.Request) -> httpx.Response:
    first = orjson.loads(request.content.splitlines()[0])
    return httpx.Response(200, content=orjson.dumps(accepted(1, first)))


@pytest.mark.parametrize(
    ("answering", "text"),
    [
        (refuse, '"listing_id":"b".*sold'),
        (answer_one, "2 commands were answered 200"),
        (lambda _: httpx.Response(503, text="no log"), "answered 503: no log"),
    ],
)
def test_a_command_that_is_not_accepted_is_an_error(answering: Answering, text: str) -> None:
    requests = [Request("listing.sell", {"listing_id": "a"}), Request("listing.sell", {"listing_id": "b"})]
    with pytest.raises(ComposeError, match=text):
        send(answering, requests)
