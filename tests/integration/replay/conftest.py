"""A fresh deployment on the running servers, removed afterwards."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from headwater.compose.settings import StackSettings
from headwater.replay import cli
from tests.integration.replay.deployed import Command, Deployed, Told, deployment
from tests.support.patience import patient
from tests.support.spark_rows import session


@pytest.fixture(scope="package", autouse=True)
def patience() -> Iterator[None]:
    with patient():
        yield


@pytest.fixture
def modules() -> tuple[str, ...]:
    """The packages of the deployment's views; a test module may have others."""
    return ("listings", "tests.integration.replay.things")


@pytest.fixture
def deployed(stack: StackSettings, tmp_path: Path, modules: tuple[str, ...]) -> Iterator[Deployed]:
    with deployment(stack, tmp_path, modules) as fresh:
        yield fresh


@pytest.fixture
def replay(deployed: Deployed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `replay` with `--json` in this process; what it does must not need Spark, as with a small log."""
    for name, value in deployed.variables.items():
        monkeypatch.setenv(name, value)

    def run(*words: str) -> Told:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["replay", *words, "--json"])
        with pytest.raises(SystemExit) as ended:
            cli.main(typer.main.get_command(cli.app_of()))
        output = capsys.readouterr()
        code = ended.value.code
        return Told(code if isinstance(code, int) else 0, json.loads(output.out) if output.out else None, output.err)

    return run


@pytest.fixture
def spark() -> None:
    """Start the Spark session of this process: `replay` takes it then."""
    session()
