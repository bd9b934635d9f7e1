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
from tests.support.typical_seconds import TYPICAL_S

ROOT: Final = Path(__file__).parents[2]
MARK: Final = re.compile(r'xdist_group\("([^"]+)"\)')
GUESSED_S: Final = {"timeout": 180.0, "jvm": 5.0, "xdist_group": 2.0, "servers": 0.5}
"""Seconds of a test with this mark, the first that it has, if it was not measured and its file is not in TYPICAL_S.
What has a timeout of its own is long: if a cluster and the demo came last, they would hinder each other."""
KEPT: Final = "headwater/seconds"
"""Where pytest's cache has the seconds of tests, by their ids."""


class ByGroup(LoadFileScheduling):  # type: ignore[misc]
    """Keeps the tests of a group, or else of a file, in one process, which has started what they share."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def scope_of(nodeid: str) -> str:
    """The group of a test, or else its file."""
    file = file_of(nodeid)
    return group_of(ROOT / file) or file


def file_of(nodeid: str) -> str:
    """The file of a test, from the root of the repository."""
    return nodeid.partition("::")[0]


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
        """Remember what was measured, and what was known of other tests, if their files are still there."""
        if self._cache and self._measured and not is_long():
            measured = {name: round(took_s, 1) for name, took_s in self._measured.items()}
            known = self.known() | measured
            self._cache.set(KEPT, {name: each for name, each in known.items() if _exists(file_of(name))})


@cache
def _exists(file: str) -> bool:
    return (ROOT / file).exists()


def longest_first(
    items: Sequence[pytest.Item], seconds: Mapping[str, float], paths: Sequence[str] = ()
) -> list[pytest.Item]:
    """Tests in the order in which they begin, so that all processes end together; those of a scope keep their order.

    seconds: as `Seconds.known` has them; other tests are taken to share the typical seconds of their file, or guessed.
    paths: files and folders; scopes with a test in an earlier one begin first.
    """
    numbers = Counter(file_of(item.nodeid) for item in items)
    scopes = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        scopes[scope_of(item.nodeid)].append(item)

    def takes_s(item: pytest.Item) -> float:
        if item.nodeid in seconds:
            return seconds[item.nodeid]
        if (file := file_of(item.nodeid)) in TYPICAL_S:
            return TYPICAL_S[file] / numbers[file]
        return next((guess for mark, guess in GUESSED_S.items() if item.get_closest_marker(mark)), 0.0)

    def rank(item: pytest.Item) -> int:
        within = (n for n, path in enumerate(paths) if f"{file_of(item.nodeid)}/".startswith(f"{path}/"))
        return next(within, len(paths))

    ordered = sorted(scopes.values(), key=lambda tests: (min(map(rank, tests)), -sum(map(takes_s, tests))))
    return [item for tests in ordered for item in tests]
