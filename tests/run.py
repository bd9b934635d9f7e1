"""`python -m tests.run SUITE`: run a suite of tests, look at failures twice, and say what decides.

Suites: `deciding` (`make test`), `complete` (`make test-all`), `fast` (without servers, JVM and other programs), and
`touched`: of the complete suite, the groups whose folders changed since they last passed (tests/groups.py).

A test that fails runs once more, alone, after the others. If it passes then, it is flaky: its first failure is printed
at the end and written to `build/flaky/`, and the run passes, unless more than `MAX_FLAKY` tests are flaky. The deciding
suite fails, too, if a promise of docs/guarantees.md has no test in it.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from tests.groups import GROUPS, ROOT, groups_of, is_committed, last_passed, note_passed, touched_groups
from tests.support.outcomes import Outcomes
from tests.support.promises import unproven_promises

FLAKY: Final = ROOT / "build" / "flaky"
MAX_FLAKY: Final = 3
MAX_RERUN: Final = 20
"""With more failures than this, something is broken: none of them is run again."""
SLOWEST: Final = 10

# each process of the tests may start a JVM of its own: on two cores, six processes took longer than four
SIDE_BY_SIDE: Final = ("-n", "auto", "--maxprocesses", "4", "--no-loadscope-reorder")
OPTIONS: Final = {
    "deciding": (*SIDE_BY_SIDE, "-m", "not complete", "tests"),
    "complete": (*SIDE_BY_SIDE, "tests"),
    "touched": (*SIDE_BY_SIDE, "-m", "complete"),
    "fast": (
        "-n", "logical", "--no-loadscope-reorder",
        "-m", "not servers and not jvm and not programs and not complete", "tests/unit", "tests/contracts",
    ),
}  # fmt: skip
"""Arguments of pytest."""


@dataclass
class Run:
    """One run of a suite: what pytest said, and what it said of failed tests when they ran again."""

    exit_code: int = 0
    """Of the first run of pytest: 0 passed, 1 tests failed, 5 none was collected, else an error of pytest."""
    outcomes: Outcomes = field(default_factory=Outcomes)
    again: Outcomes | None = None
    """Of the failed tests; None if none failed, or too many."""

    @property
    def failed(self) -> list[str]:
        """Tests that failed, and did not pass afterwards."""
        passed = set(self.again.named("passed")) if self.again else set[str]()
        return [name for name in self.outcomes.named("failed") if name not in passed]

    @property
    def flaky(self) -> list[str]:
        """Tests that failed, and then passed."""
        failed = set(self.failed)
        return [name for name in self.outcomes.named("failed") if name not in failed]

    @property
    def verdict(self) -> str:
        """Why the run fails, or "" if it passes."""
        if self.exit_code not in (0, 1, 5):
            return f"pytest ended with exit code {self.exit_code}"
        if self.exit_code == 1 and not self.outcomes.named("failed"):
            return "pytest reports a failure that belongs to no test"
        if self.failed:
            return f"{len(self.failed)} tests failed"
        if len(self.flaky) > MAX_FLAKY:
            return f"{len(self.flaky)} tests are flaky, and at most {MAX_FLAKY} may be"
        return ""


def run_suite(options: Sequence[str], root: Path = ROOT) -> Run:
    """Run pytest with these arguments, and failed tests once more, alone.

    options: arguments of pytest for the first run; the second runs in one process.
    root: the folder in which pytest runs, and to which ids of tests are relative.
    """
    folder = root / "build" / "tests"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    run = Run(*_pytest(root, folder / "outcomes.json", options))
    failed = run.outcomes.named("failed")
    if run.exit_code == 1 and 0 < len(failed) <= MAX_RERUN:
        print(f"\n{len(failed)} tests failed; they run once more, alone", flush=True)
        (folder / "failed.txt").write_text("\n".join(failed), encoding="utf-8")
        files = dict.fromkeys(name.partition("::")[0] for name in failed)
        alone = ["-n0", "--continue-on-collection-errors", "--only", str(folder / "failed.txt"), *files]
        _, run.again = _pytest(root, folder / "again.json", alone)
    return run


def _pytest(root: Path, outcomes: Path, options: Iterable[str]) -> tuple[int, Outcomes]:
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.outcomes", "--outcomes", str(outcomes), *options]
    print(f"$ {shlex.join(command)}", flush=True)
    return subprocess.run(command, cwd=root).returncode, Outcomes.read(outcomes)


def report(run: Run, took_s: float, idle: float, flaky: Path = FLAKY) -> None:
    """Print what a reader of CI's output looks for: the slowest tests, what was left out, flaky tests, failures.

    idle: the share of `took_s` in which the processors were idle.
    flaky: where the first failure of each flaky test is kept.
    """
    tests = run.outcomes.tests
    print(f"\nslowest tests, of {sum(test.seconds for test in tests.values()):,.0f} process-seconds:")
    for name in sorted(tests, key=lambda name: -tests[name].seconds)[:SLOWEST]:
        print(f"  {tests[name].seconds:6.1f} s  {name}")
    print(f"tests took {took_s:,.0f} s; the processors were idle for {idle:.0%} of it")
    for group, number in left_out(run).items():
        print(f"left out for lack of time: {number} tests of {group}")
    for name in run.flaky:
        print(f"\nflaky: {name} failed, and passed alone afterwards. Find out why, and add it to tests/flaky.md:")
        print(tests[name].failure)
        flaky.mkdir(parents=True, exist_ok=True)
        file = flaky / f"{re.sub(r'[^0-9A-Za-z_.-]+', '_', name)[-150:]}.txt"
        file.write_text(f"{name}\n\n{tests[name].failure}", encoding="utf-8")
    for name in run.failed:
        print(f"failed{' twice' if run.again else ''}: {name}")


def left_out(run: Run) -> Counter[str]:
    """How many tests of each group did not run for lack of time."""
    return Counter(group for name in run.outcomes.named("left out") for group in groups_of(name.partition("::")[0]))


def verdict_of(suite: str, run: Run) -> str:
    """Why the run of a suite fails, or "" if it passes."""
    if suite != "deciding" or run.verdict:
        return run.verdict
    unproven = unproven_promises({name.partition("::")[0] for name in run.outcomes.named("passed")})
    for promise in unproven:
        print(f"a promise of docs/guarantees.md that no test of this suite proves: {promise}")
    return f"{len(unproven)} promises are not proven" if unproven else ""


def main() -> None:
    """Run the suite that the command line names; exit status 1 if it fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.run", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("suite", choices=OPTIONS)
    parser.add_argument("--minutes", type=float, help="begin no test after this time")
    arguments = parser.parse_args()
    options = [*OPTIONS[arguments.suite]]
    if arguments.minutes is not None:
        options += ["--deadline", str(time.time() + 60 * arguments.minutes)]
    groups = list(GROUPS)
    if arguments.suite == "touched":
        groups = touched_groups(last_passed())
        print(f"groups with files that changed since they last passed: {', '.join(groups) or 'none'}")
        if not groups:
            return
        options += [folder for group in groups for folder in GROUPS[group]]
    before, began = psutil.cpu_times(), time.monotonic()
    run = run_suite(options)
    report(run, time.monotonic() - began, _idle_share(before, psutil.cpu_times()))
    verdict = verdict_of(arguments.suite, run)
    if arguments.suite in {"complete", "touched"} and not verdict and is_committed():
        note_passed(set(groups) - set(left_out(run)))
    passed, skipped = len(run.outcomes.named("passed")) + len(run.flaky), len(run.outcomes.named("skipped"))
    print(f"\n{f'error: {verdict}' if verdict else 'the suite passes'}")
    print(f"{passed} passed, {len(run.failed)} failed, {skipped} skipped")
    sys.exit(1 if verdict else 0)


def _idle_share(before: Any, after: Any) -> float:
    spent: dict[str, float] = {name: getattr(after, name) - getattr(before, name) for name in before._fields}
    return (spent["idle"] + spent.get("iowait", 0.0)) / max(sum(spent.values()), 1.0)


if __name__ == "__main__":
    main()
