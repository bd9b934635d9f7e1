"""A folder of the user that hides a package of Headwater from `python -m` is named in one sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.programs


def run(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", program, "--help"], cwd=folder, capture_output=True, text=True, timeout=600
    )


@pytest.mark.parametrize(
    ("program", "hidden", "command"),
    [
        ("api", "commands", "headwater api"),
        ("api", "projections", "headwater api"),
        ("replay", "commands", "headwater replay"),
        ("projections", "commands", "headwater projections"),
        ("compose", "api", "headwater run"),
    ],
)
def test_what_is_hidden_is_named(tmp_path: Path, program: str, hidden: str, command: str) -> None:
    folder = tmp_path / hidden
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    ended = run(tmp_path, program)
    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert f'"{folder}/__init__.py" hides the package "{hidden}"' in ended.stderr
    assert f"run {command}," in ended.stderr


@pytest.mark.parametrize("program", ["commands", "api"])
def test_a_folder_that_the_program_does_not_need_and_one_that_is_no_package_are_no_problem(
    tmp_path: Path, program: str
) -> None:
    (tmp_path / "compose").mkdir()
    (tmp_path / "compose" / "__init__.py").write_text("")
    (tmp_path / "projections").mkdir()
    (tmp_path / "eventlog").mkdir()
    ended = run(tmp_path, program)
    assert ended.returncode == 0, ended.stderr
