"""The docs teach one import: what their code needs of Headwater is in `headwater`, and nowhere deeper."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "headwater" / "samples"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted(SAMPLES.rglob("*.md"))]
BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
IMPORT = re.compile(r"^ *(?:from ([\w.]+) import (\([^)]*\)|.*)|import ([\w.]+))", re.MULTILINE)
INLINE = re.compile(r"`from ([\w.]+) import")
PACKAGES = {"api", "commands", "compose", "eventlog", "headwater", "projections", "replay"}
FACES = {"headwater", "headwater.client", "headwater.folds", "headwater.testing"}


def imports(page: Path) -> list[tuple[str, str]]:
    """The (module, name) pairs that the code of a page imports of Headwater, but for the samples'."""
    text = page.read_text()
    found = [(module, "") for module in INLINE.findall(text)]
    for block in BLOCK.findall(text):
        for module, names, whole in IMPORT.findall(block):
            found += [(module or whole, name) for name in re.findall(r"\w+", names) or [""]]
    return [
        (module, name)
        for module, name in found
        if module.split(".")[0] in PACKAGES and not module.startswith("headwater.samples.")
    ]


@pytest.mark.parametrize("page", [page for page in PAGES if imports(page)], ids=lambda page: page.name)
def test_a_page_imports_from_the_face_and_nowhere_deeper(page: Path) -> None:
    assert {module for module, _ in imports(page)} <= FACES
    for module, name in imports(page):
        assert not name or name in import_module(module).__all__, f"{module}.{name}"


def test_pages_have_such_imports() -> None:
    assert len([page for page in PAGES if imports(page)]) > 8
