"""How suites are run: a failure is looked at twice, what was touched is proven, and what takes too long is left out."""

from __future__ import annotations

import subprocess
from dataclasses import astuple
from pathlib import Path

import pytest

from tests.gauge import Size, measure
from tests.groups import GROUPS, PROVEN_BY, ROOT, groups_of, last_passed, note_passed, touched_groups
from tests.run import MAX_FLAKY, Run, left_out, report, run_suite, verdict_of
from tests.support.outcomes import Outcome, Outcomes
from tests.support.promises import promises, unproven_promises

SLOW_FOLDERS = ("acceptance", "containers", "contracts", "integration")
PYTEST = ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:schemathesis", "-q"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a pytest of its own runs."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p xdist.plugin\n")
    return tmp_path


@pytest.mark.programs
def test_what_fails_runs_once_more_and_only_what_fails_twice_fails_the_run(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "test_some.py").write_text(
        "import logging\nfrom pathlib import Path\nimport pytest\n\n"
        "def test_passes():\n    pass\n\n"
        "def test_skipped():\n    pytest.skip('no server')\n\n"
        "@pytest.mark.parametrize('case', ['a::b [1]'])\n"
        "def test_fails_once(case):\n    logging.error('the first time')\n    mark = Path('seen')\n"
        "    seen = mark.exists()\n    mark.touch()\n    assert seen\n\n"
        "def test_fails():\n    assert not 'it never passes'\n"
    )
    run = run_suite(["test_some.py"], folder)
    flaky = "test_some.py::test_fails_once[a::b [1]]"
    assert (run.exit_code, run.flaky, run.failed) == (1, [flaky], ["test_some.py::test_fails"])
    assert run.outcomes.named("passed") == ["test_some.py::test_passes"]
    assert run.outcomes.named("skipped") == ["test_some.py::test_skipped"]
    assert verdict_of("complete", run) == "1 tests failed"
    report(run, 1.0, 0.5, folder / "flaky")
    printed = capfd.readouterr().out
    assert f"flaky: {flaky} failed" in printed
    assert "failed twice: test_some.py::test_fails" in printed
    (kept,) = (folder / "flaky").iterdir()
    assert "assert seen" in kept.read_text() and "the first time" in kept.read_text()
    (folder / "test_some.py").write_text("def test_passes():\n    pass\n")
    assert verdict_of("complete", run_suite(["test_some.py"], folder)) == ""


@pytest.mark.programs
def test_after_the_deadline_no_test_begins(folder: Path) -> None:
    (folder / "test_some.py").write_text("def test_it():\n    pass\n")
    run = run_suite(["--deadline", "0", "test_some.py"], folder)
    assert (run.exit_code, run.outcomes.named("left out"), run.verdict) == (0, ["test_some.py::test_it"], "")


@pytest.mark.programs
def test_what_cannot_be_collected_fails_the_run(folder: Path) -> None:
    (folder / "test_some.py").write_text("import nothing_of_this_name\n")
    assert run_suite(["test_some.py"], folder).verdict
    (folder / "test_flaky.py").write_text(
        "from pathlib import Path\n\n"
        "def test_fails_once():\n    mark = Path('seen')\n    seen = mark.exists()\n    mark.touch()\n    assert seen\n"
    )
    for workers in ("0", "2"):
        (folder / "seen").unlink(missing_ok=True)
        run = run_suite(["-n", workers, "--continue-on-collection-errors", "test_some.py", "test_flaky.py"], folder)
        assert (run.flaky, run.failed) == (["test_flaky.py::test_fails_once"], ["test_some.py"]), "it hides nothing"
        assert run.verdict == "1 tests failed"


def failures(number: int, *, passing: int) -> Run:
    """A run with failed tests, of which some pass when they run again."""
    names = [f"test_some.py::test_{n}" for n in range(number)]
    again = {name: Outcome(outcome="passed" if n < passing else "failed") for n, name in enumerate(names)}
    return Run(1, Outcomes(dict.fromkeys(names, Outcome(outcome="failed"))), Outcomes(again))


