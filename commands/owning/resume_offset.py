"""Where an owner continues; records that Kafka's retention deleted before they were read are reported.

An offset belongs to a topic. If what a role reads was recreated, the offsets of the old topic say nothing
about the new one, so it is read from its start: what was handled before is known by its ids. The same holds if Kafka
has lost the end of the topic, and others were written at the same offsets.
"""

from __future__ import annotations

import hashlib
import logging
from contextlib import closing
from typing import Final, NamedTuple

from headwater.eventlog import topics
from headwater.eventlog.errors import RecordsLost
from headwater.eventlog.letters import Letter, time_of
from headwater.eventlog.ports import (
    ROUTER,
    Entry,
    EventLog,
    PartitionWriter,
    Record,
    Role,
    abort_on_error,
    partitions_of_role,
    record_at,
)
from headwater.eventlog.times import now_ms

STORED_S: Final = 30.0

logger = logging.getLogger(__name__)


class ReadTopic(NamedTuple):
    """What a role has read of a partition: the id of the topic, None if nothing is noted yet.

    number: how many topics of this name, or ends of it that were lost, came before: offsets of each are others.
    """

    id: str | None
    number: int = 0


def read_topics(log: EventLog, role: Role) -> dict[int, ReadTopic]:
    """What is noted last of the topic that a role reads, by partition."""
    noted = dict.fromkeys(partitions_of_role(log, role), ReadTopic(None))
    keys = {_topic_key(role, partition): partition for partition in noted}
    for record in log.read(topics.STARTS, 0, 0):
        if record.key in keys and record.value is not None:
            topic_id, _, number = record.value.decode().partition("~")
            noted[keys[record.key]] = ReadTopic(topic_id, int(number or 0))
    return noted


def note_topic(role: Role, partition: int, topic_id: str, number: int) -> Entry:
    """The record that says which topic the offsets of a role belong to from now on."""
    value = f"{topic_id}~{number}" if number else topic_id
    return Entry(topics.STARTS, _topic_key(role, partition), value.encode(), now_ms())


LAST_READ: Final = "last-read"
"""Key of the record, beside a role's next offset, that names the last record that was read; see `mark_of`."""


def mark_of(record: Record) -> bytes:
    """The offset of a record and a digest of what stays if its topic is copied: no other record has the same."""
    text = f"{record.timestamp_ms} {record.key}".encode(errors="surrogateescape")
    return b"%d %b" % (record.offset, hashlib.blake2b(text, digest_size=8).hexdigest().encode())


def why_lost(log: EventLog, role: Role, partition: int, noted: ReadTopic) -> str:
    """Why the next offset of a role is not one of the log that there is; empty if it is. Follows the topic's name.

    noted: of the partition, see `read_topics`.
    """
    next_offset = log.next_offset(partition, role)
    if noted.id is not None and noted.id != log.incarnation(role.reads):
        return "is another topic than before"
    if next_offset > (end := log.end(role.reads, partition)):
        return f"ends at offset {end}"
    # nobody else notes it, and a search for what is not there reads the whole topic
    if role is ROUTER and (last := log.last(role.owns[0], partition, LAST_READ)) is not None:
        record = record_at(log, role.reads, partition, int(last.partition(b" ")[0]))
        if record is not None and mark_of(record) != last:
            return f"has another record at offset {record.offset} than before"
    return ""


def resume_offset(log: EventLog, role: Role, writer: PartitionWriter) -> int:
    """The offset in the topic of `role` at which the partition's owner continues.

    If records from there on were deleted unread, it is the offset of the first remaining record, and an error in the
    log and one dead letter name the lost offsets. If the topic was recreated, or lost what was read, it is the offset
    of its first record: ids tell what was handled. Events are kept for longer than the receipts of what processes have
    made of them, so their router does not read them again: then it raises RecordsLost. Raises EventLogError.
    """
    partition = writer.partition
    next_offset, first = log.next_offset(partition, role), log.first(role.reads, partition)
    noted, incarnation = read_topics(log, role)[partition], log.incarnation(role.reads)
    if reason := why_lost(log, role, partition, noted):
        if role is ROUTER and next_offset:
            raise RecordsLost(role.reads, partition, next_offset, reason)
        logger.warning('partition %d of "%s" %s: reading it from the start', partition, role.reads, reason)
        next_offset = first
    if reason or noted.id is None:
        with abort_on_error(writer.begin()) as begun:
            begun.append([note_topic(role, partition, incarnation, noted.number + bool(reason))])
            begun.commit(first if reason else None)
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
    for partition, noted in read_topics(log, role).items():
        if noted.id == made_from:
            log.submit(note_topic(role, partition, copy, noted.number), 0).result(STORED_S)


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
