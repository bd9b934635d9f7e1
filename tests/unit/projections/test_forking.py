"""The server that the processes of folds are forked from, and the commands that start it early."""

from __future__ import annotations

import pytest

from projections.folding import pool
from projections.folding.forking import NEEDED, start_server
from replay.__main__ import folds_here


def test_processes_begin_with_what_a_fold_needs() -> None:
    start_server()
    with pool.opened(1) as workers:
        loaded = workers._executor.submit(eval, "set(__import__('sys').modules)").result(60)
    assert set(NEEDED) <= loaded


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
