"""docs/architecture.md: its map has every folder, its tables every topic and the way of a price change."""

from __future__ import annotations

import ast
import re

from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import topic_specs
from tests.support.pages import ROOT, read_page

PAGE = read_page("architecture.md")
PACKAGES = ("eventlog", "commands", "projections", "replay", "api", "compose", "headwater")


def test_the_map_has_every_folder_of_a_package_and_none_that_is_not_there() -> None:
    found, package = set[tuple[str, str]](), ""
    for line in PAGE.partition("```\n")[2].partition("```")[0].splitlines():
        if not line.startswith(" "):
            package = line.partition("/")[0]
        found |= {(package, each) for each in re.findall(r"(?<![\w/])([a-z_]+)/(?!\w)", line) if each != package}
    folders = {
        (name, path.parent.name)
        for name in PACKAGES
        for path in (ROOT / name).glob("*/*.py")
        if not path.parent.is_symlink()
    }
    assert folders - found == set()
    assert [each for each in found if not list((ROOT / each[0]).rglob(f"{each[1]}/"))] == []


def test_the_steps_of_a_price_change_are_where_the_page_says() -> None:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    steps = re.findall(r"^\| [^|]+ \| `(\S+\.py)` \| `(\w+)` \|$", PAGE, re.MULTILINE)
    assert len(steps) > 10
    for file, function in steps:
        tree = ast.parse((ROOT / file).read_text())
        assert function in {span.name for span in ast.walk(tree) if isinstance(span, functions)}, f"{file}: {function}"


def test_the_page_lists_every_topic_of_a_deployment() -> None:
    table = re.search(r"^\| topic .*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert table is not None
    named = set(re.findall(r"`([^`]+)`", " ".join(line.split("|")[1] for line in table[1].splitlines())))
    assert {spec.name for spec in topic_specs(LogSettings())} <= named
