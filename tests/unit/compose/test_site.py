"""`make docs`: every page is in the navigation, and what a page would load from elsewhere is found."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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
    others = {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "headwater/samples/README.md"}
    assert sorted(found) == sorted({*pages, *MADE, *others})


def test_the_decisions_are_listed_by_their_titles() -> None:
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    lines = [line for line in site.decision_list(decisions).splitlines() if line.startswith("- ")]
    assert len(lines) == len(decisions) > 20
    assert lines[0] == "- 1: [Each partition has one writer](0001-one-writer-per-partition.md)"


@pytest.mark.parametrize(
    "element",
    [
        '<script src="https://cdn.example.com/a.js"></script>',
        '<SCRIPT SRC="//cdn.example.com/a.js"></SCRIPT>',
        '<link rel="stylesheet" href="https://fonts.example.com/css">',
        '<link rel="preconnect" href="https://fonts.example.com">',
        '<link rel="icon" href="http://example.com/icon.png">',
        '<img src="https://badges.example.com/a.svg">',
        '<iframe src="https://video.example.com"></iframe>',
        '<img src="missing.png">',
        '<script src="/assets/missing.js"></script>',
        '<pre class="mermaid">graph LR</pre>',
    ],
)
def test_a_page_that_loads_something_from_elsewhere_or_what_is_not_there_is_refused(
    tmp_path: Path, element: str
) -> None:
    (tmp_path / "here.png").touch()
    (tmp_path / "index.html").write_text(f"<html><body>{element}</body></html>")
    (fault,) = site.wrongly_loaded(tmp_path)
    assert fault.startswith("index.html ")


def test_a_style_that_loads_something_from_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text('@import url("https://fonts.example.com/css");@font-face{src:url(f.woff2)}')
    (tmp_path / "f.woff2").touch()
    (fault,) = site.wrongly_loaded(tmp_path)
    assert fault == "a.css loads https://fonts.example.com/css from another host"


def test_links_that_a_reader_follows_and_files_of_the_site_are_fine(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "a b.png").touch()
    (tmp_path / "docs" / "page.html").write_text(
        '<link rel="canonical" href="https://example.com/page"><a href="https://example.com">there</a>'
        '<img src="../a%20b.png?v=1"><img src="data:image/png;base64,AA"><script src="/a b.png"></script>'
        '<svg><use href="#icon"/></svg><style>a { background: url(data:image/png;base64,AA) }</style>'
        "<code>url(https://example.com)</code>"
    )
    assert list(site.wrongly_loaded(tmp_path)) == []
