"""The queries on the pages of samples are those of their views."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eventlog.programs.modules import shipped_domains
from projections.registry import ViewRegistry
from projections.stream.declaring.view import StreamView

SAMPLES = Path(__file__).parents[3] / "headwater" / "samples"
PAGES = {name: (SAMPLES / name / "README.md").read_text() for name in shipped_domains()}


@pytest.mark.parametrize("domain", PAGES)
def test_every_query_on_the_page_is_in_the_sample(domain: str) -> None:
    views = (SAMPLES / domain / "views.py").read_text()
    for query in re.findall(r"```python\n(.*?)```", PAGES[domain], re.DOTALL):
        assert query in views


@pytest.mark.parametrize("domain", PAGES)
def test_every_stream_view_of_the_sample_is_described(domain: str) -> None:
    views = [name for name, view in ViewRegistry.load([domain]).views.items() if isinstance(view, StreamView)]
    assert [name for name in views if f"\n`{name}` has" not in PAGES[domain]] == []


def test_pages_have_queries() -> None:
    assert sum(page.count("```python") for page in PAGES.values()) >= len(PAGES)
