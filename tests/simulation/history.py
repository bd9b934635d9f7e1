"""What clients asked and were told, what the log holds, and every way in which the two can disagree.

The log is the order of events; real time bounds it: a command takes effect between the moment it was first sent and the
moment of its first answer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from headwater.commands.receipt import KEY_REUSED, WRONG_VERSION, Receipt
from tests.simulation.tally import TOO_MANY


class Stored(NamedTuple):
    """An event as it lies in the log: `sequence` in its stream, the command that caused it, its place."""

    stream: str
    sequence: int
    command_id: str
    position: str


@dataclass
class Asked:
    """One command of one client, with all its answers; times in seconds of one clock.

    answers: the receipts in the order in which they came. reuse: the answer to its id with another body, if tried.
    """

    command_id: str
    stream: str
    times: int
    at_most: int
    expected: int | None
    sent: float
    answered: float = float("inf")
    answers: list[Receipt] = field(default_factory=list)
    reuse: Receipt | None = None

    def take(self, receipt: Receipt, at: float) -> None:
        """Note an answer."""
        self.answered = min(self.answered, at)
        self.answers.append(receipt)


def complaints(asked: Sequence[Asked], log: Sequence[Stored]) -> Iterator[str]:
    """Everything that is wrong; nothing where all is well."""
    streams: dict[str, list[Stored]] = defaultdict(list)
    for event in log:
        streams[event.stream].append(event)
    commands = {each.command_id: each for each in asked}
    for stream, events in streams.items():
        yield from _disorder(stream, events, commands)
    caused: dict[str, list[Stored]] = defaultdict(list)
    for event in log:
        caused[event.command_id].append(event)
    for each in asked:
        yield from _wrong_answers(each, caused.get(each.command_id, []))
    for stream in {event.stream for event in asked}:
        ours = [event for event in asked if event.stream == stream]
        yield from _untimely(ours, streams.get(stream, []), commands)


def _disorder(stream: str, events: Sequence[Stored], commands: Mapping[str, Asked]) -> Iterator[str]:
    """Gaps, repetitions, halves, and events of nobody's."""
    sequences = [event.sequence for event in events]
    if sequences != list(range(1, len(events) + 1)):
        yield f"{stream}: the log holds events {sequences}, and each number belongs there once, in order"
    runs: list[tuple[str, int]] = []
    for event in events:
        if runs and runs[-1][0] == event.command_id:
            runs[-1] = (event.command_id, runs[-1][1] + 1)
        else:
            runs.append((event.command_id, 1))
    seen = set()
    for command_id, length in runs:
        command = commands.get(command_id)
        if command is None or command.stream != stream:
            yield f"{stream}: nobody asked for the events of {command_id}"
        elif length != command.times:
            yield f"{stream}: {length} of the {command.times} events of {command_id} follow each other"
        if command_id in seen:
            yield f"{stream}: {command_id} took effect twice"
        seen.add(command_id)


def _wrong_answers(asked: Asked, caused: Sequence[Stored]) -> Iterator[str]:
    """Answers that the log does not bear out, and answers to one command that differ."""
    name = asked.command_id
    if any(answer != asked.answers[0] for answer in asked.answers):
        yield f"{name}: a retry was given another answer than the first: {asked.answers}"
    if asked.reuse is not None and (asked.reuse.error is None or asked.reuse.error.code != KEY_REUSED):
        yield f"{name}: its id was accepted for another command: {asked.reuse}"
    if asked.answers:
        accepted = asked.answers[0].outcome == "accepted"
        yield from _wrongly_accepted(asked, caused) if accepted else _wrongly_refused(asked, caused)


def _wrongly_accepted(asked: Asked, caused: Sequence[Stored]) -> Iterator[str]:
    name, answer = asked.command_id, asked.answers[0]
    told = [(event.id, str(event.position)) for event in answer.events]
    held = [(f"{event.stream}/{event.sequence}", event.position) for event in caused]
    if told != held or len(held) != asked.times:
        yield f"{name}: acknowledged with {told}, and the log holds {held}"
    if asked.expected is not None and answer.version - asked.times != asked.expected:
        yield f"{name}: accepted at version {answer.version - asked.times}, and {asked.expected} was expected"
    if answer.version > asked.at_most:
        yield f"{name}: accepted up to {answer.version}, against the rule of {asked.at_most}"


def _wrongly_refused(asked: Asked, caused: Sequence[Stored]) -> Iterator[str]:
    name, answer = asked.command_id, asked.answers[0]
    if caused:
        yield f"{name}: {answer.outcome}, and yet the log holds {len(caused)} events of it"
    match answer.outcome, answer.error.code if answer.error else "":
        case "conflict", code if code == WRONG_VERSION:
            if asked.expected is None or answer.version == asked.expected:
                yield f"{name}: a conflict at version {answer.version}, and {asked.expected} was expected"
        case "rejected", code if code == TOO_MANY:
            if answer.version + asked.times <= asked.at_most:
                yield f"{name}: rejected at version {answer.version}, where the rule allows it"
        case outcome, code:
            yield f"{name}: answered {outcome} {code}, which nothing here should be"


def _untimely(asked: Sequence[Asked], events: Sequence[Stored], commands: Mapping[str, Asked]) -> Iterator[str]:
    """Answers about a version that was over before the command was sent, or not there yet when it was answered."""
    answered = sorted((each.answered, each.answers[0].version) for each in asked if each.answers)
    times, latest = [at for at, _ in answered], list(accumulate((version for _, version in answered), max, initial=0))
    by_sequence = {event.sequence: event for event in events}
    for each in asked:
        if not each.answers:
            continue
        first = each.answers[0]
        seen = first.version - each.times if first.outcome == "accepted" else first.version
        known = latest[bisect_left(times, each.sent)]
        if seen < known:
            yield f"{each.command_id}: decided at version {seen}, though {known} had been answered before it was sent"
        event = by_sequence.get(seen)
        if seen and event is None:
            yield f"{each.command_id}: decided at version {seen}, which {each.stream} never had"
        elif event is not None and event.command_id in commands and commands[event.command_id].sent > each.answered:
            yield f"{each.command_id}: decided at version {seen}, which was asked for after its answer"
