"""What `headwater new bank` writes is an application: the commands of its README work."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import RESERVED_STOCK, Service
from tests.support.waiting import eventually


@pytest.mark.complete
def test_the_lines_of_its_readme_open_an_account_and_read_its_owner(service: Service, bank: Path) -> None:
    text = (bank / "README.md").read_text().replace("http://127.0.0.1:18080", service.api)
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    assert lines[0].startswith("make run")

    def answer(line: str) -> dict[str, object]:
        ran = subprocess.run(shlex.split(line), capture_output=True, text=True, timeout=600, check=True)
        found: dict[str, object] = json.loads(ran.stdout)
        return found

    opened, deposited = (answer(line) for line in lines[1:3])
    assert (opened["stream"], opened["version"], deposited["version"]) == ("account/A", 1, 2)
    expected = {"owner": "Ada", "accounts": 1, "deposited_cents": 500}
    eventually(lambda: answer(lines[3]) == expected, "the view has the deposit")


@pytest.fixture
def found(bank: Path, shop: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process finds the modules of the service, as the process of a user's tests does."""
    folders = (shop, bank, RESERVED_STOCK)
    for folder in folders:
        monkeypatch.syspath_prepend(folder)
    yield
    for name, module in list(sys.modules.items()):  # a sample is called `shop`, too
        places = (getattr(module, "__file__", None), *getattr(module, "__path__", ()))
        if any(Path(place).is_relative_to(folder) for folder in folders for place in places if place):
            del sys.modules[name]


@pytest.mark.complete
@pytest.mark.usefixtures("found")
def test_its_tests_on_a_running_deployment_pass(service: Service, bank: Path) -> None:
    """As `python -m pytest -m running` runs them, on the deployment that is here."""
    path = bank / "tests" / "test_bank_running.py"
    text = path.read_text().replace("pytestmark = pytest.mark.running\n", "")  # a marker of its own pytest
    written: dict[str, Any] = {"__name__": path.stem}
    exec(compile(text, path, "exec"), written)  # noqa: S102 - our own text
    tests = [value for name, value in written.items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test(service.deployment)
