"""Places in the code of users, as `file:line`: where something was declared, and where an error was raised."""

from __future__ import annotations

import inspect
import re
import sys
import traceback
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Final

_LIBRARY: Final = re.compile(r"/lib/python3[.\d]*/|^<")
_DECLARING: Final = {"headwater", "pydantic", *sys.stdlib_module_names}
"""Packages whose code runs when a user declares something."""
_HEADWATER: Final = Path(__file__).parents[1]
_SAMPLES: Final = _HEADWATER / "samples"
"""Its files are like those of users."""


@lru_cache(maxsize=10_000)
def is_users(file: str) -> bool:
    """Whether a file belongs to a user: neither to Headwater nor to Python or a library."""
    path = Path(file)
    if _LIBRARY.search(file):
        return False
    return not path.is_relative_to(_HEADWATER) or path.is_relative_to(_SAMPLES)


def innermost(frames: Iterable[tuple[str, int | str | None]]) -> str:
    """The innermost of these places (file and line) that is the user's code; empty if none is."""
    return next((f"{file}:{line}" for file, line in reversed(list(frames)) if is_users(file)), "")


def raised_at(error: BaseException, module: str = "") -> str:
    """Where in the user's code an error was raised; empty if its traceback has none of it.

    module: a module of the user, whose package counts although it may be installed like a library. Of a file that
    Python cannot read, it is the place that Python names.
    """
    if isinstance(error, SyntaxError) and error.filename and not error.filename.startswith("<"):
        return f"{error.filename}:{error.lineno or 1}"
    frames = list(traceback.walk_tb(error.__traceback__))
    own = [(frame.f_code.co_filename, line) for frame, line in frames if is_in_package(frame, module)]
    place = innermost((frame.f_code.co_filename, line) for frame, line in frames)
    return place or next((f"{file}:{line}" for file, line in reversed(own)), "")


def is_in_package(frame: FrameType, module: str) -> bool:
    """Whether a frame belongs to the package of the user's `module`."""
    return bool(module) and package_of(str(frame.f_globals.get("__name__"))) == package_of(module)


def package_of(module: str) -> str:
    """The package that a module of a user is in. The samples, which are like those of users, are one of their own."""
    first, _, rest = module.partition(".")
    return f"{first}.samples" if first == "headwater" and rest.partition(".")[0] == "samples" else first


def called_from() -> str:
    """Where the user's code, which declares something, is now; empty if none of it is running.

    It is the first code outside of Headwater, Python and pydantic: it may be installed like a library.
    """
    for frame, line in traceback.walk_stack(inspect.currentframe()):
        file, module = frame.f_code.co_filename, str(frame.f_globals.get("__name__"))
        if not file.startswith("<") and package_of(module) not in _DECLARING:
            return f"{file}:{line}"
    return ""


def declared_in(module: str, declaration: object) -> str:
    """What errors say of a declaration that was found in `module`: the name of the module, and the place if known."""
    place = place_of(declaration)
    return f'declared in "{module}"' + (f", {place}" if place else "")


def place_of(declaration: object) -> str:
    """Where something was declared: the line that it has noted itself, or that of a class; empty if not known."""
    noted = getattr(declaration, "place", "")
    if noted or not isinstance(declaration, type):
        return str(noted)
    try:
        file = inspect.getsourcefile(declaration)
        _, line = inspect.getsourcelines(declaration)
    except (OSError, TypeError):
        return ""
    return f"{file}:{line}" if file else ""
