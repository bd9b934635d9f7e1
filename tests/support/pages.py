"""The pages of the docs, as tests read them: their text, sections, blocks of code, and samples that run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
SAMPLES: Final = ROOT / "headwater" / "samples"
PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted(SAMPLES.rglob("*.md")))
"""Every page that a reader finds, but the changelog."""


def read_page(name: str) -> str:
    """The text of a page of docs/."""
    return (ROOT / "docs" / name).read_text()


def section(text: str, heading: str) -> str:
    """What a page has under a heading of the second level; "" if it has no such heading."""
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def blocks(language: str, text: str) -> list[str]:
    """The fenced blocks in a language, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def first_cells(text: str) -> list[str]:
    """The first cell of each row of all tables on a page."""
    return re.findall(r"^\| (.*?) \|", text, re.MULTILINE)


def names_of(sample: str) -> dict[str, Any]:
    """What a block of Python on a page defines, once it has run."""
    names: dict[str, Any] = {"__name__": "documented"}
    exec(compile(sample, "sample", "exec", dont_inherit=True), names)  # noqa: S102 - our own text
    return names
