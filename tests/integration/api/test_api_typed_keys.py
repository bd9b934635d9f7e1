"""Views whose key is an integer or a date, in each real store, read over HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import psycopg
import pytest
from psycopg import sql

from headwater.projections.kinds import table_view
from headwater.projections.reading import reader
from headwater.projections.stores.names import table_name
from headwater.projections.stores.store import Target
from tests.integration.api.api_deployment import Deployment, serving
from tests.integration.api.api_rows import every_row, load_view, make_visible
from tests.support.numbered import NUMBERS, issued, sources
from tests.support.table_views import table_views

MODULE = "tests.support.numbered"
GIVEN = sources(
    [issued(number, cents=at % 3) for at, number in enumerate(NUMBERS)]
    + [issued(7, 5, day=day) for day in ("2026-03-10", "2026-03-09", "0001-01-01", "9999-12-31")]
    + [{"from_number": -10, "to_number": 9, "cents": 4}]
)
VIEWS = {name: view for name, view in table_views([MODULE]).items() if name in ("numbers", "days", "balances")}


@pytest.fixture(scope="module")
def modules() -> Sequence[str]:
    return [MODULE]


@pytest.fixture(scope="module")
def targets(deployment: Deployment) -> dict[str, Target]:
    return {name: load_view(deployment, view, GIVEN) for name, view in VIEWS.items()}


@pytest.fixture(scope="module")
def api(deployment: Deployment, targets: dict[str, Target]) -> Iterator[httpx.Client]:
    assert targets
    with serving(deployment) as client:
        yield client


def folded(name: str) -> dict[str, dict[str, Any]]:
    return reader.fold(table_view(VIEWS[name]), GIVEN)


@pytest.mark.parametrize("name", VIEWS)
def test_every_row_by_its_key(api: httpx.Client, name: str) -> None:
    rows = folded(name)
    assert {key: api.get(f"/views/{name}/{key}").json() for key in rows} == rows
    assert api.get(f"/views/{name}/rows", params={"key": [*rows, "007"]}).json()["rows"] == [*rows.values(), None]
    assert api.get(f"/views/{name}/007").status_code == 404


def test_pages_are_in_the_order_of_numbers_and_of_days(
    api: httpx.Client, deployment: Deployment, targets: dict[str, Target]
) -> None:
    assert [row["number"] for row in every_row(api, "/views/numbers?limit=2")] == sorted({*NUMBERS, 7})
    assert [row["number"] for row in every_row(api, "/views/numbers?limit=3&sort=-number")] == sorted(
        {*NUMBERS, 7}, reverse=True
    )
    make_visible(deployment, targets["days"])
    assert [row["day"] for row in every_row(api, "/views/days?limit=1")] == sorted(folded("days"))
    assert [row["number"] for row in every_row(api, "/views/numbers?number.gte=9&number.lt=100")] == [9, 10]


def test_a_ranking_by_the_number(api: httpx.Client) -> None:
    page = api.get("/views/numbers?sort=number&limit=3").json()
    assert [row["number"] for row in page["rows"]] == sorted(NUMBERS)[:3]


def test_postgresql_has_an_index_for_the_order(deployment: Deployment, targets: dict[str, Target]) -> None:
    statement = "SELECT indexdef FROM pg_indexes WHERE schemaname = %s AND tablename = %s"
    names = deployment.stores.environment, table_name(*targets["numbers"].id)
    with psycopg.connect(deployment.stores.postgres) as connection:
        found = [text for (text,) in connection.execute(sql.SQL(statement), names)]
    assert any(text.endswith("(number)") for text in found), found
