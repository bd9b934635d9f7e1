"""`headwater run --containers` without an engine: which one it takes, what it passes on, and what it refuses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.compose.cli import app
from headwater.compose.containers.running import find_engine, variables
from headwater.compose.errors import ComposeError, NoEngine
from headwater.compose.page import page
from headwater.compose.settings import StackSettings

PROGRAM = """#!/bin/sh
case "$*" in {answers}) exit 0;; esac
echo "$0 $* is broken" >&2
exit 1
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def install(folder: Path, name: str, answers: str) -> None:
    program = folder / name
    program.write_text(PROGRAM.format(answers=answers))
    program.chmod(0o755)


def test_docker_is_taken_if_it_answers(path: Path) -> None:
    install(path, "docker", "'compose --profile app version'|info")
    install(path, "podman", "'compose --profile app version'|info")
    assert find_engine() == ("docker", "compose")


def test_podman_is_taken_if_dockers_engine_does_not_answer(path: Path) -> None:
    install(path, "docker", "'compose --profile app version'")
    install(path, "podman", "info")
    install(path, "podman-compose", "'--profile app version'")
    assert find_engine() == ("podman-compose",)


def test_one_that_knows_no_profiles_is_too_old(path: Path) -> None:
    install(path, "podman", "info")
    install(path, "podman-compose", "version")
    with pytest.raises(NoEngine, match=r"podman-compose 1\.1 or later"):
        find_engine()


def test_without_an_engine_the_error_says_what_was_tried(path: Path) -> None:
    install(path, "docker", "'compose --profile app version'")
    with pytest.raises(NoEngine) as none:
        find_engine()
    said = str(none.value)
    assert "docker info is broken" in said and "'podman compose': is not installed" in said
    assert "run without --containers" in said


def test_the_deployment_is_passed_on() -> None:
    passed = variables(["listings", "orders"], {"HEADWATER_ENVIRONMENT": "trial"})
    assert passed == {"HEADWATER_MODULES": "listings,orders", "HEADWATER_ENVIRONMENT": "trial"}


def test_modules_that_no_image_has_are_refused() -> None:
    with pytest.raises(ComposeError, match=r"has the samples and not bank: build an image with your package"):
        variables(["listings", "bank"], {})
    assert variables(["bank"], {"HEADWATER_IMAGE": "bank:1"})["HEADWATER_MODULES"] == "bank"


def test_reloading_needs_programs_on_this_machine() -> None:
    ran = CliRunner().invoke(
        app, ["run", "--containers", "--reload"], env={**os.environ, "HEADWATER_MODULES": "orders"}
    )
    assert ran.exit_code == 2 and "leave out --containers" in " ".join(ran.output.replace("│", " ").split())


def test_the_page_says_where_logs_and_data_are(tmp_path: Path) -> None:
    command = "docker compose --file compose.yml --profile app"
    text = page("http://127.0.0.1:18080", StackSettings(tmp_path), ["listings"], in_containers=command)
    assert f"{command} logs --follow" in text and "headwater stack logs" not in text
    assert "in the volumes of its containers" in text and f"headwater env {tmp_path}" in text
