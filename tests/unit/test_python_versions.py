"""The versions of Python that Headwater supports are the same wherever they are named."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PYTHON = "Programming Language :: Python :: "


def test_they_are_the_same_everywhere() -> None:
    declared = [each.removeprefix(PYTHON) for each in PROJECT["project"]["classifiers"] if each.startswith(PYTHON)]
    oldest, next_one = declared[0], f"3.{int(declared[-1].partition('.')[2]) + 1}"
    assert PROJECT["project"]["requires-python"] == f">={oldest},<{next_one}"
    assert PROJECT["tool"]["mypy"]["python_version"] == oldest
    assert PROJECT["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
    makefile = (ROOT / "Makefile").read_text()
    (tried,) = re.findall(r"for python in (.+) python3; do", makefile)
    assert sorted(tried.split()) == [f"python{version}" for version in declared]
    assert f"({oldest.replace('.', ', ')}) <= sys.version_info < ({next_one.replace('.', ', ')})" in makefile
    assert f"--python-version {oldest}" in makefile, "the lock is made for the oldest"
    (first, *others, newest) = declared
    assert f"Python {', '.join([first, *others])} and {newest}: set PYTHON" in makefile
    assert f"Python {', '.join([first, *others])} or {newest}" in (ROOT / "README.md").read_text()
    assert f"{sys.version_info[0]}.{sys.version_info[1]}" in declared, "the tests run on one of them"
