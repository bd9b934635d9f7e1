"""Where in `events` and in topics of rows each process begins: stored once, before a handler that knows it starts.

Handlers that start at the same time may each propose an offset; the first record of a process counts. An input that is
added to a process later has a place of its own, so it is not lost while handlers with older code still route.

Each handler also stores the inputs that its code handles, before it serves: what newer code handles waits for that
code. The order in which these sets appear first is the order of the versions, also if a handler with older code starts
again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Final

import orjson

from headwater.commands.declaring.process import AnyProcess
from headwater.commands.handling.refusals import REFUSED
from headwater.commands.owning.resume_offset import LAST_READ, begin_at, note_topic, read_topics, why_lost
from headwater.eventlog import topics
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.ports import ROUTER, Entry, EventLog, Role, abort_on_error, partitions_of_role, topic_ends
from headwater.eventlog.times import now_ms

TIMEOUT_S: Final = 30.0
PLACES_KEY: Final = "processes"
"""Key of the record, beside a role's offsets, with the offsets of processes that are behind; null: it is not behind."""
INCARNATION: Final = "@topic"
"""In that record, of a topic of rows, the id of the topic that the offsets belong to; no process has this name."""

Starts = Mapping[str, Mapping[int, int]]
"""By process, and by the names of its inputs (see input_name), by partition: the offset of its first record."""

logger = logging.getLogger(__name__)


def settle_starts(log: EventLog, processes: Mapping[str, AnyProcess], role: Role = ROUTER) -> Starts:
    """Where each of `processes` begins in what `role` reads; for new ones it is decided now. Raises EventLogError.

    Call it before any handler of this program serves: an event that such a handler appends comes after "now".
    """
    if role is not ROUTER:
        _begin_again(log, role)
    known = read_starts(log, role)
    new = [process for name, process in processes.items() if name not in known]
    for process in new:
        at_origin = dict.fromkeys(partitions_of_role(log, role), 0)
        offsets = at_origin if process.begins == "origin" else _ends(log, role)
        _store(log, role, process.name, process.begins, offsets, inputs_of(process, role))
    for process in processes.values():
        added = [kind for kind in inputs_of(process, role) if input_name(process.name, kind) not in known]
        if process.name in known and added:
            logger.info('process "%s" handles %s from now on', process.name, ", ".join(added))
            _store(log, role, process.name, "now", _ends(log, role), added)
    known = read_starts(log, role)
    if new:
        for process in new:
            if process.name not in known:
                raise LogUnavailable("storing where processes begin", f'"{process.name}" was not stored')
            places = ", ".join(f"{partition}:{offset}" for partition, offset in known[process.name].items())
            logger.info('process "%s" begins in "%s" at %s', process.name, role.reads, places)
    # routers that have never run begin where the first process begins: they need not read earlier events
    for partition in partitions_of_role(log, role) if processes else ():
        begin_at(log, role, partition, min(known[name][partition] for name in processes))
    return known


def read_starts(log: EventLog, role: Role = ROUTER) -> Starts:
    """The stored offsets; those of an earlier topic of the same name do not count, so the new one is read from 0."""
    starts: dict[str, dict[int, int]] = {}
    current = _topics_of(log, role)
    for record in log.read(topics.STARTS, 0, 0):
        name, slash, topic = record.key.partition("/")
        if record.value is None or slash + topic != _suffix(role):
            continue
        begins = orjson.loads(record.value)
        of_record = begins.get("topics", current)
        is_same = {number: both[0] == both[1] for number, both in enumerate(zip(of_record, current, strict=False))}
        offsets = {number: at if is_same.get(number, True) else 0 for number, at in enumerate(begins["offsets"])}
        for source in (name, *(input_name(name, kind) for kind in begins["inputs"])):
            starts.setdefault(source, offsets)
    return starts


def start_of(starts: Starts, name: str, partition: int) -> int:
    """The offset at which an input begins, by its name (see input_name); if none is stored, that of its process."""
    return starts.get(name, starts.get(name.partition("/")[0], {})).get(partition, 0)


def input_name(process: str, kind: str) -> str:
    """The name of one input of a process. kind: the type of its envelopes."""
    return f"{process}/{kind}"


def inputs_of(process: AnyProcess, role: Role) -> list[str]:
    """The types of what a process handles of the topic that `role` reads."""
    if role is ROUTER:
        return sorted(process.events)
    return sorted(row.name for row in process.rows.values() if row.topic == role.reads)


def _store(
    log: EventLog, role: Role, name: str, begins: str, offsets: Mapping[int, int], inputs: Sequence[str]
) -> None:
    """Propose where these inputs of a process begin."""
    value: dict[str, Any] = {
        "begins": begins,
        "offsets": [offsets[partition] for partition in partitions_of_role(log, role)],
        "inputs": inputs,
        "topics": _topics_of(log, role),
    }
    entry = Entry(topics.STARTS, name + _suffix(role), orjson.dumps(value), now_ms())
    log.submit(entry, 0).result(TIMEOUT_S)


