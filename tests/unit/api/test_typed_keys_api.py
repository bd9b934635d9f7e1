"""Views whose key is an integer or a date, over HTTP: paths, the order of rows, pages and `after`."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.projections.kinds import table_view
from headwater.projections.reading.reader import fold
from tests.support.numbered import NUMBERS, issued, sources
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import FakeService, fake_service

DAYS = ("2026-03-10", "2026-03-09", "0001-01-01", "9999-12-31")
GIVEN = sources([issued(number) for number in NUMBERS] + [issued(10, 5, day=day) for day in DAYS])


@pytest.fixture
def service() -> FakeService:
    made = fake_service(modules=["tests.support.numbered"])
    for name in ("numbers", "days"):
        rows = fold(table_view(made.views[name]), GIVEN)
        for reader in made.readers.values():
            reader.rows[name] = rows
    return made


@pytest.fixture
def client(service: FakeService) -> AppClient:
    from headwater.api.app import create_app

    return AppClient(create_app(service))


def paged(client: AppClient, path: str, column: str) -> list[Any]:
    found: list[Any] = []
    following: str | None = path
    while following is not None:
        page = client.get(following).json()
        found += [row[column] for row in page["rows"]]
        following = page["links"].get("next")
    return found


@pytest.mark.parametrize("number", NUMBERS)
def test_a_row_by_its_number(client: AppClient, number: int) -> None:
    row = client.get(f"/views/numbers/{number}").json()
    assert (row["key"], row["number"]) == (str(number), number)
    assert client.get(f"/views/numbers/rows?key={number}").json()["rows"] == [row]


@pytest.mark.parametrize("key", ["010", "+10", "10.0", "1e1", "-0", " 10", "ten", str(2**63)])
def test_another_text_of_a_number_is_no_row(client: AppClient, key: str) -> None:
    assert client.get("/views/numbers/rows", params={"key": key}).json()["rows"] == [None]
    assert client.get(f"/views/numbers/{key}").status_code == 404


def test_rows_are_listed_in_the_order_of_numbers_and_days(client: AppClient) -> None:
    assert paged(client, "/views/numbers?limit=2", "number") == sorted(NUMBERS)
    assert paged(client, "/views/numbers?limit=3&sort=-number", "number") == sorted(NUMBERS, reverse=True)
    assert paged(client, "/views/numbers?limit=3&sort=key", "key") == sorted(map(str, NUMBERS))
    assert paged(client, "/views/numbers?number.gte=9&number.lt=100", "number") == [9, 10]
    assert paged(client, "/views/days?limit=1", "day") == sorted({*DAYS, "2026-03-01"})


def test_a_row_of_an_awaited_event_is_known_by_its_key(service: FakeService, client: AppClient) -> None:
    at = GIVEN[0]
    service.events.events[at.position] = at.envelope
    missing = client.get(f"/views/numbers/10?after={at.position}&wait_ms=0")
    assert missing.json()["type"] == "urn:headwater:problem:not_caught_up"
    for reader in service.readers.values():
        reader.guards_of["10"] = {str(at.position.partition): at.position.offset}
        reader.applied = {partition: {str(at.position.partition): at.position.offset} for partition in range(4)}
    assert client.get(f"/views/numbers/10?after={at.position}&wait_ms=0").json()["number"] == 10


def test_the_document_has_both_columns(client: AppClient) -> None:
    columns = client.get("/openapi.json").json()["components"]["schemas"]["numbers.row"]["properties"]
    assert columns["key"] == {"type": "string"}
    assert columns["number"]["anyOf"][0]["type"] == "integer"
