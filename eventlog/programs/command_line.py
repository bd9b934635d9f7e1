"""How a program was called, for its help and its errors."""

from __future__ import annotations

import sys
from pathlib import Path


def called_as() -> str | None:
    """The name of a console script, such as `headwater run`; None for `python -m …`, which has a name of its own."""
    name = Path(sys.argv[0]).name
    return None if name == "__main__.py" else name
