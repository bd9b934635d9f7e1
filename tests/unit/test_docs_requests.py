"""The queries of views that the docs and `make run` show are accepted by the API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from api.requests.query import read_query
from compose.samples.shipped import to_try
from eventlog.programs.modules import shipped_domains
from projections.registry import ViewRegistry

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "headwater" / "samples"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted(SAMPLES.rglob("*.md"))]
VIEWS = ViewRegistry.load(shipped_domains()).views
QUERY = re.compile(r"""/views/(\w+)(/search)?\?([^\s`'"]+)""")
TODAY = re.compile(r"\$\(date [^)]*\)")
WAITING = ("after", "wait_ms")
"""Parameters that are read apart from the query."""


def queries(text: str) -> Iterator[tuple[str, str, str]]:
    """The view, the tail of the path and the parameters of each query of a shipped view."""
    yield from (found for found in QUERY.findall(TODAY.sub("2026-03-01T00:00:00Z", text)) if found[0] in VIEWS)


TEXTS = [(str(page.relative_to(ROOT)), page.read_text()) for page in PAGES]
TEXTS += [(f"make run DOMAINS={each}", "\n".join(command for _, command in to_try(each))) for each in shipped_domains()]
SHOWN = [(name, *query) for name, text in TEXTS for query in queries(text)]


def test_the_docs_and_the_commands_to_try_have_queries() -> None:
    assert {"headwater/samples/sensors/README.md", "make run DOMAINS=buses"} <= {name for name, *_ in SHOWN}


@pytest.mark.parametrize(("view", "tail", "parameters"), sorted({(view, tail, text) for _, view, tail, text in SHOWN}))
def test_a_query_is_accepted(view: str, tail: str, parameters: str) -> None:
    given = [each for each in parse_qsl(parameters, keep_blank_values=True) if each[0] not in WAITING]
    read_query(VIEWS[view], given, searching=bool(tail))
