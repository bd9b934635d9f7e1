"""The Mermaid diagrams of the docs: each has a title, and arrows join what is declared. `make docs` draws them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.compose.publishing import diagrams
from tests.support.pages import PAGES, ROOT

DIAGRAMS = {
    f"{page.relative_to(ROOT)}, {number}": source
    for page in PAGES
    for number, source in enumerate(diagrams.MERMAID.findall(page.read_text()), 1)
}
ARROW = re.compile(r'\s*(?:<?--?>|<?-->|---)(?:\|(?:"[^"|]*"|[^"|]*)\|)?\s*')
NODE = re.compile(r'(\w+)(?:\(\[".+?"\]\)|\[\(".+?"\)\]|\[".+?"\]|\{".+?"\})?')
SUBGRAPH = re.compile(r'subgraph (\w+) \["[^"]+"\]')
PARTICIPANT = re.compile(r"participant (\w+) as \S.*")
MESSAGE = re.compile(r"(\w+)-{1,2}>>(\w+): \S.*")
SEQUENCE = "sequenceDiagram\n accTitle: x\n participant A as a\n"
NOTE = re.compile(r"Note over (\w+(?:,\w+)*): \S.*")


def faults(source: str) -> Iterator[str]:
    """What Mermaid would refuse, or draw as something else than is meant."""
    kind, *lines = (line.strip() for line in source.strip().splitlines())
    if not diagrams.TITLE.search(source):
        yield "no accTitle"
    lines = [line for line in lines if line and not line.startswith("accTitle:")]
    if re.fullmatch("flowchart (LR|TB)", kind):
        yield from faults_of_flowchart(lines)
    elif kind == "sequenceDiagram":
        yield from faults_of_sequence(lines)
    else:
        yield f"unknown kind: {kind}"


def faults_of_flowchart(lines: list[str]) -> Iterator[str]:
    declared, joined, depth = set[str](), set[str](), 0
    for line in lines:
        if subgraph := SUBGRAPH.fullmatch(line):
            declared.add(subgraph[1])
            depth += 1
            continue
        if line == "end":
            depth -= 1
            continue
        nodes = [NODE.fullmatch(node) for node in ARROW.split(line)]
        for node in nodes:
            if node is None:
                yield f"no node or arrow: {line}"
                continue
            if node[0] != node[1]:
                declared.add(node[1])
            if len(nodes) > 1:
                joined.add(node[1])
    if depth:
        yield "a subgraph without its end"
    yield from (f"an arrow to or from {node}, which is not declared" for node in sorted(joined - declared))


def faults_of_sequence(lines: list[str]) -> Iterator[str]:
    declared, used = set[str](), set[str]()
    for line in lines:
        if participant := PARTICIPANT.fullmatch(line):
            declared.add(participant[1])
        elif message := MESSAGE.fullmatch(line):
            used |= {message[1], message[2]}
        elif note := NOTE.fullmatch(line):
            used |= set(note[1].split(","))
        else:
            yield f"no participant, message or note: {line}"
    yield from (f"{name} is declared or used, and not both" for name in sorted(declared ^ used))


def test_the_concepts_have_five_diagrams() -> None:
    assert len([name for name in DIAGRAMS if name.startswith("docs/concepts.md")]) == 5


@pytest.mark.parametrize("name", DIAGRAMS)
def test_a_diagram_can_be_drawn(name: str) -> None:
    assert list(faults(DIAGRAMS[name])) == []


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ('flowchart LR\n    a["A"] --> a', "no accTitle"),
        ("graf LR\n accTitle: x", "unknown kind: graf LR"),
        ('flowchart LR\n accTitle: x\n a["A"] --> b', "an arrow to or from b, which is not declared"),
        ('flowchart LR\n accTitle: x\n a["A"] -->', 'no node or arrow: a["A"] -->'),
        ('flowchart LR\n accTitle: x\n subgraph s ["S"]\n a["A"]', "a subgraph without its end"),
        (
            f"{SEQUENCE} A->>A: do\n A->>B: say",
            "B is declared or used, and not both",
        ),
        (
            f"{SEQUENCE} A->>A: do\n A says",
            "no participant, message or note: A says",
        ),
    ],
)
def test_a_diagram_that_cannot_be_drawn_is_found(source: str, fault: str) -> None:
    assert list(faults(source)) == [fault]


def test_a_page_of_the_site_has_images_of_its_diagrams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is drawn once, however often the site is built."""
    drawn: list[str] = []

    def draws(source: str, page: str) -> str:
        drawn.append(source)
        return f"<svg><!-- {page} --></svg>"

    monkeypatch.setattr(diagrams, "svg_of", draws)
    page = tmp_path / "page.md"
    text = "# Page\n\n```mermaid\nflowchart LR\n    accTitle: A & B\n```\n\nText\n"
    for _ in range(2):
        page.write_text(text)
        diagrams.draw(page, tmp_path / "cache")
    (image,) = (tmp_path / "diagrams").iterdir()
    assert page.read_text() == f"# Page\n\n![A &amp; B](diagrams/{image.name})\n\nText\n"
    assert drawn == ["flowchart LR\n    accTitle: A & B\n"]


def test_a_diagram_without_a_title_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```mermaid\nflowchart LR\n```\n")
    with pytest.raises(RuntimeError, match=r"page\.md: a diagram has no accTitle"):
        diagrams.draw(page, tmp_path / "cache")
