"""Which tests a process runs, and in which order: tests that share something together, and what takes longest first."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.support.seeds import is_long

ROOT: Final = Path(__file__).parents[2]
MARK: Final = re.compile(r'xdist_group\("([^"]+)"\)')
DEAR: Final = ("xdist_group", "jvm", "servers")
"""Marks of tests that take long, the dearest first: in a checkout in which nothing was measured, these begin first."""
MEASURED_S: Final = 0.5
"""Shorter tests are not remembered."""
KEPT: Final = "headwater/seconds"
"""Where pytest's cache has the seconds of tests, by their ids."""


class ByGroup(LoadFileScheduling):  # type: ignore[misc]
    """Keeps the tests of a group, or else of a file, in one process, which has started what they share."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def scope_of(nodeid: str) -> str:
    """The group of a test, or else its file."""
    file = nodeid.partition("::")[0]
    return group_of(ROOT / file) or file


@cache
def group_of(file: Path) -> str:
    """The name in the mark `xdist_group` of a test module, or else of the nearest conftest.py; "" if there is none.

    It is read from the text, since the process that schedules does not import the tests, and a test's id, which is all
    that it gets, has no marks.
    """
    for each in (file, *(folder / "conftest.py" for folder in file.relative_to(ROOT).parents)):
        path = ROOT / each
        if path.exists() and (found := MARK.search(path.read_text())):
            return found[1]
    return ""


class Seconds:
    """How long tests took when they last ran in this checkout, by their ids; a plugin of pytest, which measures it."""

    def __init__(self, config: pytest.Config) -> None:
        self._cache = getattr(config, "cache", None)  # None: `-p no:cacheprovider`
        self._measured = Counter[str]()

    def known(self) -> dict[str, float]:
        return dict(self._cache.get(KEPT, {})) if self._cache else {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._measured[report.nodeid] += report.duration  # type: ignore[assignment]

    def pytest_sessionfinish(self) -> None:
        """Remember what was measured, and what was known of other tests."""
        if self._cache and self._measured and not is_long():
            known = {name: took_s for name, took_s in self.known().items() if name not in self._measured}
            now = {name: round(took_s, 1) for name, took_s in self._measured.items() if took_s >= MEASURED_S}
            self._cache.set(KEPT, known | now)


def longest_first(items: Sequence[pytest.Item], seconds: Mapping[str, float]) -> list[pytest.Item]:
    """Tests in the order in which they begin, so that all processes end together; those of a scope keep their order.

    seconds: as `Seconds.known` has them. What was never measured follows: by its marks, and by its number of tests.
    """
    scopes = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        scopes[scope_of(item.nodeid)].append(item)

    def place(tests: list[pytest.Item]) -> tuple[float, list[bool], int]:
        took_s = sum(seconds.get(each.nodeid, 0.0) for each in tests)
        unmarked = [not any(each.get_closest_marker(mark) for each in tests) for mark in DEAR]
        return -took_s, unmarked, -len(tests)

    return [each for tests in sorted(scopes.values(), key=place) for each in tests]
