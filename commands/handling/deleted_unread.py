"""Where an owner goes on from, and what Kafka's retention has deleted before it was read: that is never silent."""

from __future__ import annotations

import logging
import time

from eventlog import topics
from eventlog.letters import Letter, time_of
from eventlog.ports import Entry, EventLog, PartitionWriter, Role, abort_on_error

logger = logging.getLogger(__name__)


def resume_offset(log: EventLog, role: Role, writer: PartitionWriter) -> int:
    """The offset in what `role` reads from which the partition's owner goes on.

    If records from there on were deleted unread, it is that of the first that is left, and the log of errors and one
    dead letter tell which are lost. Raises EventLogError.
    """
    partition = writer.partition
    next_offset, first = log.next_offset(partition, role), log.first(role.reads, partition)
    if first <= next_offset:
        return next_offset
    reason = (
        f'offsets {next_offset} to {first - 1} of partition {partition} of "{role.reads}" were deleted before the '
        f"{role.name} read them: it was stopped for longer than the topic keeps records"
    )
    logger.error("%s", reason)
    now_ms = time.time_ns() // 1_000_000
    letter = Letter(reason, time_of(now_ms), None, None).to_json(
        topic=role.reads, partition=partition, offset=next_offset
    )
    key = f"{role.reads}/{partition}/{next_offset}-{first - 1}"
    with abort_on_error(writer.begin()) as begun:
        begun.append([Entry(topics.DEAD_LETTERS, key, letter, now_ms)])
        begun.commit(first)
    return first


def commit_position(writer: PartitionWriter, position: int) -> None:
    """Commit a place behind which only marks of transactions lie, or their deletion would look like that of records."""
    with abort_on_error(writer.begin()) as begun:
        begun.commit(position)
