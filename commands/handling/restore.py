"""Reads the log up to its end into a partition's state, before its owner serves."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from typing import NamedTuple

from commands.codec import read_snapshot
from commands.declaring.registry import AnyAggregate, CommandRegistry
from commands.errors import UnreadableSnapshot
from commands.handling.refold import Refolding, chunks, waiting
from commands.local_state.state import StateStore
from eventlog import topics
from eventlog.ports import NEXT_OFFSET, EventLog, Record
from eventlog.times import now_ms

_LAYOUT = "2"
"""The layout of the store; a store with another layout is not used."""
_SHAPE, _UNFOLDED = "shape/", "unfolded/"
"""Prefixes of positions, followed by an aggregate's name: the shape of its state in the store's snapshots; and 1 while
it may have streams whose events are still to be folded.
"""

logger = logging.getLogger(__name__)


class Restored(NamedTuple):
    """How much was read: new records of `snapshots` and `receipts`, and streams that were folded from their events."""

    snapshots: int
    receipts: int
    refolded: int


def origin(log: EventLog) -> str:
    """The topics that a store is a copy of. A store with another origin is not used."""
    parts = [_LAYOUT, *(log.incarnation(topic) for topic in (topics.SNAPSHOTS, topics.RECEIPTS))]
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


def never() -> bool:
    """Never stopped."""
    return False


def restore(
    log: EventLog,
    registry: CommandRegistry,
    partition: int,
    store: StateStore,
    stopped: Callable[[], bool] = never,
) -> Restored:
    """Read the partition's snapshots and receipts that `store` does not have yet.

    Call it as the owner, or another owner may continue to write. A store that is ahead of the log is rebuilt. Streams
    whose snapshot does not match the state as it is declared now are folded from their events (see Refolding); if that
    fails, their commands fail, and the next restore tries again. If `stopped`, it ends early, and the store has what
    was read.
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
    """Note the aggregates whose state has another declaration than when the store read their snapshots."""
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
    """Add records of one topic to the store."""
    latest = {record.key: record.value for record in chunk}
    positions = {topic: chunk[-1].offset + 1}
    if topic == topics.RECEIPTS:
        store.apply({}, latest, positions, now_ms())
        return
    latest.pop(NEXT_OFFSET, None)
    for stream, value in latest.items():
        name = stream.partition("/")[0]
        aggregate = registry.aggregates.get(name)
        if aggregate is None:
            positions[_SHAPE + name] = 0  # its shape does not matter until it is declared again
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
    """Fold the streams of the noted aggregates; returns the number of streams."""
    noted = {name: each for name, each in registry.aggregates.items() if store.position(_UNFOLDED + name)}
    if not noted:
        return 0
    refolding = Refolding(log, partition, store, noted)
    if refolding.run(stopped):
        store.apply({}, {}, {_UNFOLDED + name: 0 for name in noted if name not in refolding.failed})
    return refolding.folded
