"""What is damaged in a checkpoint, as far as its files show it: Spark fails for ever at what a power failure left."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from headwater.projections.generations.registry.state_files import StateFolder, names, sizes

_LOGS: Final = ("offsets", "commits")
_READ_ENTRIES: Final = 2
"""Of each log, when a query starts: of the last batch, and of the one before."""
_HEAD: Final = re.compile(r"v[0-9]+\n")
_STATE_FILE: Final = re.compile(r"([0-9]+)(?:_[^.]*)?\.(?:changelog|zip)")
"""The changes of one version of a store, or all of it; the first of these names is by version alone."""


def damaged_file(folder: StateFolder) -> str | None:
    """The first file of Spark's checkpoint `folder` that is missing or cannot be read, by its path in it; None if there
    is none.

    Version N + 1 of each store is the state after batch N. What a batch that has not ended left is written again.
    """
    begun = _numbers(folder / "offsets")
    if not begun:
        return None
    if not _is_json(folder / "metadata"):
        return "metadata"
    for log in _LOGS:
        for number in _numbers(folder / log)[-_READ_ENTRIES:]:
            if not _HEAD.match((folder / log / str(number)).read_text(errors="replace")):
                return f"{log}/{number}"
    committed = _numbers(folder / "commits")
    return next(_damaged_state(folder / "state", committed[-1] + 1), None) if committed else None


def _damaged_state(state: StateFolder, version: int) -> Iterator[str]:
    """The files of the state, at this version, that are missing or empty."""
    stores = defaultdict[PurePosixPath, dict[int, int]](dict)
    for name, size in sizes(state).items():
        file = PurePosixPath("state", name)
        if file.parent.name == "_metadata" and not file.name.startswith(".") and size == 0:
            yield str(file)
        if named := _STATE_FILE.fullmatch(file.name):
            number = int(named[1])
            stores[file.parent][number] = max(stores[file.parent].get(number, 0), size)
    for store, found in stores.items():
        if not found.get(version):
            yield str(store / f"{version}.changelog")


def _numbers(log: StateFolder) -> list[int]:
    return sorted(int(each) for each in names(log) if each.isdecimal())


def _is_json(file: StateFolder) -> bool:
    try:
        return isinstance(json.loads(file.read_text()), dict)
    except (FileNotFoundError, ValueError):
        return False
