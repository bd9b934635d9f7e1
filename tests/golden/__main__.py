"""`python -m tests.golden`: makes the golden files that are missing, of the events that the contracts are tested on."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from commands.declaring.aggregate import Event
from commands.declaring.registry import AnyAggregate, CommandRegistry
from commands.errors import Rejected
from tests.domains import COVERED
from tests.golden import path, read, write
from tests.spark_histories import random_command

LIVES, COMMANDS = 300, 40


def main() -> int:
    """A first version is one that `decide` made of random commands; a later one is what its predecessor became."""
    registry = CommandRegistry.load(COVERED)
    left = 0
    for aggregate in registry.aggregates.values():
        recorded = recorded_events(aggregate)
        for event in aggregate.events.values():
            for version in range(1, event.version + 1):
                if path(event, version).exists():
                    continue
                data = sample(event, version, recorded)
                if data is None:
                    left += 1
                    print(f"{path(event, version)}: write it by hand, with data as version {version} recorded it")
                else:
                    write(event, version, data)
                    print(f"{path(event, version)}: made")
    return 1 if left else 0


def recorded_events(aggregate: AnyAggregate) -> Mapping[str, Mapping[str, Any]]:
    """The first event of each type that comes up in some random lives of an aggregate, by type."""
    chance = random.Random(1)
    found: dict[str, Mapping[str, Any]] = {}
    for life in range(LIVES):
        state = aggregate.initial
        for _ in range(COMMANDS):
            command = random_command(aggregate, f"A{life}", chance)
            with suppress(Rejected):
                for event in aggregate.decide(command, state) if command else ():
                    state = aggregate.evolve(state, event)
                    found.setdefault(event.type, event.model_dump(mode="json", by_alias=True))
    return found


def sample(event: type[Event], version: int, recorded: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Data of one version; None where there is none to be had."""
    if version > 1 and path(event, version - 1).exists():
        return event.history.upcast(version - 1, read(event, version - 1), until=version)
    return recorded.get(event.type) if version == event.version else None


if __name__ == "__main__":
    sys.exit(main())
