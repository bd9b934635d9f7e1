"""What a process has logged last, for the message of a test that fails: nobody sees the file itself."""

from __future__ import annotations

from pathlib import Path

LINES = 40
CHARACTERS = 300
"""Of a line: one may be a whole document."""


def log_end(file: Path, lines: int = LINES) -> str:
    """The last lines of a log, below its name; what is missing is said."""
    try:
        found = file.read_text(errors="replace").splitlines()[-lines:]
    except OSError as error:
        found = [str(error)]
    return "\n".join([f"\nthe end of {file.name}:", *(each[:CHARACTERS] for each in found)])
