"""The README, the tour of a sample, docs/http.md and docs/client.md work as written, and answer what they show."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.commands.declaring.aggregate import Aggregate
from headwater.compose.samples.sample import to_try
from headwater.compose.settings import Ports, StackSettings
from headwater.projections.registry import ViewRegistry
from headwater.projections.table.view import TableView
from headwater.testing import given, rows_of
from tests.acceptance.conftest import WAIT_MS, Service, only_reads, passes_eventually
from tests.support.pages import blocks, section

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
TOUR = section((ROOT / "headwater" / "samples" / "README.md").read_text(), "A tour")
HTTP, CLIENT = (ROOT / "docs" / "http.md").read_text(), (ROOT / "docs" / "client.md").read_text()
STEP = re.compile(r"^```bash\n(.*?)^```(?:\n\n```(json|text)\n(.*?)^```)?", re.MULTILINE | re.DOTALL)


def try_steps(text: str, service: Service, folder: Path = ROOT, **variables: str) -> int:
    """Run each block of commands; the last answer is like the block that follows, if one does. Returns how many ran."""
    steps = STEP.findall(text)
    for script, language, shown in steps:
        step = partial(try_step, script, language, shown, service.environment | variables, service.api, folder)
        if only_reads(script):
            passes_eventually(step)
        else:
            step()
    return len(steps)


def try_step(script: str, language: str, shown: str, variables: dict[str, str], api: str, folder: Path) -> None:
    ran = (
        script.replace("curl -", "curl --fail-with-body -")
        .replace("http://127.0.0.1:18080", api)
        .replace(".venv/bin/replay", shlex.quote(str(Path(sys.executable).with_name("replay"))))
    )
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", ran], env=variables, capture_output=True, text=True, timeout=600, cwd=folder
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    if language == "json":
        check_shape(json.loads(shown), json.loads(done.stdout), script)
    elif language == "text":
        assert without_numbers(shown) == without_numbers(done.stdout)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("# one row\ncurl -sS http://here/views/v/k\ncurl -sSN 'http://here/views/v/changes?for_ms=1'\n", True),
        ("curl -sS http://here/commands/c -H 'content-type: application/json' -d '{}'\n", False),
        ("curl -sS http://here/views/v/k\ncurl -sS \\\n  -X DELETE http://here/persons/p\n", False),
        (".venv/bin/replay rebuild listings\n", False),
    ],
)
def test_only_what_reads_is_repeated(script: str, expected: bool) -> None:
    assert only_reads(script) is expected


def check_shape(shown: Any, answer: Any, place: str) -> None:
    """Check that an answer has everything that is shown, with values of the same types."""
    assert type(shown) is type(answer), f"{place}: {shown} is shown for {answer}"
    if isinstance(shown, dict):
        for name, value in shown.items():
            assert name in answer, f"{place}.{name}"
            check_shape(value, answer[name], f"{place}.{name}")
    elif isinstance(shown, list):
        assert len(shown) <= len(answer), f"{place}: {len(answer)} are too few"
        for number, value in enumerate(shown):
            check_shape(value, answer[number], f"{place}[{number}]")


def without_numbers(text: str) -> str:
    return re.sub(r"\d[\d,.]*", "N", text).strip()


def test_the_readme_is_short_and_its_example_keeps_its_rule() -> None:
    assert len(README.splitlines()) <= 130
    names: dict[str, Any] = {"__name__": "readme"}
    (sample,) = blocks("python", README)
    exec(compile(sample, "README.md", "exec"), names)  # noqa: S102 - our own text
    wallet, balances, paid, pay = names["wallet"], names["balances"], names["Paid"], names["Pay"]
    assert isinstance(wallet, Aggregate)
    assert isinstance(balances, TableView)
    assert set(ViewRegistry([("readme", balances)]).views) == {"balances"}
    full = paid(owner="ada", cents=500)
    emptied = given(wallet, full).when(pay(owner="ada", cents=-500)).then(paid(owner="ada", cents=-500))
    emptied.when(pay(owner="ada", cents=-1)).then_rejected("overdrawn", saying="only 0 cents")
    assert rows_of(balances, full, full) == {"ada": {"owner": "ada", "cents": 1000, "payments": 2}}


def test_the_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"`make ([a-z-]+)", README + CONTRIBUTING))
    assert len(targets) > 10
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


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
    after = {"after": listed.json()["position"], "wait_ms": WAIT_MS}
    for view in ("listings", "listing_card", "listing_search", "streams"):
        key = "listing/sacramento-1/1" if view == "streams" else "sacramento-1"
        http.get(f"/views/{view}/{key}", params=after).raise_for_status()


def test_the_example_works_as_written(service: Service) -> None:
    """Its commands, once it runs: the service has the module of the README."""
    install, (run, after) = section(README, "Install"), section(README, "Example").split("headwater run\n```")
    assert len(STEP.findall(install)) == 1
    assert run.endswith("HEADWATER_MODULES=wallet ")
    assert try_steps(after, service) == 2


@pytest.mark.usefixtures("toured")
def test_the_tour_works_as_written(service: Service) -> None:
    start, rest = TOUR.split("make run\n```")
    assert "```" in start
    assert try_steps(rest, service) == 4


@pytest.mark.usefixtures("toured")
def test_the_requests_of_the_http_page_work_as_written(service: Service) -> None:
    assert try_steps(HTTP, service) > 8


RUNNING = """
import os, sys
from headwater.compose.page import page, shared_settings
from headwater.compose.settings import StackSettings
from headwater.eventlog.programs.running_deployment import published
from headwater.eventlog.settings import LogSettings

