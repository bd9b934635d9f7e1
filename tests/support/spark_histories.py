"""Random histories of aggregates: what `decide` makes of random commands, as events in the order of the log."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from headwater.commands.declaring.registry import AnyAggregate
from headwater.commands.errors import Rejected
from headwater.commands.testing.sampling import IDS, random_command
from headwater.eventlog.envelope import Envelope, Position, encode, partition_of
from headwater.projections.table.expressions import Source

START_MS = 1_767_323_045_000


def history(aggregates: Sequence[AnyAggregate], seed: int, events: int, partitions: int) -> list[Source]:
    """At least so many events; offsets have gaps, and some times are equal."""
    chance = random.Random(seed)
    states: dict[str, Any] = {}
    versions: dict[str, int] = {}
    ends, now_ms = [0] * partitions, START_MS
    found: list[Source] = []
    for _ in range(100 * events):
        if len(found) >= events:
            return found
        aggregate = chance.choice(aggregates)
        # an aggregate may come to its end, as a sold listing does: others follow
        command = random_command(aggregate, f"{chance.choice(IDS)} {len(found) // 20}", chance)
        if command is None:
            continue
        stream = f"{aggregate.name}/{aggregate.identity.of(command)}"
        try:
            decided = aggregate.decide(command, states.get(stream, aggregate.initial))
        except Rejected:
            continue
        for event in decided:
            states[stream] = aggregate.evolve(states.get(stream, aggregate.initial), event)
            versions[stream] = versions.get(stream, 0) + 1
            partition = partition_of(stream, partitions)
            ends[partition] += chance.choice((1, 1, 2, 5))
            now_ms += chance.choice((0, 0, 1, 1700))
            time = datetime.fromtimestamp(now_ms / 1000, UTC)
            name = f"{stream}/{versions[stream]}"
            data = event.model_dump(mode="json", by_alias=True)
            made = Envelope(name, event.type, stream, time, data, sequence=versions[stream])
            found.append(Source(made, Position(partition, ends[partition]), now_ms, encode(made).decode()))
    raise AssertionError(f"only {len(found)} events after {100 * events} commands: draw commands that are accepted")
