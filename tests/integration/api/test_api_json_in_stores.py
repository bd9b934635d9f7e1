"""Columns of JSON in each real store, read over HTTP: with JSON in place of texts, and every digit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import psycopg
import pytest
from psycopg import sql

from tests.contracts.test_key_stores import MASTER
from tests.integration.api.api_deployment import Deployment, serving
from tests.integration.api.api_rows import every_row, load_view
from tests.support.memory_vault import memory_vault
from tests.support.planned import LONG, STORES, answered, planned, sources
from tests.support.table_views import table_views

MODULE = "tests.support.planned"
GIVEN = [
    planned("P1", people=[], parts=[{"sku": "S2", "sizes": [1, 2.5], "extra": {"n": [-0.0, 1e22]}}]),
    planned("ü/2", rank=2, note="[1", stage="draft", details={"n": 9_223_372_036_854_775_807}, parts=[], people=[]),
    planned("P3", rank=3, note='{"of": ["a", "text"]', stage=None, details={}, people=[]),
]


@pytest.fixture(scope="module")
def modules() -> Sequence[str]:
    return [MODULE]


@pytest.fixture(scope="module")
def api(deployment: Deployment) -> Iterator[httpx.Client]:
    views = {name: view for name, view in table_views([MODULE]).items() if name.startswith("plan")}
    with memory_vault():  # that of production needs a database; no event here names a person
        found = sources(*GIVEN)
    for view in views.values():
        load_view(deployment, view, found)
    keys = {"HEADWATER_KEYS": deployment.stores.postgres, "HEADWATER_MASTER_KEY": MASTER}
    with serving(deployment, **keys) as client:
        yield client


def shown(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in answered(GIVEN[0], opened=True)}


@pytest.mark.parametrize("store", STORES)
def test_rows_by_key_and_pages(api: httpx.Client, store: str) -> None:
    path, wanted = f"/views/plans_in_{store}", [answered(each, opened=True) for each in GIVEN]
    keys = [each["plan_id"] for each in GIVEN]
    found = api.get(f"{path}/rows", params={"key": keys}).json()["rows"]
    assert [shown(row) for row in found] == wanted
    assert [shown(api.get(f"{path}/rows", params={"key": key}).json()["rows"][0]) for key in keys] == wanted
    assert [shown(row) for row in every_row(api, f"{path}?sort=-rank&limit=1")] == wanted[::-1]
    assert f'"n":{LONG}' in api.get(f"{path}/P1").text
    assert api.get(f"{path}/P1").json()["record"]["data"]["details"] == GIVEN[0]["details"]


def test_a_search(api: httpx.Client) -> None:
    page = api.get("/views/plans_in_elasticsearch/search?q=plan&sort=rank").json()
    assert [shown(row) for row in page["rows"]] == [answered(each, opened=True) for each in GIVEN]
    assert page["facets"]["rank"] and page["total"] == len(GIVEN)


def test_looked_up_columns(api: httpx.Client) -> None:
    row = api.get("/views/plan_parts/S2").json()
    assert (row["plan_details"], row["plan_people"]) == (GIVEN[2]["details"], [])
    assert row["plan_story"] == answered(GIVEN[2], opened=True)["story"]


def test_tables_keep_the_texts(api: httpx.Client, deployment: Deployment) -> None:
    table = sql.Identifier(deployment.stores.environment, "plans_in_postgres")
    statement = sql.SQL("SELECT details FROM {} WHERE plan_id = 'P1'").format(table)
    with psycopg.connect(deployment.stores.postgres) as connection:
        ((text,),) = connection.execute(statement).fetchall()
    assert json.loads(text) == GIVEN[0]["details"] and f'"n":{LONG}' in text
