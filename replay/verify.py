"""`replay verify | diff`: compare generations row by row, and check the log that they are made from."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Final

import msgspec
import typer

from headwater.eventlog.envelope import Position
from headwater.eventlog.ports import EventLog, Record, topic_ends
from headwater.eventlog.topics import EVENTS
from headwater.projections.errors import GenerationMissing
from headwater.projections.generations.rebuild.rebuild import Step
from headwater.projections.generations.registry.generation import Generation, has_rows_of
from headwater.projections.stores.open import open_reader
from headwater.projections.stores.store import Target
from headwater.replay.comparison import Comparison, Verified, compare
from headwater.replay.comparison import verify as verify_view
from headwater.replay.deployment import Deployment, open_deployment
from headwater.replay.erasing import is_version
from headwater.replay.errors import CannotDiff
from headwater.replay.output import AsJson, print_json, say, show_table
from headwater.replay.verbs import Everything, Outcome, SkipPoison, Views, check_choice, on_each, steps

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
        findings.missing += sum(last - first + 1 for stream in streams.values() for first, last in stream.missing or ())
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


DIFFERENT_EXIT = 3
LOG_ADVICE = (
    "log: some events were appended twice or out of order. Rows may have both records; the receipt, the state and "
    "Kafka's compaction keep the later one. Compare them, and rebuild the views once compaction has removed the "
    'earlier one: see "A broken log" in docs/running.md'
)
GENERATION = re.compile(r"(?P<view>[a-z0-9_]+)(?:@g(?P<number>\d+))?")


def verify(
    views: Views = None, everything: Everything = False, skip_poison: SkipPoison = False, as_json: AsJson = False
) -> None:
    """Rebuild each VIEW separately and compare every row with the live generation. Exit code 3: rows differ.

    Queries and live updates continue. Rows that change meanwhile are compared again. Then the rebuild is dropped.

    The log of events is checked, too: ids are unique, versions are in order, and no event of a stream is earlier than
    the one before it. Exit code 3 if not.
    """
    check_choice(views, everything)
    with open_deployment(os.environ) as deployment:
        declared = deployment.declared(views)
        deployment.generations.prepare()
        rebuilder = deployment.rebuilder()
        with steps() as on_step:
            findings = check_log(deployment.log, on_step)
        outcome = on_each(
            declared,
            lambda name, on_step: verify_view(rebuilder, declared[name], on_step, skip_poison=skip_poison),
            lambda outcome: _report(outcome, findings, as_json),
        )
    is_right = findings.is_sound and all(result.equal for result in outcome.done)
    outcome.exit(0 if is_right else DIFFERENT_EXIT)


def _report(outcome: Outcome[Verified], findings: LogFindings, as_json: bool) -> None:
    if as_json:
        outcome.print_json(to_json=asdict, log=findings.to_json())
    else:
        missing = f"; {findings.missing:,} versions missing, such as of erased events" if findings.missing else ""
        say(
            f"log: {findings.records:,} records checked, {findings.repeated.count:,} ids repeated, "
            f"{findings.out_of_order.count:,} versions out of order, {findings.backwards.count:,} times going back"
            f"{missing}"
        )
        if not findings.is_sound:
            kinds = {
                "repeated id": findings.repeated,
                "version out of order": findings.out_of_order,
                "time going back": findings.backwards,
            }
            rows = [
                (kind, *problem.to_json().values()) for kind, problems in kinds.items() for problem in problems.sample
            ]
            show_table(("problem", "stream", "version", "position", "earlier record"), rows)
            say(LOG_ADVICE)
        for comparison in outcome.done:
            for store in comparison.stores:
                _show(store, f"{comparison.view} g{comparison.generation}", "replay", f"{comparison.view} in ")
    outcome.complain()


def diff(
    left: Annotated[str, typer.Argument(help="`VIEW@g3`, or `VIEW` for its live generation.")],
    right: Annotated[str, typer.Argument(help="The generation to compare with; it may be a view made with --as.")],
    store: Annotated[str, typer.Option(help="The store to compare in; default: the first store that has both.")] = "",
    as_json: AsJson = False,
) -> None:
    """Compare two generations row by row. Exit code 3: rows differ.

    Only live generations are kept up to date. So newer events also show as differences.
    """
    with open_deployment(os.environ) as deployment:
        deployment.generations.prepare()
        ours, theirs = _generation(deployment, left), _generation(deployment, right)
        if not has_rows_of(ours, theirs.declaration):
            raise CannotDiff(left, right, "their declarations differ: see `replay plan`")
        shared = [shared for shared in ours.stores if shared in theirs.stores]
        if store and store not in shared:
            raise CannotDiff(
                left, right, f'store "{store}" does not have both generations: use {" or ".join(shared) or "none"}'
            )
        where = store or shared[0]
        comparison = compare(
            open_reader(where, deployment.stores),
            where,
            _target(deployment, ours, left, right),
            _target(deployment, theirs, left, right),
            lambda: frozenset,
        )
    if as_json:
        print_json({"left": _name(ours), "right": _name(theirs), **asdict(comparison)})
    else:
        _show(comparison, _name(ours), _name(theirs))
    if comparison.differences:
        raise typer.Exit(DIFFERENT_EXIT)


def _generation(deployment: Deployment, text: str) -> Generation:
    match = GENERATION.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f'"{text}" is not a generation: use VIEW@g3, or VIEW for its live generation')
    name, number = match["view"], match["number"]
    if number is None:
        live = deployment.generations.live().get(name)
        if live is not None:
            return live
    known = deployment.generations.of(name)
    if not known:
        deployment.views.view(name)
    for generation in known:
        if number is not None and generation.generation == int(number):
            return generation
    raise GenerationMissing(
        name, None if number is None else int(number), [generation.generation for generation in known]
    )


def _target(deployment: Deployment, generation: Generation, left: str, right: str) -> Target:
    """The generation as a target to read; this code must have the same declaration."""
    view = deployment.views.view(generation.source or generation.view)
    if not has_rows_of(generation, view.declaration) or list(generation.row_types) != view.row_types:
        raise CannotDiff(left, right, f"{_name(generation)} is {generation.tag}: run the code of that version")
    return Target(view.named(generation.view), generation.generation)


def _name(generation: Generation) -> str:
    return f"{generation.view}@g{generation.generation}"


def _show(comparison: Comparison, left: str, right: str, where: str = "") -> None:
    undecided = f", {comparison.undecided:,} undecided because they kept changing" if comparison.undecided else ""
    say(f"{where}{comparison.store}: {comparison.rows:,} rows compared, {comparison.differences:,} differ{undecided}")
    if comparison.sample:
        states = [(row.key, row.left, row.right) for row in comparison.sample]
        rows = [(key, *("missing" if row is None else json.dumps(row) for row in both)) for key, *both in states]
        show_table(("key", left, right), rows)
