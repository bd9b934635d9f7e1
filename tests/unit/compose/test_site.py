"""`make docs`: every page is in the navigation."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headwater.compose.publishing import site

ROOT = Path(__file__).parents[3]
NAVIGATION = tomllib.loads(site.CONFIGURATION.read_text())["project"]["nav"]
MADE = {"docs/decisions/index.md", *(f"reference/{face}.md" for face in site.FACES)}


def paths(navigation: list[dict[str, Any]]) -> Iterator[str]:
    for each in navigation:
        for target in each.values():
            yield from [target] if isinstance(target, str) else paths(target)


def test_the_navigation_has_the_four_kinds_and_each_page_once() -> None:
    kinds = [name for each in NAVIGATION for name in each]
    assert kinds == ["Headwater", "Tutorial", "How-to", "Reference", "Explanation"]
    found = list(paths(NAVIGATION))
    pages = {str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md")}
    assert sorted(found) == sorted({*pages, *MADE, "README.md", "CHANGELOG.md", "headwater/samples/README.md"})


def test_the_decisions_are_listed_by_their_titles() -> None:
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    lines = [line for line in site.decision_list(decisions).splitlines() if line.startswith("- ")]
    assert len(lines) == len(decisions) > 40
    assert lines[0] == "- 1: [A partition's owner is the lock](0001-one-partition-one-owner.md)"
