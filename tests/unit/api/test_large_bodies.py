"""Bodies with very many values, wrong ones above all: bounded answers, read outside the event loop."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator

from headwater.api.app import create_app
from headwater.api.limits import Limits
from headwater.api.requests.body import LARGE_BYTES, MAX_LEVELS, Bodies
from headwater.commands.declaring.aggregate import Aggregate, Command, Event
from headwater.commands.declaring.faults import MAX_FAULTS, MAX_PLACE_CHARACTERS
from headwater.commands.declaring.observation import Observation, ObservationRegistry
from headwater.commands.declaring.registry import CommandRegistry
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import FakeService

NDJSON = {"content-type": "application/x-ndjson"}
JSON = {"content-type": "application/json"}
VALUES = Limits.body_values
MAX_ANSWER_BYTES = 64 * 1024
read_by: list[str] = []
"""The names of the threads that read bodies."""


class Item(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    number: int
    text: str


class Placed(Event, type="basket.placed"):
    basket_id: str


class Place(Command, type="basket.place"):
    basket_id: str
    items: tuple[Item, ...] = ()
    by_name: dict[str, list[Item]] = Field(default_factory=dict)

    @field_validator("basket_id")
    @classmethod
    def _read(cls, basket_id: str) -> str:
        read_by.append(threading.current_thread().name)
        if basket_id == "stop":
            raise StopIteration
        return basket_id


class Basket(BaseModel):
    model_config = ConfigDict(frozen=True)


class Weighed(Observation, type="weighed"):
    items: list[Item]


def place(command: Place, state: Basket) -> Sequence[Event]:
    return [Placed(basket_id=command.basket_id)]


def evolve(state: Basket, event: Placed) -> Basket:
    return state


BASKET = Aggregate(name="basket", id_field="basket_id", initial=Basket(), decide=place, evolve=evolve)


@pytest.fixture
def client(service: FakeService) -> AppClient:
    read_by.clear()
    commands, kinds = CommandRegistry([("here", BASKET)]), ObservationRegistry([("here", Weighed)])
    return AppClient(create_app(replace(service, commands=commands, observations=kinds)))


def body(items: str, count: int, start: str = '"basket_id": "a"') -> bytes:
    return f'{{{start}, "items": [{",".join([items] * count)}]}}'.encode()


def report(items: str, count: int) -> bytes:
    return f'{{"id": "1", "source": "scale", "data": {{"items": [{",".join([items] * count)}]}}}}'.encode()


def problems(client: AppClient, command: bytes, observation: bytes) -> list[dict[str, Any]]:
    """The problem of a command and of an observation, alone and on a line."""
    line = b'{"type": "basket.place", "body": ' + command + b"}\n"
    answers = [
        client.post("/commands/basket.place", content=command, headers=JSON),
        client.post("/commands", content=line, headers=NDJSON),
        client.post("/observations/weighed", content=observation, headers=JSON),
        client.post("/observations/weighed", content=observation + b"\n", headers=NDJSON),
    ]
    assert all(len(answer.content) < MAX_ANSWER_BYTES for answer in answers)
    alone, many, reported, several = (orjson.loads(answer.content) for answer in answers)
    return [alone, many["problem"], reported, several["problems"][0]["problem"]]


def test_the_first_faults_of_a_body_are_listed_and_all_are_counted(client: AppClient) -> None:
    count = VALUES - 10
    for problem in problems(client, body("1", count), report("1", count)):
        assert problem["status"] == 422
        assert (len(problem["errors"]), problem["error_count"]) == (MAX_FAULTS, count)
        assert problem["errors"][-1]["pointer"].endswith(f"items/{MAX_FAULTS - 1}")
        assert len(problem["detail"]) < 1_000


@pytest.mark.parametrize("items", ["1", "{}", "[]", "null"])
def test_a_body_with_too_many_values_is_refused_before_it_is_read(client: AppClient, items: str) -> None:
    for problem in problems(client, body(items, VALUES), report(items, VALUES)):
        assert (problem["status"], problem["type"]) == (413, "urn:headwater:problem:too_complex")
        assert problem["limit"] == VALUES
    assert not read_by


def test_commas_in_texts_are_no_values(client: AppClient) -> None:
    content = body('{"number": 1, "text": "%s"}' % ("," * VALUES), 1)
    assert client.post("/commands/basket.place", content=content, headers=JSON).status_code == 201


def test_a_body_with_too_many_levels_is_refused(client: AppClient) -> None:
    deep = "[" * (MAX_LEVELS + 1) + "]" * (MAX_LEVELS + 1)
    for problem in problems(client, body(deep, 1), report(deep, 1)):
        assert (problem["status"], problem["type"]) == (413, "urn:headwater:problem:too_complex")
    flat = ",".join(["[]"] * (MAX_LEVELS + 1))  # as many brackets, side by side
    assert all(problem["status"] == 422 for problem in problems(client, body(flat, 1), report(flat, 1)))


def test_the_names_on_the_way_to_a_fault_are_bounded(client: AppClient) -> None:
    name = "n" * 300_000
    content = orjson.dumps({"basket_id": "a", "by_name": {name: [1] * MAX_FAULTS}})
    answer = client.post("/commands/basket.place", content=content, headers=JSON)
    assert answer.status_code == 422
    assert len(answer.content) < MAX_ANSWER_BYTES
    assert answer.json()["errors"][0]["pointer"] == "#/by_name"
    near = "n" * (MAX_PLACE_CHARACTERS - 20)
    content = orjson.dumps({"basket_id": "a", "by_name": {near: [1]}})
    answer = client.post("/commands/basket.place", content=content, headers=JSON)
    assert answer.json()["errors"][0]["pointer"] == f"#/by_name/{near}/0"


def test_large_bodies_are_read_in_threads_and_small_ones_are_not(client: AppClient) -> None:
    item = '{"number": 1, "text": "t"}'
    large, small = body(item, LARGE_BYTES // len(item) + 1), body(item, 1)
    for content in (large, small):
        line = b'{"type": "basket.place", "body": ' + content + b"}\n"
        assert client.post("/commands/basket.place", content=content, headers=JSON).status_code == 201
        assert orjson.loads(client.post("/commands", content=line, headers=NDJSON).content)["status"] == 201
    here = threading.current_thread().name
    assert [name.startswith("bodies") for name in read_by] == [True, True, False, False]
    assert read_by[2:] == [here, here]


def test_whatever_a_validator_raises_in_a_thread_is_answered(client: AppClient) -> None:
    content = body('{"number": 1, "text": "t"}', LARGE_BYTES // 20, '"basket_id": "stop"')
    assert client.post("/commands/basket.place", content=content, headers=JSON).status_code == 500


def test_the_large_bodies_that_wait_for_a_thread_are_bounded(client: AppClient, service: FakeService) -> None:
    bodies = Bodies()
    bodies._admission._limit = 0  # as if all places were taken
    app = AppClient(create_app(replace(service, commands=CommandRegistry([("here", BASKET)]), bodies=bodies)))
    answer = app.post("/commands/basket.place", content=body(" " * LARGE_BYTES + "1", 1), headers=JSON)
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:headwater:problem:overloaded")
    assert answer.headers["retry-after"] == "1"
    assert app.post("/commands/basket.place", content=body("1", 1), headers=JSON).status_code == 422
