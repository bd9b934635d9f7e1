"""Names of variables that say nothing of what they hold: `python -m tests.names` counts them, and fails on a new one.

The numbers may only shrink: whoever renames some lowers them here.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
NAMES: Final = frozenset({"each", "found", "made", "known", "shown", "held", "kept"})
LEFT: Final = {
    "api": 73,
    "commands": 68,
    "compose": 12,
    "eventlog": 46,
    "headwater": 4,
    "projections": 191,
    "replay": 13,
    "tests": 1835,
}


def bindings(file: Path) -> Iterator[str]:
    """Where a variable or parameter with such a name is bound in a file: `file:line: name`."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            name = node.id
        else:
            continue
        if name in NAMES:
            yield f"{file.relative_to(ROOT)}:{node.lineno}: {name}"


def main() -> int:
    """Compare what is left with `LEFT`."""
    failed = 0
    for package, most in LEFT.items():
        files = sorted(file for file in (ROOT / package).rglob("*.py") if not _is_linked(file))
        places = [place for file in files for place in bindings(file)]
        if len(places) > most:
            print("\n".join(places))
            print(f"{package}: {len(places)} names of this kind, {most} were left: name what the variable holds")
            failed = 1
        elif len(places) < most:
            print(f"{package}: {len(places)} left: lower the number in tests/names.py")
            failed = 1
    return failed


def _is_linked(file: Path) -> bool:
    """Whether it is reached through a link of `headwater/`, which has other packages of this list."""
    return any(folder.is_symlink() for folder in file.parents)


if __name__ == "__main__":
    sys.exit(main())
