"""The pages of the docs: their links and paths lead to something, and each promise of docs/guarantees.md to a test."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

from tests.support.pages import PAGES, ROOT, read_page

ALL = (ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *PAGES)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
FILE = re.compile(r"`((?:api|commands|compose|docs|eventlog|headwater|projections|replay|tests)/[\w./-]*)`")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


@cache
def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_to_a_page_and_a_heading() -> None:
    broken = []
    for span in ALL:
        for path, anchor in LINK.findall(FENCED.sub("", span.read_text())):
            target = (span.parent / path).resolve() if path else span
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append(f"{span.relative_to(ROOT)}: {path}#{anchor}")
    assert broken == []
    assert len(ALL) > 50


def test_paths_of_code_exist() -> None:
    named = {(each, path) for each in ALL for path in FILE.findall(each.read_text())}
    assert sorted(f"{each.relative_to(ROOT)}: {path}" for each, path in named if not (ROOT / path).exists()) == []
    assert len(named) > 100


def test_each_decision_has_a_number_of_its_own_which_its_title_repeats() -> None:
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    numbers = Counter(path.name.partition("-")[0] for path in decisions)
    assert [number for number, times in numbers.items() if times > 1] == []
    for path in decisions:
        assert path.read_text().startswith(f"# {int(path.name.partition('-')[0])}. "), path.name


def test_each_promise_has_its_explanation_and_a_test_that_exists() -> None:
    rows = re.findall(r"^\| (?!-|promise |server )(.+) \|$", read_page("guarantees.md"), re.MULTILINE)
    assert len(rows) > 20
    for row in rows:
        tests = re.findall(r"`(tests/[^`]+/test_\w+\.py)`", row.rpartition(" | ")[2])
        assert tests and all((ROOT / path).is_file() for path in tests), row
        assert LINK.search(row), row


def test_the_guarantees_name_the_limits_of_every_kind_of_promise() -> None:
    sections = read_page("guarantees.md").split("\n## ")[1:]
    assert [section.partition("\n")[0] for section in sections if "\nLimits:\n\n- " not in section] == []


def test_llms_txt_says_what_headwater_is_and_lists_every_page_once() -> None:
    heading, said, *rest = read_page("llms.txt").split("\n\n")
    assert (heading, said) == (
        "# Headwater",
        "> " + " ".join((ROOT / "README.md").read_text().split("\n\n")[1].split()),
    )
    listed = Counter(re.findall(r"^- \[[^\]]+\]\(([^)]+)\): \S", rest[-1], re.MULTILINE))
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert listed == Counter({*pages, "../headwater/samples/README.md", "../CONTRIBUTING.md", "decisions/"})


def test_the_comparison_has_a_source_for_each_project() -> None:
    sections = read_page("comparison.md").split("\n## ")[1:-1]
    assert len(sections) == 8
    for section in sections:
        assert "](https://" in section and "**It does better:**" in section and "**Choose it**" in section, section
