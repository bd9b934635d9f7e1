"""Checks the log of events: no id twice, the versions of each stream in order, and no record earlier than the last.

A handler keeps that, also if Kafka commits a part of a transaction. This finds where something else did not.
Kafka's compaction keeps the last record of a key, so after ERASED_DAYS such a record may be gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from headwater.eventlog.envelope import Position
from headwater.eventlog.ports import EventLog, Record, topic_ends
from headwater.eventlog.topics import EVENTS
from headwater.projections.generations.rebuild.rebuild import Step
from headwater.replay.erasing import is_version

SAMPLE: Final = 10
VERSION_DIGITS: Final = 19
"""Of a version with 64 bits."""
STEP_RECORDS: Final = 50_000


@dataclass
class LogProblem:
    """A record that should not be where it is. earlier: the record that contradicts it; None: compacted meanwhile."""

    stream: str
    version: int
    position: Position
    earlier: Position | None

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        earlier = None if self.earlier is None else str(self.earlier)
        return {"stream": self.stream, "version": self.version, "position": str(self.position), "earlier": earlier}


@dataclass
class LogProblems:
    """Those of one kind: their number, and the first of them."""

    count: int = 0
    sample: list[LogProblem] = field(default_factory=list)

    def add(self, problem: LogProblem) -> None:
        """Count one."""
        self.count += 1
        if len(self.sample) < SAMPLE:
            self.sample.append(problem)

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {"count": self.count, "sample": [problem.to_json() for problem in self.sample]}


@dataclass
class LogFindings:
    """The result of a check.

    records: of events and tombstones. missing: versions without a record. Erased events, whose tombstones compaction
    has removed, leave the same gaps, so these are only counted.
    repeated: ids that an earlier record has. out_of_order: versions after a higher one. backwards: records that are
    earlier than the one before them in their stream.
    """

    records: int = 0
    missing: int = 0
    repeated: LogProblems = field(default_factory=LogProblems)
    out_of_order: LogProblems = field(default_factory=LogProblems)
    backwards: LogProblems = field(default_factory=LogProblems)

    @property
    def is_sound(self) -> bool:
        """Whether the log has no problem."""
        return not (self.repeated.count or self.out_of_order.count or self.backwards.count)

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        kinds = {"repeated": self.repeated, "out_of_order": self.out_of_order, "backwards": self.backwards}
        return {
            "records": self.records,
            "missing": self.missing,
            **{name: problems.to_json() for name, problems in kinds.items()},
        }


class _Stream(msgspec.Struct):
    """A stream so far: its highest version and the offset of that; the time before which no event may be.

    missing: the versions below it without a record, as ranges with both ends.
    """

    version: int = 0
    offset: int = -1
    time_ms: int = 0
    missing: list[tuple[int, int]] | None = None


def check_log(log: EventLog, on_step: Callable[[Step], None] = lambda _: None) -> LogFindings:
    """Read all events once, one partition after another; in memory are only the streams of one. Raises LogUnavailable.

    If an id is repeated, its partition is read again up to there for the position of the first record.
    """
    findings = LogFindings()
    ends = topic_ends(log, EVENTS, range(log.partitions))
    done, total = 0, sum(ends.values())
    for partition, end in ends.items():
        streams: dict[str, _Stream] = {}
        before = len(findings.repeated.sample)
        for record in log.read(EVENTS, partition, 0, end):
            if not record.offset % STEP_RECORDS:
                on_step(Step("log", "check", done + record.offset, total))
            name, _, number = record.key.rpartition("/")
            if "/" not in name or len(number) > VERSION_DIGITS or not is_version(number) or number[0] == "0":
                continue  # a heartbeat, or no event
            findings.records += 1
            if (stream := streams.get(name)) is None:
                stream = streams[name] = _Stream()
            _check(findings, stream, name, int(number), record)
        findings.missing += sum(last - first + 1 for each in streams.values() for first, last in each.missing or ())
        if repeated := findings.repeated.sample[before:]:
            firsts, last = dict[str, Position](), repeated[-1].position
            ids = {f"{problem.stream}/{problem.version}" for problem in repeated}
            for record in log.read(EVENTS, partition, 0, last.offset):
                if record.key in ids:
                    firsts.setdefault(record.key, Position(partition, record.offset))
            for problem in repeated:
                first = firsts.get(f"{problem.stream}/{problem.version}", problem.position)
                problem.earlier = first if first < problem.position else None  # compaction may have removed it
        done += end
    return findings


def _check(findings: LogFindings, stream: _Stream, name: str, version: int, record: Record) -> None:
    earlier, problems = stream.offset, None
    if version > stream.version:
        # an owner does not know the time of an erased event, nor of those before it: see `decide_erasure`
        if version > stream.version + 1:
            if stream.missing is None:
                stream.missing = []
            stream.missing.append((stream.version + 1, version - 1))
        elif record.timestamp_ms < stream.time_ms and record.value is not None and not stream.missing:
            problems = findings.backwards
        stream.version, stream.offset = version, record.offset
        stream.time_ms = 0 if record.value is None else record.timestamp_ms
    else:
        was_missing = stream.missing is not None and _remove(stream.missing, version)
        stream.time_ms = 0 if record.value is None else min(stream.time_ms, record.timestamp_ms)
        if record.value is not None:
            problems = findings.out_of_order if was_missing else findings.repeated
    if problems is not None:
        partition = record.partition
        problems.add(LogProblem(name, version, Position(partition, record.offset), Position(partition, earlier)))


def _remove(ranges: list[tuple[int, int]], version: int) -> bool:
    """Remove a version from ranges; returns whether it was in one."""
    for index, (first, last) in enumerate(ranges):
        if first <= version <= last:
            ranges[index : index + 1] = [
                (start, end) for start, end in ((first, version - 1), (version + 1, last)) if start <= end
            ]
            return True
    return False