modules, settings = LogSettings.from_environment(os.environ).modules, StackSettings.from_environ(os.environ)
with published(settings.state, shared_settings(settings, os.environ, modules), []):
    print(page(sys.argv[1], settings, modules), end=chr(0), flush=True)
    sys.stdin.read()
"""
"""What `make run` does once all is up, in a process that finds the modules of the service."""


@pytest.mark.complete
@pytest.mark.usefixtures("toured")
def test_what_make_run_prints_works_when_it_is_pasted_in_another_terminal(
    service: Service, stack: StackSettings
) -> None:
    """In one that has no variables, in another folder. All but the logs, which have no end."""
    ports = {Ports.variable(name): str(port) for name, port in stack.ports.model_dump().items()}
    command, variables = [sys.executable, "-c", RUNNING, service.api], {**service.environment, **ports}
    with subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        printed = b"".join(iter(partial(process.stdout.read, 1), b"\0")).decode()
        (settings,) = (line for line in printed.splitlines() if line.startswith("eval "))
        about_listings = {command.format(api=service.api) for _, command in to_try("listings")}
        chosen = [line for line in printed.splitlines() if line in about_listings or "/replay " in line]
        assert len(chosen) == len(about_listings) + 2
        for line in chosen:
            script = f"{settings}\n{line.replace('curl -', 'curl --fail-with-body -')}"
            shell = ["env", "-i", "bash", "-c", script]
            done = subprocess.run(shell, capture_output=True, text=True, timeout=600, cwd="/")
            assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"


@pytest.mark.usefixtures("toured")
def test_many_commands_over_http(service: Service) -> None:
    (block,) = (block for block in blocks("bash", HTTP) if "/commands " in block and "application/x-ndjson" in block)
    script = block.replace("http://127.0.0.1:18080", service.api)
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=600)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["status"] for answer in answers] == [201, 201], done.stdout + done.stderr


@pytest.mark.usefixtures("toured")
def test_the_python_client(http: httpx.Client, service: Service) -> None:
    block, *others = blocks("python", CLIENT)
    done = subprocess.run(
        [sys.executable, "-c", "\n".join([block, *others])],
        env=service.environment,
        capture_output=True,
        text=True,
        timeout=600,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    row = http.get(done.stdout.splitlines()[-1])
    assert (row.status_code, row.json()["price"]) == (200, 63099)
