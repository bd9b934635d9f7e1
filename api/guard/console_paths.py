"""The paths of the console: the only ones at which a browser's session is accepted."""

from __future__ import annotations

from typing import Final

CONSOLE: Final = "/console"
SIGN_IN: Final = "/console/sign-in"
ASSETS: Final = "/console/static/{asset}"


def is_console(path: str) -> bool:
    """Whether a path is one of the console."""
    return path == CONSOLE or path.startswith(f"{CONSOLE}/")


def needs_nobody(path: str) -> bool:
    """Whether a path of the console shows nothing of what is stored, and so needs no caller."""
    start, _, asset = path.rpartition("/")
    return path == SIGN_IN or (start == ASSETS.rpartition("/")[0] and asset != "")
