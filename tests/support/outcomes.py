"""A pytest plugin of `tests.run`: records the outcomes of tests, runs chosen ones only, and stops at a deadline."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

LEFT_OUT: Final = "left out: the time for tests is over"


@dataclass
class Outcome:
    """What became of one test."""

    seconds: float = 0.0
    """Its fixtures included."""
    outcome: str = "passed"
    """`passed`, `failed`, `skipped` or `left out`."""
    failure: str = ""
    """Its error with its traceback, what it printed and what it logged."""


@dataclass
class Outcomes:
    """The outcomes of one run of pytest, by the ids of tests in the order in which they ended."""

    tests: dict[str, Outcome] = field(default_factory=lambda: defaultdict(Outcome))

    def add(self, report: pytest.TestReport) -> None:
        """Add a phase of a test: its setup, call or teardown."""
        test = self.tests[report.nodeid]
        test.seconds += report.duration
        if report.failed:
            test.outcome = "failed"
            sections = (f"{f' {title} ':-^80}\n{text}" for title, text in report.sections)
            test.failure += "\n".join([f"{report.when}: {report.longreprtext}", *sections, ""])
        elif report.skipped and test.outcome != "failed":
            test.outcome = "left out" if LEFT_OUT in report.longreprtext else "skipped"

    def add_uncollected(self, report: pytest.CollectReport) -> None:
        """Add a file that cannot be collected as a failed test: else the others could hide it."""
        self.tests[report.nodeid] = Outcome(outcome="failed", failure=report.longreprtext)

    def write(self, file: Path) -> None:
        """Write them to a JSON file."""
        file.write_text(json.dumps({name: vars(outcome) for name, outcome in self.tests.items()}), encoding="utf-8")

    @classmethod
    def read(cls, file: Path) -> Outcomes:
        """Those that `write` wrote, or none if pytest did not get as far."""
        written = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        return cls(defaultdict(Outcome, {name: Outcome(**values) for name, values in written.items()}))

    def named(self, outcome: str) -> list[str]:
        """The ids of tests with this outcome."""
        return [name for name, test in self.tests.items() if test.outcome == outcome]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tests.run")
    group.addoption("--outcomes", type=Path, help="write the outcome of each test to this file")
    group.addoption("--only", type=Path, help="run only the tests whose ids this file lists, one a line")
    group.addoption("--deadline", type=float, help="begin no test after this time, in seconds since 1970")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.outcomes and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Recorder(config))


class _Recorder:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._outcomes = Outcomes()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._outcomes.add(report)
        if report.failed:  # its name now, not after half an hour; the error stands at the end
            terminal: Any = self._config.pluginmanager.get_plugin("terminalreporter")
            terminal.write_line(f"\n{report.nodeid} failed ({report.when})")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._outcomes.add_uncollected(report)

    def pytest_sessionfinish(self) -> None:
        self._outcomes.write(self._config.option.outcomes)


def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    """Deselect what `--only` does not list."""
    if config.option.only is None:
        return
    chosen = set(config.option.only.read_text(encoding="utf-8").splitlines())
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = [item for item in items if item.nodeid in chosen]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave tests out that would begin after the deadline."""
    deadline = item.config.option.deadline
    if deadline is not None and time.time() > deadline:
        pytest.skip(LEFT_OUT)
