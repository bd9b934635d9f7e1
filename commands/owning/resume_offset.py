"""Where an owner continues; records that Kafka's retention deleted before they were read are reported.

An offset belongs to a topic. If what a role reads was deleted and made again, the offsets of the old topic say nothing
about the new one, so it is read from its start: what was handled before is known by its ids.
"""

from __future__ import annotations

import logging
from contextlib import closing
from typing import Final

from headwater.eventlog import topics
from headwater.eventlog.letters import Letter, time_of
from headwater.eventlog.ports import Entry, EventLog, PartitionWriter, Role, abort_on_error, partitions_of_role
from headwater.eventlog.times import now_ms

STORED_S: Final = 30.0

logger = logging.getLogger(__name__)


def resume_offset(log: EventLog, role: Role, writer: PartitionWriter) -> int:
    """The offset in the topic of `role` at which the partition's owner continues.

    If records from there on were deleted unread, it is the offset of the first remaining record, and an error in the
    log and one dead letter name the lost offsets. If the topic was made again, it is the offset of its first record.
    Raises EventLogError.
    """
    partition = writer.partition
    next_offset, first = log.next_offset(partition, role), log.first(role.reads, partition)
    key, incarnation = _topic_key(role, partition), log.incarnation(role.reads)
    noted = None
    for record in log.read(topics.STARTS, 0, 0):
        if record.key == key and record.value is not None:
            noted = record.value.decode()
    if noted != incarnation:
        if noted is not None:
            logger.warning('partition %d of "%s" was made again: reading it from the start', partition, role.reads)
            next_offset = first
        with abort_on_error(writer.begin()) as begun:
            begun.append([Entry(topics.STARTS, key, incarnation.encode(), now_ms())])
            begun.commit(None if noted is None else first)
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


def _topic_key(role: Role, partition: int) -> str:
    """Key of the record with the id of the topic that a role's offset belongs to; no name of a process has a slash."""
    return f"reads/{role.name}/{partition}"


def follow_copy(log: EventLog, role: Role, made_from: str, copy: str) -> None:
    """Let the offsets of a role belong to a copy of what it reads that has the same records at the same offsets.

    made_from, copy: the ids of the topics. Call it while no owner runs. It may be repeated.
    """
    noted = {each.key: each.value for each in log.read(topics.STARTS, 0, 0)}
    for partition in partitions_of_role(log, role):
        key = _topic_key(role, partition)
        if noted.get(key) == made_from.encode():
            log.submit(Entry(topics.STARTS, key, copy.encode(), now_ms()), 0).result(STORED_S)


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
