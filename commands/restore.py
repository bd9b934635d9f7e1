"""Bringing a partition's state up to the end of the log, before its owner serves."""

from __future__ import annotations

import logging

from commands.codec import fold, read_snapshot, write_snapshot
from commands.errors import BrokenStream, UnreadableSnapshot
from commands.registry import AnyAggregate, CommandRegistry
from commands.state import StateStore
from eventlog import topics
from eventlog.envelope import HEARTBEAT, Envelope, decode
from eventlog.errors import NotAnEnvelope
from eventlog.ports import EventLog

logger = logging.getLogger(__name__)


def restore(log: EventLog, registry: CommandRegistry, partition: int, store: StateStore) -> None:
    """Read what `store` does not know yet of the partition's snapshots and receipts.

    Call it as the owner, or another one may go on writing. Streams whose snapshot does not fit the state as it is
    declared now are folded from their events.
    """
    latest: dict[str, dict[str, bytes | None]] = {}
    positions: dict[str, int] = {}
    for topic in (topics.SNAPSHOTS, topics.RECEIPTS):
        positions[topic] = log.end(topic, partition)
        found = log.read(topic, partition, store.position(topic), positions[topic])
        latest[topic] = {record.key: record.value for record in found}
    snapshots = latest[topics.SNAPSHOTS]
    stale = _stale(registry, snapshots)
    if stale:
        logger.warning("partition %d: folding %d streams anew, their snapshots do not fit", partition, len(stale))
        snapshots.update(_refold(log, partition, stale))
    store.apply(snapshots, latest[topics.RECEIPTS], positions)


def _stale(registry: CommandRegistry, snapshots: dict[str, bytes | None]) -> dict[str, AnyAggregate]:
    """The streams whose snapshot cannot be read, with their aggregates."""
    stale = {}
    for stream, value in snapshots.items():
        aggregate = registry.aggregates.get(stream.partition("/")[0])
        if aggregate is None or value is None:
            continue
        try:
            read_snapshot(aggregate, value)
        except UnreadableSnapshot:
            stale[stream] = aggregate
    return stale


def _refold(log: EventLog, partition: int, streams: dict[str, AnyAggregate]) -> dict[str, bytes | None]:
    """New snapshots of `streams`, from the first event on; one scan of the partition for all of them."""
    folded = {stream: (aggregate.initial, 0) for stream, aggregate in streams.items()}
    for record in log.read(topics.EVENTS, partition, 0):
        stream = record.key.rpartition("/")[0]
        if stream not in folded or record.value is None:
            continue
        try:
            envelope: Envelope = decode(record.value)
            if envelope.type != HEARTBEAT:
                folded[stream] = fold(streams[stream], [envelope], *folded[stream])
        except (NotAnEnvelope, BrokenStream) as error:
            # its commands fail until the log is repaired; the others go on
            logger.error('"%s" cannot be folded at %d:%d: %s', stream, partition, record.offset, error)
            del folded[stream]
    return {stream: write_snapshot(*known) for stream, known in folded.items() if known[1]}
