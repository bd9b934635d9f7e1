"""Says which extra to install if a program's libraries are missing: each program has an extra of its own."""

from __future__ import annotations

from importlib.util import find_spec


def refuse_missing(program: str, extra: str, *libraries: str) -> None:
    """Ends the program if it cannot import one of `libraries`, which the extra installs."""
    missing = [library for library in libraries if find_spec(library) is None]
    if missing:
        raise SystemExit(
            f"error: {program} needs {', '.join(missing)}: run pip install 'headwater[{extra}]' in this environment"
        )
