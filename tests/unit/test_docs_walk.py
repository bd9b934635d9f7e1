"""The map in docs/architecture.md has every folder, and the files and functions on the way of a price change exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
STEPS = re.findall(r"^\| [^|]+ \| `(\S+\.py)` \| `(\w+)` \|$", PAGE, re.M)
PACKAGES = ("eventlog", "commands", "projections", "replay", "api", "compose", "headwater")


def test_the_map_has_every_folder_of_a_package_and_none_that_is_not_there() -> None:
    found, package = set[tuple[str, str]](), ""
    for line in PAGE.partition("```\n")[2].partition("```")[0].splitlines():
        if not line.startswith(" "):
            package = line.partition("/")[0]
        found |= {(package, each) for each in re.findall(r"(?<![\w/])([a-z_]+)/(?!\w)", line) if each != package}
    folders = {(name, each.parent.name) for name in PACKAGES for each in (ROOT / name).glob("*/*.py")}
    assert folders - found == set()
    assert [each for each in found if not list((ROOT / each[0]).rglob(f"{each[1]}/"))] == []


def test_there_is_a_way() -> None:
    assert len(STEPS) > 10


@pytest.mark.parametrize(("file", "function"), STEPS)
def test_a_step_is_where_the_docs_say(file: str, function: str) -> None:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    defined = [each.name for each in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(each, functions)]
    assert function in defined
