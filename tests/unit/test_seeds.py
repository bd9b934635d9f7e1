"""What tests draw at random is new in every run, said on failure, and can be repeated."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.seeds import FAST, LONG, LONGER, SEED, choose_seed, examples, repeats, seed_of, some_of

pytestmark = pytest.mark.programs

ROOT = Path(__file__).parents[2]


def test_a_seed_is_drawn_once_and_one_that_is_given_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = set()
    for _ in range(3):
        monkeypatch.setenv(SEED, "")
        choose_seed()
        drawn.add(os.environ[SEED])
    assert len(drawn) > 1
    monkeypatch.setenv(SEED, "7")
    choose_seed()
    assert repeats() == "HEADWATER_SEED=7 repeats what is drawn at random"
    of_seven = [seed_of(number) for number in range(3)]
    assert len(set(of_seven)) == 3
    assert of_seven == [seed_of(number) for number in range(3)]
    monkeypatch.setenv(SEED, "8")
    assert not {seed_of(number) for number in range(3)} & set(of_seven)


def test_a_long_run_takes_more_examples_of_every_property() -> None:
    fast, long = settings.get_profile("fast"), settings.get_profile("long")
    assert (fast.max_examples, long.max_examples) == (FAST, LONG)
    settings.load_profile("long")
    try:
        assert examples(25) == 25 * LONGER
        assert settings().deadline is None
    finally:
        settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or "fast")


def test_a_long_run_leaves_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    choices = ["a", "b", "c", "d", "e"]
    monkeypatch.setenv(SEED, "7")
    try:
        settings.load_profile("fast")
        drawn = [some_of(choices, 2, draw) for draw in range(9)]
        assert drawn == [some_of(choices, 2, draw) for draw in range(9)]
        assert {len(set(each)) for each in drawn} == {2}
        assert {each for some in drawn for each in some} == set(choices), "another draw draws others"
        settings.load_profile("long")
        assert sorted(some_of(choices, 2, 1)) == choices
    finally:
        settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or "fast")


def test_processes_side_by_side_draw_the_same_and_a_failure_says_how_to_repeat_it(tmp_path: Path) -> None:
    fails = (
        "from tests.support.seeds import seed_of\n\ndef test_it():\n    raise AssertionError(f'drew {seed_of(1)}')\n"
    )
    for name in ("test_one.py", "test_two.py"):
        (tmp_path / name).write_text(fails)
    words = ["pytest", "-q", "-p", "xdist.plugin", "-n", "2", "-p", "no:cacheprovider", "-p", "tests.conftest"]
    words += ["--confcutdir", str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if name not in (SEED, "PYTEST_ADDOPTS")}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # to import the others takes longer than the tests
    ran = subprocess.run(
        [sys.executable, "-m", *words, str(tmp_path)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    said = re.findall(r"HEADWATER_SEED=(\d+) repeats what is drawn at random", ran.stdout)
    assert len(said) == 2 and len(set(said)) == 1, ran.stdout + ran.stderr
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(SEED, said[0])
        drew = f"AssertionError: drew {seed_of(1)}"
    assert set(re.findall(r"AssertionError: drew \d+", ran.stdout)) == {drew}
