"""docs/tracing.md has every fact that spans have, and no other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FACT = re.compile(r'"((?:headwater|http)\.[a-z_.]+)": ')


def test_the_page_has_every_fact_of_a_span() -> None:
    files = [path for package in ("api", "commands", "projections") for path in (ROOT / package).rglob("*.py")]
    made = {fact for path in files for fact in FACT.findall(path.read_text())}
    shown = set(re.findall(r"`((?:headwater|http)\.[a-z_.]+)`", (ROOT / "docs" / "tracing.md").read_text()))
    assert len(made) > 10
    assert made == shown
