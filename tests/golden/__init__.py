"""One event of every version ever released: `<event type>/<version>.json`. They are never changed, only added."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from commands.declaring.aggregate import Event

SHIPPED = Path(__file__).parent
HOW = "`python -m tests.golden` makes what is missing"


def folder(event: type[Event]) -> Path:
    """Where an event's files lie: here for the shipped ones, else in `golden/` beside the module that declares it."""
    if event.__module__.partition(".")[0] == "commands":
        return SHIPPED / event.type
    module = sys.modules[event.__module__].__file__
    assert module is not None
    return Path(module).parent / "golden" / event.type


def path(event: type[Event], version: int) -> Path:
    """The file of one version."""
    return folder(event) / f"{version}.json"


def read(event: type[Event], version: int) -> Mapping[str, Any]:
    """The data of one version, as it was recorded."""
    data = orjson.loads(path(event, version).read_bytes())
    assert isinstance(data, dict)
    return data


def write(event: type[Event], version: int, data: Mapping[str, Any]) -> None:
    """Add the file of one version."""
    path(event, version).parent.mkdir(parents=True, exist_ok=True)
    path(event, version).write_bytes(orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
