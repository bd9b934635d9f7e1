"""The way of a price change in docs/architecture.md: its files and functions exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STEPS = re.findall(r"^\| [^|]+ \| `(\S+\.py)` \| `(\w+)` \|$", (ROOT / "docs" / "architecture.md").read_text(), re.M)


def test_there_is_a_way() -> None:
    assert len(STEPS) > 10


@pytest.mark.parametrize(("file", "function"), STEPS)
def test_a_step_is_where_the_docs_say(file: str, function: str) -> None:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    defined = [each.name for each in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(each, functions)]
    assert function in defined
