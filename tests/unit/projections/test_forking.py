"""The server that the processes of folds are forked from, and the commands that start it early."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.projections.folding.forking import NEEDED, start_server
from headwater.replay.__main__ import folds_here
from tests.support.waiting import BOUND_S

pytestmark = pytest.mark.programs


LOADED = """
from headwater.projections.folding import pool
from headwater.projections.folding.forking import NEEDED, start_server

if __name__ == "__main__":
    start_server()
    with pool.opened(1) as workers:
        loaded = workers._executor.submit(eval, "set(__import__('sys').modules)").result()
    print(sorted(set(NEEDED) - loaded))
"""


def test_processes_begin_with_what_a_fold_needs(tmp_path: Path) -> None:
    """In a program of its own: here, another test may have started the server, with what that needs."""
    (tmp_path / "fold.py").write_text(LOADED)
    ran = subprocess.run([sys.executable, "fold.py"], cwd=tmp_path, capture_output=True, text=True, timeout=BOUND_S)
    assert ran.stdout.split() == ["[]"], ran.stderr


HIDDEN = """
import importlib, sys
from headwater.projections.folding.forking import FORKED, NEEDED, start_server

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # as console scripts do
    start_server()
    for name in NEEDED:
        process = FORKED.Process(target=importlib.import_module, args=(name,))
        process.start()
        process.join(300)
        print(process.exitcode)
"""


def test_they_search_the_folders_of_this_process_in_its_order(tmp_path: Path) -> None:
    """Not the current folder first, which may have a package that is called as a library is."""
    (tmp_path / "confluent_kafka").mkdir()
    (tmp_path / "confluent_kafka" / "__init__.py").write_text("")
    (tmp_path / "fold.py").write_text(HIDDEN)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        [sys.executable, "fold.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert ran.stdout.split() == ["0"] * len(NEEDED), ran.stderr


def test_the_variables_of_this_process_stay_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    before = dict(os.environ)
    start_server()
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("rebuild listings", True),
        ("rebuild --all --json", True),
        ("verify listings", True),
        ("rebuild listings --engine local", True),
        ("rebuild listings --engine spark", False),
        ("rebuild --all --dry-run", False),
        ("rebuild --help", False),
        ("status", False),
        ("", False),
    ],
)
def test_commands_that_fold_are_known_by_their_arguments(command: str, expected: bool) -> None:
    assert folds_here(command.split()) is expected
