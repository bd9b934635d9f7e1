"""The code on all pages: it imports from one place, its queries are accepted, and that of samples is theirs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from headwater.api.requests.query import read_query
from headwater.compose.samples.sample import to_try
from headwater.eventlog.programs.modules import shipped_domains
from headwater.projections.registry import ViewRegistry
from headwater.projections.stream.view import StreamView
from tests.support.pages import PAGES, ROOT, SAMPLES, blocks

IMPORT = re.compile(r"^ *(?:from ([\w.]+) import (\([^)]*\)|.*)|import ([\w.]+))", re.MULTILINE)
INLINE = re.compile(r"`from ([\w.]+) import")
FACES = {"headwater", "headwater.client", "headwater.folds", "headwater.testing"}
QUERY = re.compile(r"""/views/(\w+)(/search)?\?([^\s`'"]+)""")
TODAY = re.compile(r"\$\(date [^)]*\)")
WAITING = ("after", "wait_ms")
"""Parameters that are read apart from the query."""


def imports(page: Path) -> list[tuple[str, str]]:
    """The (module, name) pairs that the code of a page imports of Headwater, but for the samples'."""
    text = page.read_text()
    found = [(module, "") for module in INLINE.findall(text)]
    for block in blocks(r"python[^\n]*", text):
        for module, names, whole in IMPORT.findall(block):
            found += [(module or whole, name) for name in re.findall(r"\w+", names) or [""]]
    return [
        (module, name)
        for module, name in found
        if module.split(".")[0] == "headwater" and not module.startswith("headwater.samples.")
    ]


def test_pages_import_from_the_face_and_nowhere_deeper() -> None:
    importing = {page.name: found for page in PAGES if (found := imports(page))}
    assert len(importing) > 8
    for page, found in importing.items():
        assert {module for module, _ in found} <= FACES, page
        for module, name in found:
            assert not name or name in import_module(module).__all__, f"{page}: {module}.{name}"


def queries(text: str) -> Iterator[tuple[str, str, str]]:
    """The view, the tail of the path and the parameters of each query that a text shows."""
    yield from QUERY.findall(TODAY.sub("2026-03-01T00:00:00Z", text))


def test_the_queries_of_the_docs_and_the_commands_to_try_are_accepted() -> None:
    views = ViewRegistry.load(shipped_domains()).views
    texts = {str(page.relative_to(ROOT)): page.read_text() for page in PAGES}
    texts |= {
        f"make run DOMAINS={name}": "\n".join(command for _, command in to_try(name)) for name in shipped_domains()
    }
    shown = {(name, *query) for name, text in texts.items() for query in queries(text) if query[0] in views}
    assert {"headwater/samples/sensors/README.md", "make run DOMAINS=buses"} <= {name for name, *_ in shown}
    for _, view, tail, parameters in sorted(shown):
        given = [each for each in parse_qsl(parameters, keep_blank_values=True) if each[0] not in WAITING]
        read_query(views[view], given, searching=bool(tail))


@pytest.mark.parametrize("domain", shipped_domains())
def test_the_page_of_a_sample_has_its_stream_views_and_no_other_code(domain: str) -> None:
    page, code = (SAMPLES / domain / "README.md").read_text(), (SAMPLES / domain / "views.py").read_text()
    assert [query for query in blocks("python", page) if query not in code] == []
    views = [name for name, view in ViewRegistry.load([domain]).views.items() if isinstance(view, StreamView)]
    assert [name for name in views if f"\n`{name}` has" not in page] == []


def test_pages_of_samples_have_queries() -> None:
    pages = [(SAMPLES / domain / "README.md").read_text() for domain in shipped_domains()]
    assert sum(len(blocks("python", page)) for page in pages) >= len(pages)
