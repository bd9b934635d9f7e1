"""How a program was called, for its help and its errors."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path


def called_as() -> str | None:
    """The name of a console script, such as `headwater run`; None for `python -m …`, which has a name of its own."""
    name = Path(sys.argv[0]).name
    return None if name == "__main__.py" else name


def print_error(text: str) -> None:
    """Print one line on standard error, red on a terminal, without wrapping."""
    from rich.console import Console  # noqa: PLC0415 - not every program that says how it was called has it

    Console(stderr=True, highlight=False, markup=False, emoji=False).print(text, style="red", soft_wrap=True)


def refuse_missing(program: str, extra: str, *libraries: str) -> None:
    """Ends the program if it cannot import one of `libraries`, which the extra installs."""
    missing = [library for library in libraries if find_spec(library) is None]
    if missing:
        raise SystemExit(
            f"error: {program} needs {', '.join(missing)}: run pip install 'headwater[{extra}]' in this environment"
        )
