"""`replay reseal`: seal the personal values that the log has in plaintext, from before their fields became personal."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any, Final

import typer

from headwater.commands.reacting.instance_store import PARKED_PREFIX
from headwater.eventlog.kafka.copying import KafkaTopics
from headwater.eventlog.ports import PROCESSES as OWNER
from headwater.eventlog.ports import Entry, EventLog, Record, abort_on_error
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.times import now_ms
from headwater.eventlog.topics import (
    COMMANDS_DAYS,
    DEAD_LETTERS,
    ERASED_DAYS,
    EVENTS,
    OBSERVATIONS,
    PATCHES_DAYS,
    PROCESSES,
    RESEALED,
)
from headwater.projections.errors import RebuildFailed
from headwater.projections.view import View
from headwater.replay.clear_values import ClearValues, Found, Unfit
from headwater.replay.deployment import Deployment, open_deployment
from headwater.replay.erase import SEGMENT_DAYS, SHOWN
from headwater.replay.errors import CannotReseal
from headwater.replay.output import AsJson, confirm, errors, one_line, print_json, say, size_text
from headwater.replay.prune import Yes
from headwater.replay.resealing import Reseal

STORED_S: Final = 60.0
TRANSACTION_RECORDS: Final = 100
"""Of one transaction, so that it stays small also with large states."""


@dataclass
class OtherCopies:
    """Records with plaintext values that are not copied: their keys get a new record, and compaction removes the old.

    instances, letters, waiting: how many process instances, dead letters, and records that wait for an instance. The
    last ones are not sealed, because they must stay in their order; they go when they are handled.
    """

    values: ClearValues
    log: EventLog
    instances: int = 0
    letters: int = 0
    waiting: int = 0

    def look(self) -> None:
        """Count them."""
        for partition in range(self.log.partitions):
            self.instances += len(self._places(PROCESSES, partition, self.values.has_clear_state))
            self.waiting += len(self._places(PROCESSES, partition, self._waits))
        self.letters = len(self._places(DEAD_LETTERS, 0, self.values.has_clear_letter))

    def seal(self) -> None:
        """Write them again, sealed. No owner may run."""
        for partition in range(self.log.partitions):
            entries_of_partition = self._sealed_instances(partition)
            while entries := list(islice(entries_of_partition, TRANSACTION_RECORDS)):
                with closing(self.log.own(partition, OWNER)) as writer, abort_on_error(writer.begin()) as begun:
                    begun.append(entries)
                    begun.commit()
        for record in self._clear(DEAD_LETTERS, 0, self.values.has_clear_letter):
            if (letter := self.values.sealed_letter(record.value or b"")) is not None:
                self.log.submit(Entry(DEAD_LETTERS, record.key, letter, now_ms()), 0).result(STORED_S)

    def lines(self) -> Iterator[str]:
        """What was found, for a user."""
        if self.instances:
            yield f"{self.instances:,} process instances have plaintext values"
        if self.letters:
            yield f"{self.letters:,} dead letters have plaintext values"

    def to_json(self) -> dict[str, int]:
        """For `--json`."""
        return {"instances": self.instances, "letters": self.letters, "waiting": self.waiting}

    def _sealed_instances(self, partition: int) -> Iterator[Entry]:
        for record in self._clear(PROCESSES, partition, self.values.has_clear_state):
            time = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC)
            try:
                if (sealed := self.values.sealed_state(record.key, record.value or b"", time)) is not None:
                    yield Entry(PROCESSES, record.key, sealed, now_ms())
            except Unfit as error:
                raise CannotReseal(PROCESSES, f'"{record.key}": {error}: end the instance') from error

    def _clear(self, topic: str, partition: int, is_clear: Callable[[str, bytes], bool]) -> Iterator[Record]:
        """The records of a partition that have plaintext values, of those that compaction keeps."""
        places = self._places(topic, partition, is_clear)
        end = max(places.values(), default=-1) + 1
        for record in self.log.read(topic, partition, min(places.values(), default=0), end):
            if places.get(record.key) == record.offset:
                yield record

    def _places(self, topic: str, partition: int, is_clear: Callable[[str, bytes], bool]) -> dict[str, int]:
        """By key, the offset of such a record."""
        places: dict[str, int] = {}
        for record in self.log.read(topic, partition, 0):
            if record.value is not None and is_clear(record.key, record.value):
                places[record.key] = record.offset
            else:
                places.pop(record.key, None)
        return places

    def _waits(self, key: str, value: bytes) -> bool:
        return key.startswith(PARKED_PREFIX) and self.values.has_clear(value)


LOCK: Final = "replay reseal"
"""Of the registry, beside those of views; no view has this name."""
COPY_FACTOR: Final = 10
"""Copying, comparing, and both again take about so much longer than to look for plaintext values."""
DELETED_S: Final = 60
"""So long a broker keeps the files of a topic that was deleted."""


def reseal(
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Undo what an interrupted call has begun, if that is still possible.")
    ] = False,
    yes: Yes = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be encrypted.")] = False,
    as_json: AsJson = False,
) -> None:
    """Seal personal values that are in plaintext in the log, because their fields became personal later.

    Stop the handlers, the projections and the API first. `events` and `observations` are copied, compared, deleted,
    created again, and copied back: every record keeps its offset and time. Then the states of process instances and
    dead letters are sealed. At the end it prints which views to rebuild, and what is left until when.

    It asks for confirmation. If it is interrupted, run it again: it goes on, and until then nothing else starts.
    """
    with open_deployment(os.environ) as deployment, ExitStack() as opened:
        values, topics = ClearValues.load(deployment.settings.modules), KafkaTopics(deployment.settings)
        log, generations = deployment.log, deployment.generations

        def copies(check_alone: Callable[[], None] = lambda: None) -> dict[str, Reseal]:
            return {topic: Reseal(topics, values, log, generations, topic, _report, check_alone) for topic in RESEALED}

        if cancel:
            cancelled = [topic for topic, copy in copies(_alone(deployment, opened)).items() if copy.cancel()]
            if as_json:
                print_json({"cancelled": cancelled})
            else:
                say(f"cancelled: {', '.join(cancelled)}" if cancelled else "nothing was begun")
            return
        plan = _look(deployment, values, {topic: copy.is_unfinished for topic, copy in copies().items()})
        if dry_run or not plan.is_needed:
            plan.report(as_json, "would be encrypted" if plan.is_needed else "nothing is in plaintext")
            return
        plan.check()
        _check_stopped(deployment, topics)
        if not yes:
            plan.ask()
        check_lock = _alone(deployment, opened)

        def check_alone() -> None:
            check_lock()
            _check_stopped(deployment, topics)

        resealed = copies(check_alone)
        for topic in plan.topics:
            resealed[topic].run()
        plan.others.seal()
        plan.report(as_json, "sealed")


@dataclass
class Plan:
    """What is in plaintext. found: by topic, without those whose copy is unfinished. scan_s: the time of the scan."""

    settings: LogSettings
    views: Sequence[View]
    others: OtherCopies
    unfinished: list[str] = field(default_factory=list)
    found: dict[str, Found] = field(default_factory=dict)
    scan_s: dict[str, float] = field(default_factory=dict)

    @property
    def topics(self) -> list[str]:
        """The topics to copy."""
        return [topic for topic in RESEALED if topic in self.unfinished or self._clear(topic)]

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.topics or self.others.instances or self.others.letters)

    def check(self) -> None:
        """Raise CannotReseal if there are records that cannot be encrypted."""
        for topic, topic_found in self.found.items():
            if topic_found.unfit:
                named = "; ".join(f"{key}: {reason}" for key, reason in islice(topic_found.unfit.items(), SHOWN))
                raise CannotReseal(
                    topic, f"erase {len(topic_found.unfit):,} records first, which cannot be encrypted: {named}"
                )

    def ask(self) -> None:
        """Return if the user confirms: see `confirm`."""
        for line in self._lines():
            errors().print(one_line(line), soft_wrap=True)
        confirm("Do you want to copy these topics?", "sealed")

    def report(self, as_json: bool, done: str) -> None:
        """Print what was sealed, and what is left."""
        if as_json:
            print_json(self._to_json(done))
            return
        for line in (*self._lines(), done, *(self._left() if self.is_needed else ())):
            say(one_line(line))

    def rebuilt(self) -> list[str]:
        """The views that may have rows of records in clear."""
        return [view.name for view in self.views if any(self._is_read(topic, view) for topic in self.topics)]

    def _clear(self, topic: str) -> int:
        return self.found[topic].clear.total() if topic in self.found else 0

    def _is_read(self, topic: str, view: View) -> bool:
        if not view.reads(topic):
            return False
        return topic == OBSERVATIONS or topic in self.unfinished or any(map(view.handles, self.found[topic].clear))

    def _lines(self) -> Iterator[str]:
        yield f"environment {self.settings.environment}, modules {', '.join(self.settings.modules)}"
        for topic in self.unfinished:
            yield f"{topic}: an interrupted copy goes on"
        for topic, topic_found in self.found.items():
            types = ", ".join(f"{name} {number:,}" for name, number in sorted(topic_found.clear.items()))
            yield (
                f"{topic}: of {topic_found.records:,} records, {topic_found.clear.total():,} have plaintext values, of "
                f"{len(topic_found.persons):,} persons{f' ({types})' if types else ''}"
            )
            if topic_found.clear:
                yield (
                    f"{topic}: {size_text(topic_found.size_bytes)} are copied, which takes about "
                    f"{max(1, round(self.scan_s[topic] * COPY_FACTOR)):,} s, and space for the topic twice more"
                )
            if topic_found.undeclared:
                named = ", ".join(sorted(topic_found.undeclared))
                number = f"{topic_found.undeclared.total():,}"
                yield f"{topic}: {number} records are of types or versions that no module declares: {named}"
            for key, reason in islice(topic_found.unfit.items(), SHOWN):
                yield f"{topic}: {key} cannot be encrypted: {reason}"
        yield from self.others.lines()

    def _left(self) -> Iterator[str]:
        settings = self.settings
        commands_days = min(COMMANDS_DAYS, settings.receipts_days) + 1
        if self.topics:
            yield f"left on the disks of brokers for about {DELETED_S} s: the files of topics that were deleted"
        yield f"left in Kafka for up to {commands_days} days: commands in plaintext"
        yield f"left in Kafka for up to {settings.receipts_days + 2 + SEGMENT_DAYS} days: reasons of rules in receipts"
        yield f"left in Kafka for up to {COMMANDS_DAYS + SEGMENT_DAYS} days: copies for processes"
        yield f"left in Kafka for up to {PATCHES_DAYS + SEGMENT_DAYS} days: patches of views"
        yield (
            f"left in Kafka for up to {ERASED_DAYS} days after the handlers have started: earlier snapshots of states "
            "whose fields became personal, and earlier records of processes and dead letters"
        )
        yield (
            "left until RocksDB removes replaced values: copies on the disks of handlers; delete their state folders "
            "before they start, and they are recreated"
        )
        if self.others.waiting:
            yield f"left until they are handled: {self.others.waiting:,} records that wait for process instances"
        if names := " ".join(self.rebuilt()):
            yield f"left in views until you run: replay rebuild {names} && replay prune {names}"
        yield "left where Headwater has no hand: backups, topics of captured databases, what other programs have copied"

    def _to_json(self, done: str) -> dict[str, Any]:
        document = {
            topic: {
                "records": topic_found.records,
                "clear": topic_found.clear.total(),
                "types": dict(topic_found.clear),
                "persons": len(topic_found.persons),
                "bytes": topic_found.size_bytes,
                "undeclared": dict(topic_found.undeclared),
                "unfit": list(topic_found.unfit),
            }
            for topic, topic_found in self.found.items()
        }
        return {
            "environment": self.settings.environment,
            "modules": list(self.settings.modules),
            "outcome": done,
            "unfinished": self.unfinished,
            "found": document,
            **self.others.to_json(),
            "rebuild": self.rebuilt(),
        }


def _look(deployment: Deployment, values: ClearValues, unfinished: dict[str, bool]) -> Plan:
    """Look for plaintext values; while a copy is unfinished, its topic may not be there."""
    views = list(deployment.views.views.values())
    plan = Plan(deployment.settings, views, OtherCopies(values, deployment.log))
    plan.unfinished = [topic for topic, is_so in unfinished.items() if is_so]
    for topic in RESEALED if values.is_needed else ():
        if topic in plan.unfinished:
            continue
        counts, began = Found(), time.monotonic()
        for partition in range(deployment.settings.partitions):
            for record in deployment.log.read(topic, partition, 0):
                values.look(record.key, record.value, counts)
        plan.found[topic], plan.scan_s[topic] = counts, time.monotonic() - began
    if values.is_needed:
        plan.others.look()
    return plan


def _alone(deployment: Deployment, opened: ExitStack) -> Callable[[], None]:
    """Take the lock that lets one call run at a time, until `opened` is closed; returns what raises if it is lost."""
    deployment.generations.prepare()
    try:
        lock = opened.enter_context(deployment.generations.rebuilding(LOCK))
    except RebuildFailed as error:
        raise CannotReseal(EVENTS, "another `replay reseal` runs: wait until it is done") from error

    def check() -> None:
        with lock.transaction():
            pass

    return check


def _report(topic: str, doing: str) -> None:
    errors().print(f"{topic}: {doing}", soft_wrap=True)


def _check_stopped(deployment: Deployment, topics: KafkaTopics) -> None:
    """Raise CannotReseal if a program of the deployment runs.

    These write, or remember what they have read: members of groups, rebuilds, and the API. A program that was killed is
    a member for some seconds.
    """
    running = [f'"{group}" ({number} members of the group)' for group, number in topics.members().items()]
    running += [f'the rebuild of "{generation.view}"' for generation in deployment.generations.being_built()]
    api = f"{deployment.settings.environment}.api"
    if connections := deployment.generations.connections(api):
        running.append(f'"{api}" ({connections} connections to PostgreSQL)')
    if running:
        raise CannotReseal(EVENTS, f"programs are running: stop {', '.join(running)}")
