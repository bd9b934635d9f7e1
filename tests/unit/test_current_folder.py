"""Programs find modules of the current folder, and packages of Headwater before folders of the same names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.programs

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PACKAGES = ("api", "commands", "compose", "eventlog", "headwater", "projections", "replay")
RAISES = "raise RuntimeError('no rates for today')\n"
HIDES = "raise RuntimeError('the package of Headwater is hidden')\n"
PROGRAMS = {
    "replay": [str(BIN / "replay"), "list"],
    "headwater replay": [str(BIN / "headwater"), "replay", "list"],
    "headwater handler": [str(BIN / "headwater"), "handler"],
    "headwater api": [str(BIN / "headwater"), "api"],
    "headwater projections": [str(BIN / "headwater"), "projections", "build"],
    "headwater sources": [str(BIN / "headwater"), "sources", "status"],
    "headwater run": [str(BIN / "headwater"), "run"],
    "a process that these start": [sys.executable, "-P", "-m", "commands"],
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_finds_the_users_package_and_hides_none_of_headwaters(tmp_path: Path, program: str) -> None:
    """The folder has packages of all of Headwater's names, and of libraries."""
    for name in (*PACKAGES, "typer", "pydantic", "desk"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("" if name == "desk" else HIDES)
    (tmp_path / "desk" / "views.py").write_text(RAISES)
    left_out = ("HEADWATER_", "PYTHONPATH", "PYTHONSAFEPATH")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    environment |= {"HEADWATER_MODULES": "desk.views", "HEADWATER_STATE": str(tmp_path / "state")}
    ended = subprocess.run(
        PROGRAMS[program], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    output = ended.stdout + ended.stderr
    assert ended.returncode != 0
    assert f"{tmp_path}/desk/views.py:1: RuntimeError: no rates for today" in output
    assert len(output.splitlines()) == 1, output


def test_every_process_that_headwater_starts_searches_the_current_folder_last() -> None:
    """Python would put it first for `python -m`, so that `headwater run` ends where a folder is called `commands`."""
    sources = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    starting = [line for path in sources for line in path.read_text().splitlines() if "sys.executable, " in line]
    modules = [line for line in starting if '"-m"' in line]
    assert len(modules) > 5
    assert [line.strip() for line in modules if not re.search(r"\*SAFE_PATH, \"-m\"", line)] == []
