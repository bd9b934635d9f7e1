"""What the README shows works as it stands there."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from commands.declaring.aggregate import Aggregate
from compose.to_try import TO_TRY, TO_TRY_ALWAYS
from projections.registry import ViewRegistry
from projections.table.view import TableView
from tests.acceptance.conftest import Service

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_the_python_samples_declare_an_aggregate_and_a_view() -> None:
    names: dict[str, object] = {"__name__": "readme"}
    declared = [block for block in blocks("python") if "open_blocking_client" not in block]
    assert len(declared) == 2
    exec(compile("\n".join(declared), "README.md", "exec"), names)  # noqa: S102 - our own text
    account, owners, accounts = names["account"], names["owners"], names["accounts"]
    assert isinstance(account, Aggregate)
    assert isinstance(owners, TableView)
    assert isinstance(accounts, TableView)
    assert set(ViewRegistry([("readme", owners), ("readme", accounts)]).views) == {"owners", "accounts"}
    opening = account.commands["account.open"].model_validate({"account_id": "a", "owner": "Ada"})
    opened = account.decide(opening, account.initial)
    assert [event.type for event in opened] == ["account.opened"]


def test_the_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"\bmake (\w+)", README)) - {"NAME"}:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"README names `make {target}`"


@pytest.fixture
def toured(http: httpx.Client) -> None:
    """The listing that the tour is about."""
    listed = http.post(
        "/commands/listing.list_property",
        json={
            "listing_id": "sacramento-1",
            "city": "Sacramento",
            "zip": "95838",
            "property_type": "Condo",
            "beds": 2,
            "baths": 1,
            "square_feet": 836,
            "price": 59222,
            "latitude": 38.63,
            "longitude": -121.43,
        },
        headers={"Idempotency-Key": "readme-lists"},
    )
    assert listed.status_code == 201, listed.text
    after = {"after": listed.json()["position"], "wait_ms": "30000"}
    for view in ("listings", "listing_card", "listing_search", "streams"):
        key = "listing/sacramento-1/1" if view == "streams" else "sacramento-1"
        http.get(f"/views/{view}/{key}", params=after).raise_for_status()


@pytest.mark.usefixtures("toured")
def test_the_tour_works_as_written(service: Service) -> None:
    tour = (
        blocks("bash")[1]
        .replace("http://127.0.0.1:18080", service.api)
        .replace(".venv/bin/replay", str(Path(sys.executable).with_name("replay")))
    )
    lines = [line for line in tour.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")]
    assert len(lines) > 5
    for line in lines:
        words = shlex.split(line)
        if words[0] == "curl":
            words[1:1] = ["--fail"]
        done = subprocess.run(words, env=service.environment, capture_output=True, text=True, timeout=600, cwd=ROOT)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


@pytest.mark.usefixtures("toured")
def test_what_make_run_says_to_try_works(service: Service) -> None:
    """But for the rebuild, which the tour does, and for following the logs, which has no end."""
    tried, listed = 0, (*TO_TRY["listings"], *TO_TRY_ALWAYS)
    for _, command in listed:
        words = shlex.split(command.format(api=service.api, bin=Path(sys.executable).parent, view="listings"))
        if words[0] == "curl":
            words[1:1] = ["--fail"]
        elif words[-1] != "status":
            continue
        done = subprocess.run(words, env=service.environment, capture_output=True, text=True, timeout=600, cwd=ROOT)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        tried += 1
    assert tried == len(listed) - 2


@pytest.mark.usefixtures("toured")
def test_many_commands_over_http(service: Service) -> None:
    (block,) = (block for block in blocks("bash") if "application/x-ndjson" in block)
    script = block.replace("http://127.0.0.1:18080", service.api)
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=600)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["status"] for answer in answers] == [201, 201], done.stdout + done.stderr


@pytest.mark.usefixtures("toured")
def test_the_python_client(http: httpx.Client, service: Service) -> None:
    (block,) = (block for block in blocks("python") if "open_blocking_client" in block)
    done = subprocess.run(
        [sys.executable, "-c", block], env=service.environment, capture_output=True, text=True, timeout=600, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    row = http.get(done.stdout.splitlines()[-1])
    assert (row.status_code, row.json()["price"]) == (200, 63099)