def test_a_few_flaky_tests_pass_and_more_do_not() -> None:
    assert failures(MAX_FLAKY, passing=MAX_FLAKY).verdict == ""
    assert failures(MAX_FLAKY + 1, passing=MAX_FLAKY + 1).verdict
    assert failures(2, passing=1).verdict
    assert Run(1, failures(1, passing=1).outcomes, again=None).verdict, "it did not run again"
    assert Run(exit_code=1).verdict and Run(exit_code=3).verdict, "pytest itself failed"


def test_the_deciding_suite_proves_every_promise() -> None:
    files = [files[-1] for files in promises().values()]
    passed = Run(0, Outcomes({f"{file}::test_it": Outcome() for file in files}))
    assert verdict_of("deciding", passed) == ""
    assert unproven_promises(set(files) - {files[0]})
    passed.outcomes.tests[f"{files[0]}::test_it"] = Outcome(outcome="skipped")
    assert verdict_of("deciding", passed).endswith("promises are not proven")


def test_left_out_tests_are_counted_by_their_groups() -> None:
    names = ["tests/contracts/test_views.py::test_it", "tests/unit/capturing/test_sweeping.py::test_it"]
    assert left_out(Run(0, Outcomes({name: Outcome(outcome="left out") for name in names}))) == {
        "contracts": 1, "sources": 1
    }  # fmt: skip


def test_every_slow_test_is_in_one_group_and_every_group_has_tests_of_the_complete_suite() -> None:
    for folder in SLOW_FOLDERS:
        for file in (ROOT / "tests" / folder).rglob("test_*.py"):
            assert len(groups_of(str(file.relative_to(ROOT)))) == 1, file
    for group in GROUPS:
        files = (file for folder in GROUPS[group] for file in (ROOT / folder).rglob("*.py"))
        assert any("mark.complete" in file.read_text() for file in files), group


def test_every_file_of_the_product_is_proven_by_a_group_that_exists() -> None:
    assert {group for groups in PROVEN_BY.values() for group in groups} == set(GROUPS)
    for package in ("api", "commands", "compose", "eventlog", "headwater", "projections", "replay"):
        assert groups_of(f"{package}/errors.py")
    assert groups_of("eventlog/capturing/postgres/engine.py") == ("sources",), "the longest pattern counts"
    assert groups_of("tests/support/seeds.py") == groups_of("Makefile") == ()
    patterns = {pattern.removesuffix("/*") for pattern in PROVEN_BY}
    assert [pattern for pattern in patterns if not (ROOT / pattern).exists()] == []


@pytest.mark.programs
def test_what_changed_since_a_group_passed_is_run_again_and_what_never_ran_comes_first(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", *words], cwd=tmp_path, check=True)

    (tmp_path / "eventlog" / "capturing").mkdir(parents=True)
    (tmp_path / "README.md").touch()
    git("init", "-q")
    git("add", "--all")
    git("commit", "-q", "-m", "the first")
    noted = tmp_path / "complete.txt"
    note_passed([group for group in GROUPS if group != "stack"], noted, tmp_path)
    assert touched_groups(last_passed(noted), tmp_path) == ["stack"]
    (tmp_path / "eventlog" / "capturing" / "sweeping.py").touch()
    git("add", "--all")
    git("commit", "-q", "-m", "the second")
    assert touched_groups(last_passed(noted), tmp_path) == ["stack", "sources"]
    note_passed(["stack", "sources"], noted, tmp_path)
    assert touched_groups(last_passed(noted), tmp_path) == []
    unknown = noted.read_text().replace(last_passed(noted)["api"].commit, "0123abcd")
    noted.write_text(unknown)
    assert "api" in touched_groups(last_passed(noted), tmp_path), "this clone does not have the commit"


def test_the_gauge_counts_statements_and_private_functions_that_are_used_once(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "a.py").write_text(
        '"""Module."""\n\nclass Row:\n    """Class."""\n\n    key: str\n    """Field."""\n\n'
        '    def name(self):\n        """Method."""\n        return _once(self) + _twice(self)\n\n'
        "def _once(row):\n    key = row.key\n    return key\n\ndef _twice(row):\n    return ''\n\n"
        "async def other(row):\n    return _twice(row)\n"
    )
    assert astuple(measure(tmp_path, ["one"])["one"]) == (11, 1, 4, 3, 1)
    assert Size(1, 1, 1, 1, 1) + Size(2, 0, 0, 0, 0) == Size(3, 1, 1, 1, 1)
