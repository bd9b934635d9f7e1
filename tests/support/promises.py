"""The promises of docs/guarantees.md, and the tests that it names for each."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "guarantees.md"
ROW: Final = re.compile(r"^\| (?!-|promise |server )(.+) \|$", re.MULTILINE)
TEST_FILE: Final = re.compile(r"`(tests/[^`]+/test_\w+\.py)`")


def promises() -> dict[str, list[str]]:
    """Rows of the tables of promises: the whole row, and the files of tests in its last column."""
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    return {row: TEST_FILE.findall(row.rpartition(" | ")[2]) for row in rows}


def unproven_promises(passed: Collection[str]) -> list[str]:
    """The promises of which no file of tests is among those with a test that passed."""
    return [row.partition(" | ")[0] for row, files in promises().items() if not set(files) & set(passed)]
