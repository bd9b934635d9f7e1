"""Says so if a folder beside the user's package hides a package of Headwater from `python -m`."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]


def refuse_hidden(program: str, command: str, *packages: str) -> None:
    """Ends `python -m PROGRAM` if one of `packages`, which it needs, would be one of the current folder.

    For the first line of the package `program`: what it imports next would fail with an error that explains nothing.
    command: what to run instead. Nothing happens if the package is imported by anything else than `python -m`.
    """
    if sys.argv[:1] != ["-m"]:  # what Python puts there until it has found the module to run
        return
    for name in packages:
        spec = find_spec(name)
        places = [spec.origin, *(spec.submodule_search_locations or ())] if spec else []
        if not any(each and _ROOT in Path(each).resolve().parents for each in places):
            place = next((each for each in places if each), "an unknown place")
            raise SystemExit(
                f'error: "{place}" hides the package "{name}" of Headwater from python -m {program}: run {command}, '
                "which does not look there first, or rename the folder"
            )
