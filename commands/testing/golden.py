"""Golden files: one event per released version, `<event type>/<version>.json`. Add files, never change them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.golden_files import GoldenFiles
from headwater.commands.declaring.registry import AnyAggregate
from headwater.commands.errors import Rejected
from headwater.commands.testing.sampling import random_command

LIVES: Final = 300
COMMANDS: Final = 40


class Made(NamedTuple):
    """A golden file that was missing. made: False if no data was found for it."""

    path: Path
    version: int
    made: bool


def add_missing(aggregate: AnyAggregate, files: GoldenFiles) -> Iterator[Made]:
    """Write the missing golden files of an aggregate's events.

    The data is the file of the version before, upcast by one version; without such a file, and only for the current
    version, an event that `decide` made from random commands.
    """
    recorded = cache(lambda: _recorded(aggregate))
    for event in aggregate.events.values():
        for version in range(1, event.version + 1):
            if files.path(event, version).exists():
                continue
            data = _sample(event, version, recorded, files)
            if data is not None:
                files.write(event, version, data)
            yield Made(files.path(event, version), version, data is not None)


def _recorded(aggregate: AnyAggregate) -> Mapping[str, Mapping[str, Any]]:
    """The first event of each type in some random histories of an aggregate, by type."""
    chance = random.Random(1)
    fields: dict[str, Mapping[str, Any]] = {}
    for life in range(LIVES):
        if fields.keys() == aggregate.events.keys():
            break
        state = aggregate.initial
        for _ in range(COMMANDS):
            command = random_command(aggregate, f"A{life}", chance)
            with suppress(Rejected):
                for event in aggregate.decide(command, state) if command else ():
                    state = aggregate.evolve(state, event)
                    fields.setdefault(event.type, event.model_dump(mode="json", by_alias=True))
    return fields


def _sample(
    event: type[Event], version: int, recorded: Callable[[], Mapping[str, Mapping[str, Any]]], files: GoldenFiles
) -> Mapping[str, Any] | None:
    """Data of one version; None if none was found."""
    if version > 1 and files.path(event, version - 1).exists():
        return event.history.upcast(version - 1, files.read(event, version - 1), until=version)
    return recorded().get(event.type) if version == event.version else None
