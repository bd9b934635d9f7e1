"""The queries in docs/stream-samples.md are those of the sample domains."""

from __future__ import annotations

import re
from pathlib import Path

from eventlog.modules import shipped_domains
from projections.registry import ViewRegistry
from projections.stream.view import StreamView

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "stream-samples.md").read_text()


def test_every_query_on_the_page_is_in_the_view_that_was_named_last() -> None:
    queries = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert queries
    for query in queries:
        before = PAGE[: PAGE.index(query)]
        name = re.findall(r"^`(\w+)` has", before, re.MULTILINE)[-1]
        (source,) = (ROOT / "projections" / "views").rglob(f"{name}.py")
        assert query in source.read_text(), name


def test_every_stream_view_of_a_domain_on_the_page_is_described() -> None:
    domains = [name for name in shipped_domains() if f"`{name}` has" in PAGE]
    views = [name for name, view in ViewRegistry.load(domains).views.items() if isinstance(view, StreamView)]
    assert [name for name in views if f"\n`{name}` has" not in PAGE] == []
    assert len(domains) >= 2