def _topics_of(log: EventLog, role: Role) -> list[int] | list[str]:
    """Which topic of its name each partition is of: by the number of `events`, whose copies have the same offsets."""
    if role is ROUTER:
        return [topic.number for topic in read_topics(log, role).values()]
    return [log.incarnation(role.reads)] * len(partitions_of_role(log, role))


def _suffix(role: Role) -> str:
    """End of the keys of a role's records; names of processes have no slash."""
    return "" if role is ROUTER else f"/{role.reads}"


def _ends(log: EventLog, role: Role) -> dict[int, int]:
    """The end of each partition that the role reads."""
    return topic_ends(log, role.reads, partitions_of_role(log, role))


def _begin_again(log: EventLog, role: Role) -> None:
    """Let the routers of a topic that was recreated read it from the start."""
    incarnation = log.incarnation(role.reads)
    for partition in partitions_of_role(log, role):
        if _noted(log, partition, role) == incarnation:
            continue
        with closing(log.own(partition, role)) as writer:
            noted = _noted(log, partition, role)
            if noted == incarnation:
                continue
            if noted is not None:
                logger.warning('partition %d of "%s" was recreated: reading it from the start', partition, role.reads)
            with abort_on_error(writer.begin()) as begun:
                places = orjson.dumps({INCARNATION: incarnation})
                begun.append([Entry(role.owns[0], PLACES_KEY, places, now_ms())])
                begun.commit(0)


def _noted(log: EventLog, partition: int, role: Role) -> object:
    """The id of the topic of rows that the offsets belong to; None if there are none."""
    return orjson.loads(log.last(role.owns[0], partition, PLACES_KEY) or b"{}").get(INCARNATION)


def continue_at_end(log: EventLog) -> dict[int, int]:
    """Let routers go on with events that come from now on, where the log has lost those that they have read.

    Returns where, by partition. Raises EventLogError.
    """
    places = orjson.dumps(dict.fromkeys(name for name in read_starts(log) if "/" in name))
    offsets = dict[int, int]()
    for partition in lost_events(log):
        with closing(log.own(partition, ROUTER)) as writer:
            offsets[partition] = end = log.end(ROUTER.reads, partition)
            number = read_topics(log, ROUTER)[partition].number + 1
            with abort_on_error(writer.begin()) as begun:
                begun.append([note_topic(ROUTER, partition, log.incarnation(ROUTER.reads), number)])
                begun.append([Entry(topics.ROUTED, PLACES_KEY, places, now_ms())])
                begun.append([Entry(topics.ROUTED, LAST_READ, None, now_ms())])
                begun.commit(end)
    return offsets


def lost_events(log: EventLog) -> dict[int, str]:
    """Why the offsets of routers are not those of `events`, by partition, where they are not; see `why_lost`."""
    noted = read_topics(log, ROUTER)
    reasons = {partition: why_lost(log, ROUTER, partition, topic) for partition, topic in noted.items()}
    return {partition: reason for partition, reason in reasons.items() if reason and log.next_offset(partition, ROUTER)}


INPUTS: Final = "/@inputs"
"""End of the keys of these records of `process-starts`; no topic has this name."""

Removed = Mapping[str, frozenset[str]]
"""By process, the types of inputs that earlier versions of its code handled, and this one and later ones do not."""


def settle_inputs(log: EventLog, processes: Mapping[str, AnyProcess]) -> Removed:
    """Store what `processes` handle, and find what they do not handle any more. Raises EventLogError."""
    declared = {
        name: frozenset([*process.events, *process.rows, *([REFUSED] if process.sees_refusals else [])])
        for name, process in processes.items()
    }
    versions = _versions(log)
    for name, inputs in declared.items():
        if inputs not in versions.get(name, ()):
            entry = Entry(topics.STARTS, name + INPUTS, orjson.dumps({"inputs": sorted(inputs)}), now_ms())
            log.submit(entry, 0).result(TIMEOUT_S)
    removed = dict[str, frozenset[str]]()
    for name, versions_of_process in _versions(log).items():
        if name in declared:
            at = versions_of_process.index(declared[name])
            earlier, later = versions_of_process[:at], versions_of_process[at:]
            removed[name] = frozenset().union(*earlier) - frozenset().union(*later)
    return removed


def _versions(log: EventLog) -> dict[str, list[frozenset[str]]]:
    """The sets of each process, in the order in which they appeared first."""
    versions_read: dict[str, list[frozenset[str]]] = {}
    for record in log.read(topics.STARTS, 0, 0):
        if record.key.endswith(INPUTS) and record.value is not None:
            inputs = frozenset(orjson.loads(record.value)["inputs"])
            versions = versions_read.setdefault(record.key.removesuffix(INPUTS), [])
            if inputs not in versions:
                versions.append(inputs)
    return versions_read
