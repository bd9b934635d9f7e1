"""Bringing a partition's state up to the end of the log, before its owner serves."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from commands.codec import read_snapshot
from commands.declaring.registry import AnyAggregate, CommandRegistry
from commands.errors import UnreadableSnapshot
from commands.handling.refold import Refolding, chunks, waiting
from commands.local_state.state import StateStore
from eventlog import topics
from eventlog.ports import NEXT_OFFSET, EventLog, Record

_LAYOUT = "2"
"""Of what a store holds: one that was written in another layout is of no use."""
_SHAPE, _UNFOLDED = "shape/", "unfolded/"
"""Names of positions, with an aggregate's name behind: the shape of its state that the store's snapshots have; and 1
while there may be streams of it whose events are still to be folded."""

logger = logging.getLogger(__name__)


class Restored(NamedTuple):
    """How much was read: new records of `snapshots` and `receipts`, and streams that were folded from their events."""

    snapshots: int
    receipts: int
    refolded: int


def origin(log: EventLog) -> str:
    """Of what a store is a copy: these very topics. One with another origin knows nothing of use."""
    parts = [_LAYOUT, *(log.incarnation(topic) for topic in (topics.SNAPSHOTS, topics.RECEIPTS))]
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


def never() -> bool:
    """What is not to be broken off."""
    return False


def restore(
    log: EventLog,
    registry: CommandRegistry,
    partition: int,
    store: StateStore,
    stopped: Callable[[], bool] = never,
) -> Restored:
    """Read what `store` does not know yet of the partition's snapshots and receipts.

    Call it as the owner, or another one may go on writing. A store that is ahead of the log is rebuilt. Streams whose
    snapshot does not fit the state as it is declared now are folded from their events (see Refolding); where that
    fails, their commands fail, and the next restore tries again. Where `stopped` says so, it ends early, and the store
    has what it read until then.
    """
    ends = {topic: log.end(topic, partition) for topic in (topics.SNAPSHOTS, topics.RECEIPTS)}
    for topic, end in ends.items():
        if store.position(topic) > end:
            logger.warning(
                'partition %d: the local state has "%s" up to offset %d, but the log ends at %d: rebuilding it',
                partition, topic, store.position(topic), end,
            )  # fmt: skip
            store.clear()
            break
    _note_shapes(registry, store)
    counts = dict.fromkeys(ends, 0)
    for topic, end in ends.items():
        for chunk in chunks(log.read(topic, partition, store.position(topic), end)):
            counts[topic] += len(chunk)
            _take(registry, store, topic, chunk)
            if stopped():
                return Restored(counts[topics.SNAPSHOTS], counts[topics.RECEIPTS], 0)
        store.apply({}, {}, {topic: end})
    return Restored(
        counts[topics.SNAPSHOTS], counts[topics.RECEIPTS], _refold(log, registry, partition, store, stopped)
    )


def _note_shapes(registry: CommandRegistry, store: StateStore) -> None:
    """Note which aggregates' states are declared otherwise than when the store took their snapshots in."""
    positions: dict[str, int] = {}
    for name, aggregate in registry.aggregates.items():
        shape = int(aggregate.shape, 16)
        if store.position(_SHAPE + name) != shape:
            positions[_SHAPE + name] = shape
            if next(store.snapshots(name), None) is not None:
                positions[_UNFOLDED + name] = 1
    if positions:
        store.apply({}, {}, positions)


def _take(registry: CommandRegistry, store: StateStore, topic: str, chunk: list[Record]) -> None:
    """Let the store know a run of records of one topic."""
    latest = {record.key: record.value for record in chunk}
    positions = {topic: chunk[-1].offset + 1}
    if topic == topics.RECEIPTS:
        store.apply({}, latest, positions, time.time_ns() // 1_000_000)
        return
    latest.pop(NEXT_OFFSET, None)
    for stream, value in latest.items():
        name = stream.partition("/")[0]
        aggregate = registry.aggregates.get(name)
        if aggregate is None:
            positions[_SHAPE + name] = 0  # nobody looks at its shape until it is declared again
        elif value is not None and not _is_readable(aggregate, value):
            latest[stream] = waiting(value)
            positions[_UNFOLDED + name] = 1
    store.apply(latest, {}, positions)


def _is_readable(aggregate: AnyAggregate, value: bytes) -> bool:
    try:
        read_snapshot(aggregate, value)
    except UnreadableSnapshot:
        return False
    return True


def _refold(
    log: EventLog, registry: CommandRegistry, partition: int, store: StateStore, stopped: Callable[[], bool]
) -> int:
    """Fold the streams of those aggregates that are noted; returns how many streams there were."""
    noted = {name: each for name, each in registry.aggregates.items() if store.position(_UNFOLDED + name)}
    if not noted:
        return 0
    refolding = Refolding(log, partition, store, noted)
    if refolding.run(stopped):
        store.apply({}, {}, {_UNFOLDED + name: 0 for name in noted if name not in refolding.failed})
    return refolding.folded
