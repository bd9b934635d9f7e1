"""Bringing a partition's state up to the end of the log, before its owner serves."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from commands.codec import fold, read_snapshot, write_snapshot
from commands.errors import UnreadableSnapshot
from commands.registry import AnyAggregate, CommandRegistry
from commands.state import StateStore
from eventlog import topics
from eventlog.envelope import decode
from eventlog.ports import NEXT_OFFSET, EventLog, Record

CHUNK_RECORDS = 5_000
"""What is in memory at once, and what the store takes over at once."""

_STALE = b""
"""In the store: this stream's snapshot could not be read, and its events are not folded yet."""
_REFOLDING = "refolding"
"""Name of the position that is 1 while the store holds streams whose snapshots could not be read."""

logger = logging.getLogger(__name__)


class Restored(NamedTuple):
    """How much was read: new records of `snapshots` and `receipts`, and streams that were folded from their events."""

    snapshots: int
    receipts: int
    refolded: int


def origin(log: EventLog, registry: CommandRegistry) -> str:
    """Of what a store is a copy: these very topics, and states of this shape.

    A store with another origin knows nothing of use: topics were made anew, or the states are declared otherwise.
    """
    parts = [log.incarnation(topic) for topic in (topics.SNAPSHOTS, topics.RECEIPTS)]
    for name, aggregate in sorted(registry.aggregates.items()):
        parts.append(f"{name}:{aggregate.shape}")
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
    snapshot does not fit the state as it is declared now are folded from their events. Where `stopped` says so, it ends
    early, and the store has what it read until then.
    """
    ends = {topic: log.end(topic, partition) for topic in (topics.SNAPSHOTS, topics.RECEIPTS)}
    for topic, end in ends.items():
        if store.position(topic) > end:
            logger.warning(
                'partition %d: the local state knows "%s" up to %d, but the log ends at %d: rebuilding it',
                partition, topic, store.position(topic), end,
            )  # fmt: skip
            store.clear()
            break
    counts = dict.fromkeys(ends, 0)
    for topic, end in ends.items():
        for chunk in _chunks(log.read(topic, partition, store.position(topic), end)):
            counts[topic] += len(chunk)
            _take(registry, store, topic, chunk)
            if stopped():
                return Restored(counts[topics.SNAPSHOTS], counts[topics.RECEIPTS], 0)
        store.apply({}, {}, {topic: end})
    refolded = _refold(log, registry, partition, store, stopped) if store.position(_REFOLDING) else 0
    return Restored(counts[topics.SNAPSHOTS], counts[topics.RECEIPTS], refolded)


def _take(registry: CommandRegistry, store: StateStore, topic: str, chunk: list[Record]) -> None:
    """Let the store know a run of records of one topic."""
    latest = {record.key: record.value for record in chunk}
    positions = {topic: chunk[-1].offset + 1}
    if topic == topics.RECEIPTS:
        store.apply({}, latest, positions, max(record.timestamp_ms for record in chunk))
        return
    latest.pop(NEXT_OFFSET, None)
    stale = [stream for stream, value in latest.items() if not _is_readable(registry, stream, value)]
    if stale:
        latest.update(dict.fromkeys(stale, _STALE))
        positions[_REFOLDING] = 1
    store.apply(latest, {}, positions)


def _is_readable(registry: CommandRegistry, stream: str, value: bytes | None) -> bool:
    aggregate = _aggregate_of(registry, stream)
    if aggregate is None or value is None:
        return True  # nobody will read it
    try:
        read_snapshot(aggregate, value)
    except UnreadableSnapshot:
        return False
    return True


def _refold(
    log: EventLog, registry: CommandRegistry, partition: int, store: StateStore, stopped: Callable[[], bool]
) -> int:
    """Fold the streams that are marked as stale, in one scan of the partition's events; returns how many there were.

    Only the store remembers how far it came, so that memory stays small, and a scan that was broken off can begin anew:
    an event is folded where it is the next of its stream, and skipped where the snapshot has it.
    """
    logger.warning("partition %d: some snapshots cannot be read, folding their streams from the events", partition)
    streams = 0
    broken: set[str] = set()
    for chunk in _chunks(log.read(topics.EVENTS, partition, 0)):
        folded: dict[str, bytes | None] = {}
        for record in chunk:
            stream, _, version = record.key.rpartition("/")
            aggregate = _aggregate_of(registry, stream)
            if aggregate is None or record.value is None or stream in broken or not version.isdecimal():
                continue
            known = folded[stream] if stream in folded else store.snapshot(stream)
            if known is None:
                continue
            try:
                snapshot = _folded(aggregate, known, int(version), record.value)
            except Exception:  # of a user's rules as well; its commands fail until it is repaired, the others go on
                logger.exception('"%s" cannot be folded at %d:%d', stream, partition, record.offset)
                folded[stream] = _STALE
                broken.add(stream)
                continue
            if snapshot is not known:
                folded[stream] = snapshot
                streams += known == _STALE
        store.apply(folded, {}, {})
        if stopped():
            return streams
    store.apply({}, {}, {_REFOLDING: 0})
    return streams


def _folded(aggregate: AnyAggregate, known: bytes, sequence: int, event: bytes) -> bytes:
    """The snapshot after event number `sequence` of its stream; `known` itself where it has the event."""
    state, version = (aggregate.initial, 0) if known == _STALE else read_snapshot(aggregate, known)
    if sequence <= version:
        return known
    return write_snapshot(aggregate, *fold(aggregate, [decode(event)], state, version))


def _aggregate_of(registry: CommandRegistry, stream: str) -> AnyAggregate | None:
    return registry.aggregates.get(stream.partition("/")[0])


def _chunks(records: Iterable[Record]) -> Iterator[list[Record]]:
    rest = iter(records)
    while chunk := list(islice(rest, CHUNK_RECORDS)):
        yield chunk
