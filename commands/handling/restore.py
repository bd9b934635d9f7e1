"""Reads the log up to its end into a partition's state, before its owner serves."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from headwater.commands.codec import has_shape, read_snapshot
from headwater.commands.declaring.registry import AnyAggregate, CommandRegistry
from headwater.commands.errors import UnreadableSnapshot
from headwater.commands.handling.refold import COUNTED, Refolding, chunks, missing, waiting
from headwater.commands.handling.torn_batch import BATCH_KEY, NOT_BEGUN, TornBatch, has_lost_batch
from headwater.commands.local_state.state import StateStore
from headwater.eventlog import topics
from headwater.eventlog.ports import NEXT_OFFSET, EventLog, Record
from headwater.eventlog.times import now_ms

_LAYOUT = "3"
"""The layout of the store; a store with another layout is not used."""
STREAMS_KEY: Final = "streams"
"""Key of the record of `snapshots` with the number of streams that have snapshots. If there are fewer, some are
missing, and these streams are folded from their events: else they would begin again at version 1, and replace their own
events.
"""
RECORDED: Final = "recorded-streams"
"""Position in the store: the number in that record, 0 if there is none."""
ERASURES: Final = "erasures"
"""Key of the record of `snapshots` with the number of transactions that erased events, and the position in the store
with this number: a store of an owner that was away meanwhile has their values in its files."""
PURGED: Final = "purged"
"""Position in the store: up to which of them its files were purged."""
_SEARCHED = "searched"
"""Position in the store: 1 if the events were searched for streams without snapshots, or need not be."""
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
    torn: TornBatch | None = None,
) -> Restored:
    """Read the partition's snapshots and receipts that `store` does not have yet.

    Call it as the owner, or another owner may continue to write. A store that is ahead of the log is rebuilt. Streams
    whose snapshot does not match the state as it is declared now, or is missing, are folded from their events (see
    Refolding); if that fails, their commands fail, and the next restore tries again. If `stopped`, it ends early, and
    the store has what was read. `PendingSnapshots` writes the folded states to the log.

    torn: the torn batch at the end of the log; the state becomes that before it, but for receipts without events.
    """
    log_ends = log.ends((topic, partition) for topic in (topics.SNAPSHOTS, topics.RECEIPTS))
    ends = {topic: end for (topic, _), end in log_ends.items()}
    if torn is not None:
        ends = {topics.SNAPSHOTS: torn.start.snapshots, topics.RECEIPTS: torn.start.receipts}
    for topic, end in ends.items():
        if store.position(topic) > end:
            logger.warning(
                'partition %d: the local state has "%s" up to offset %d, but the log ends at %d: rebuilding it',
                partition, topic, store.position(topic), end,
            )  # fmt: skip
            store.clear()
            break
    if store.position(topics.SNAPSHOTS) and has_lost_batch(log, topics.SNAPSHOTS, partition, store.position):
        logger.warning("partition %d: the local state has a batch that the log has lost: rebuilding it", partition)
        store.clear()
    is_new = not store.position(topics.SNAPSHOTS)
    _note_shapes(registry, store)
    counts = dict.fromkeys(ends, 0)
    for topic, end in ends.items():
        for chunk in chunks(log.read(topic, partition, store.position(topic), end)):
            counts[topic] += len(chunk)
            _take(registry, store, topic, chunk)
            if stopped():
                return Restored(counts[topics.SNAPSHOTS], counts[topics.RECEIPTS], 0)
        store.apply({}, {}, {topic: end})
    if (erasures := store.position(ERASURES)) != store.position(PURGED):
        if not is_new:
            store.purge()
        store.apply({}, {}, {PURGED: erasures})
    if torn is not None:
        # its receipts that stay; compaction may have removed earlier snapshots of its streams
        untrusted = torn.untrusted
        store.apply({}, {key: value for key, value in torn.receipts.items() if key not in untrusted}, {}, now_ms())
        lost = [stream for stream in torn.streams - torn.first_versions if store.snapshot(stream) is None]
        marks = {_UNFOLDED + stream.partition("/")[0]: 1 for stream in lost}
        store.apply(dict.fromkeys(lost, missing()), {}, {**marks, COUNTED: store.position(COUNTED) + len(lost)})
    end = log.end(topics.EVENTS, partition) if torn is None else torn.start.events
    return Restored(
        counts[topics.SNAPSHOTS], counts[topics.RECEIPTS], _refold(log, registry, partition, store, end, stopped)
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
    latest.pop(BATCH_KEY, None)
    if recorded := latest.pop(STREAMS_KEY, None):
        positions[RECORDED] = int(recorded)
    if erasures := latest.pop(ERASURES, None):
        positions[ERASURES] = int(erasures)
    last_known = {record.key: record.value for record in chunk if record.value is not None}
    counted = store.position(COUNTED)
    for stream, value in latest.items():
        name = stream.partition("/")[0]
        known = store.snapshot(stream)
        counted += known is None
        aggregate = registry.aggregates.get(name)
        if value == NOT_BEGUN:
            latest[stream] = None
            counted -= 1
            continue
        if value is None:  # the stream goes on from its last event, whoever deleted the snapshot
            latest[stream] = missing(known, last_known.get(stream))
        if aggregate is None:
            positions[_SHAPE + name] = 0  # its shape does not matter until it is declared again
        elif value is None:
            positions[_UNFOLDED + name] = 1
        elif not _is_readable(aggregate, value):
            latest[stream] = waiting(value)
            positions[_UNFOLDED + name] = 1
    store.apply(latest, {}, {**positions, COUNTED: counted})


def _is_readable(aggregate: AnyAggregate, value: bytes) -> bool:
    if aggregate.sealed_fields is not None:  # reading every state would fetch every key
        return has_shape(aggregate, value)
    try:
        read_snapshot(aggregate, value)
    except UnreadableSnapshot:
        return False
    return True


def _refold(
    log: EventLog, registry: CommandRegistry, partition: int, store: StateStore, end: int, stopped: Callable[[], bool]
) -> int:
    """Fold the streams of the noted aggregates, and those without a snapshot; returns the number of streams.

    end: the offset in `events` at which the folding ends.
    """
    recorded = store.position(RECORDED)
    complete = store.position(COUNTED) < recorded or not (recorded or store.position(_SEARCHED))
    noted = {
        name: aggregate
        for name, aggregate in registry.aggregates.items()
        if complete or store.position(_UNFOLDED + name)
    }
    if not noted and not complete:
        return 0
    if complete:  # streams that an interrupted search has found are folded by the next restore
        store.apply({}, {}, {_UNFOLDED + name: 1 for name in noted})
    refolding = Refolding(log, partition, store, noted, end, complete=complete)
    if refolding.run(stopped):
        folded = {_UNFOLDED + name: 0 for name in noted if name not in refolding.failed}
        failed = {_UNFOLDED + name: 1 for name in refolding.failed}
        store.apply({}, {}, {**folded, **failed, _SEARCHED: 1})
    return refolding.folded
