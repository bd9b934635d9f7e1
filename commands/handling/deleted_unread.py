"""Where an owner continues; records that Kafka's retention deleted before they were read are reported."""

from __future__ import annotations

import logging
from contextlib import closing

from eventlog import topics
from eventlog.letters import Letter, time_of
from eventlog.ports import Entry, EventLog, PartitionWriter, Role, abort_on_error
from eventlog.times import now_ms

logger = logging.getLogger(__name__)


def resume_offset(log: EventLog, role: Role, writer: PartitionWriter) -> int:
    """The offset in the topic of `role` at which the partition's owner continues.

    If records from there on were deleted unread, it is the offset of the first remaining record, and an error in the
    log and one dead letter name the lost offsets. Raises EventLogError.
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
    found_ms = now_ms()
    letter = Letter(reason, time_of(found_ms), None, None).to_json(
        topic=role.reads, partition=partition, offset=next_offset
    )
    key = f"{role.reads}/{partition}/{next_offset}-{first - 1}"
    with abort_on_error(writer.begin()) as begun:
        begun.append([Entry(topics.DEAD_LETTERS, key, letter, found_ms)])
        begun.commit(first)
    return first


def begin_at(log: EventLog, role: Role, partition: int, first: int) -> None:
    """Let a role that has never run in a partition begin at the offset `first`: earlier records are not for it."""
    if first == 0 or log.next_offset(partition, role):
        return
    with closing(log.own(partition, role)) as writer:
        if not log.next_offset(partition, role):
            commit_position(writer, first)


def commit_position(writer: PartitionWriter, position: int) -> None:
    """Commit an offset after which only transaction markers follow; else they would look like lost records."""
    with abort_on_error(writer.begin()) as begun:
        begun.commit(position)
