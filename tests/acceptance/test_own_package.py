"""A package outside the repository adds an aggregate and a view; everything else follows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import psycopg
import pytest

from headwater.compose.settings import Ports, StackSettings
from tests.acceptance.conftest import WAIT_MS, Service

pytestmark = pytest.mark.complete  # the wallet of the README is a package outside the repository, too

ROOT = Path(__file__).parents[2]
WAIT = {"wait_ms": WAIT_MS}


def test_the_api_documents_the_packages_commands_and_view(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    assert "/commands/basket.add_product" in document["paths"]
    body = document["paths"]["/commands/basket.add_product"]["post"]["requestBody"]["content"]["application/json"]
    schema = document["components"]["schemas"][body["schema"]["$ref"].rpartition("/")[2]]
    assert set(schema["properties"]) == {"basket_id", "product", "pieces", "gift"}
    assert "/commands/listing.change_price" in document["paths"], "a sample is there if it is named"
    assert "/commands/payment.receive" not in document["paths"], "and only then"
    assert "product_demand" in {view["name"] for view in http.get("/views").json()["views"]}


def test_its_commands_make_its_view_and_a_rule_says_no(http: httpx.Client) -> None:
    sent = [
        http.post(f"/commands/basket.{command}", json={"basket_id": basket, "product": "tea", "pieces": pieces})
        for command, basket, pieces in (("add_product", "b1", 2), ("add_product", "b2", 3), ("remove_product", "b2", 1))
    ]
    assert [answer.status_code for answer in sent] == [201] * 3, [answer.text for answer in sent]
    positions = ",".join(answer.json()["position"] for answer in sent)
    row = http.get("/views/product_demand/tea", params={"after": positions} | WAIT)
    assert row.status_code == 200, row.text
    assert row.json() == {"product": "tea", "pieces": 4, "put_back": 1}
    basket = http.get("/views/baskets/b2", params={"after": positions} | WAIT).json()
    assert basket == {
        "basket_id": "b2",
        "lines": [{"product": "tea", "pieces": 2, "gift": False}],
        "last_added": "tea",
        "bought_at": None,
        "last_added_in_all_baskets": 4,
    }
    assert http.get("/views/baskets?sort=basket_id&limit=10", params={"after": positions} | WAIT).status_code == 200

    refused = http.post("/commands/basket.remove_product", json={"basket_id": "b1", "product": "milk", "pieces": 1})
    assert (refused.status_code, refused.json()["code"]) == (409, "not_in_basket")


def test_its_view_shows_what_it_looks_up_in_another_as_it_is_now(http: httpx.Client) -> None:
    def add(basket: str, pieces: int) -> str:
        body = {"basket_id": basket, "product": "salted almonds", "pieces": pieces}
        position: str = http.post("/commands/basket.add_product", json=body).raise_for_status().json()["position"]
        return position

    def in_demand(basket: str, after: str) -> int:
        found: int = http.get(f"/views/baskets/{basket}", params={"after": after} | WAIT).json()[
            "last_added_in_all_baskets"
        ]
        return found

    first = add("b4", 2)
    assert in_demand("b4", first) == 2
    other = add("b5", 3)
    assert [in_demand(basket, other) for basket in ("b4", "b5")] == [5, 5]
    page = http.get("/views/baskets", params={"basket_id": ["b4", "b5"], "fields": "last_added_in_all_baskets"})
    assert page.json()["rows"] == [{"last_added_in_all_baskets": 5}] * 2
    refused = http.get("/views/baskets?sort=-last_added_in_all_baskets")
    assert (refused.status_code, refused.json()["parameter"]) == (422, "sort")
    since = http.get("/views/baskets/changes?for_ms=1").text.partition("id: ")[2].partition("\n")[0]
    assert in_demand("b4", add("b4", 4)) == 9
    told: dict[str, str | int] = {"key": "b4", "from": since, "for_ms": 240_000}
    with http.stream("GET", "/views/baskets/changes", params=told) as changes:
        data = next(line for line in changes.iter_lines() if line.startswith('data: {"key"'))
    assert json.loads(data.removeprefix("data: "))["row"]["last_added_in_all_baskets"] == 9


def test_its_view_is_a_table_and_is_rebuilt(http: httpx.Client, service: Service) -> None:
    def generation() -> int:
        listed = {view["name"]: view for view in http.get("/views").json()["views"]}
        return int(listed["product_demand"]["generation"])

    before = generation()
    added = http.post("/commands/basket.add_product", json={"basket_id": "b3", "product": "salt", "pieces": 7})
    http.get("/views/product_demand/salt", params={"after": added.json()["position"]} | WAIT).raise_for_status()
    rebuilt = subprocess.run(
        [sys.executable, "-m", "headwater.replay", "rebuild", "product_demand", "--json"],
        env=service.environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert rebuilt.returncode == 0, rebuilt.stderr
    with psycopg.connect(service.environment["HEADWATER_POSTGRES"]) as connection:
        schema = service.environment["HEADWATER_ENVIRONMENT"]
        rows = connection.execute(f"SELECT pieces FROM {schema}.product_demand WHERE product = 'salt'").fetchall()
    assert rows == [(7,)]
    (made,) = json.loads(rebuilt.stdout)["views"]
    assert generation() == made["generation"] > before  # not always the next one: `replay verify` takes numbers, too


def test_the_contract_suites_cover_it(shop: Path, stack: StackSettings) -> None:
    """The contract tests are parametrised over the registry, so the package's aggregate and view are among them."""
    ports = {Ports.variable(name): str(port) for name, port in stack.ports.model_dump().items()}
    modules = {"HEADWATER_MODULES": "shop.domain,shop.views", "PYTHONPATH": str(shop)}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/contracts", "-v", "-k", "basket or product_demand"],
        env=os.environ | ports | modules,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1_500,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    passed = [line for line in ran.stdout.splitlines() if "PASSED" in line]
    for name in ("basket", "product_demand"):
        assert any(name in line for line in passed), f"no contract test ran for {name}"


def test_a_module_that_is_not_there_is_named(service: Service) -> None:
    wrong = subprocess.run(
        [sys.executable, "-m", "headwater.replay", "list"],
        env={**service.environment, "HEADWATER_MODULES": "shop.nowhere"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert wrong.returncode != 0
    assert "HEADWATER_MODULES" in wrong.stderr and "shop.nowhere" in wrong.stderr
    assert "Traceback" not in wrong.stderr
