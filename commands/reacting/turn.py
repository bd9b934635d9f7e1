"""The changes of one transaction of a process's owner. This is the only place that calls `react`, which may fail."""

from __future__ import annotations

import logging
import secrets
import traceback
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from msgspec import structs

from headwater.commands.codec import read_event
from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.process import AnyProcess, ProcessRegistry
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.handling.handler import dead_letter
from headwater.commands.handling.refusals import REFUSED, read_refused
from headwater.commands.owning.running_code import running
from headwater.commands.reacting.causes import TIMED_OUT, SourcePlace, Timer, digest, place_of, timer_id
from headwater.commands.reacting.instance import Instance, Step, write_instance
from headwater.commands.reacting.instance_store import parked, released
from headwater.commands.reacting.row_changes import read_row
from headwater.commands.reacting.starts import Removed
from headwater.eventlog import topics
from headwater.eventlog.envelope import Envelope, decode, encode, timestamp_ms
from headwater.eventlog.errors import TRANSIENT, NotAnEnvelope
from headwater.eventlog.hidden_values import places_of_error, without_values
from headwater.eventlog.letters import letter_key
from headwater.eventlog.limits import MAX_TRANSACTION_BYTES
from headwater.eventlog.ports import Entry, Record
from headwater.eventlog.tracing import spans
from headwater.eventlog.tracing.spans import Facts, Span

MAX_TURN_ENTRIES: Final = 5_000

logger = logging.getLogger(__name__)


class Turn:
    """The changed instances, and the records to append for them, in one transaction.

    changed: by record key, the instance and its record; None if it has ended. released: how many waiting records were
    handled, by record key. released_places: their record keys and offsets in `process-inbox`. traced: the spans of
    the reactions whose traces are sampled.
    """

    def __init__(
        self,
        commands: CommandRegistry,
        processes: ProcessRegistry,
        removed: Removed,
        partition: int,
        known: Callable[[str], Instance | None],
        now: datetime,
        first_place: int = 0,
    ) -> None:
        """removed: see settle_inputs. known: the instance before the transaction, of a record key. now: in UTC.

        first_place: added to the offsets of records that wait, see ProcessTask.
        """
        self._first_place = first_place
        self.changed: dict[str, tuple[Instance | None, bytes | None]] = {}
        self.letters: list[Entry] = []
        self.parked: list[Record] = []
        self.released: Counter[str] = Counter()
        self.released_places: list[tuple[str, int]] = []
        self.traced: list[Span] = []
        self._registry, self._processes, self._partition = commands, processes.processes, partition
        self._removed, self._known, self._now, self._now_ms = removed, known, now, timestamp_ms(now)
        self._parking: set[str] = set()
        self._commands: list[Entry] = []
        self._tombstones: list[Entry] = []
        self._count = self._size_bytes = 0
        self._decoded: tuple[Record, Envelope] | None = None

    @property
    def is_full(self) -> bool:
        """Whether the rest should be another transaction."""
        return self._count >= MAX_TURN_ENTRIES or self._size_bytes >= MAX_TRANSACTION_BYTES

    def current(self, key: str) -> Instance | None:
        """The current instance of a record key; raises UnreadableProcess."""
        return self.changed[key][0] if key in self.changed else self._known(key)

    def entries(self) -> list[Entry]:
        """All records to append, topic by topic; those of `parked` come first."""
        kept = [parked(record) for record in self.parked]
        instances = [Entry(topics.PROCESSES, key, value, self._now_ms) for key, (_, value) in self.changed.items()]
        return [*kept, *instances, *self._tombstones, *self._commands, *self.letters]

    def add_letter(self, letter: Entry) -> None:
        """Append a dead letter that is not about a record of `process-inbox`."""
        self.letters.append(letter)
        self._spend(len(letter.value or b""))

    def parks(self, key: str) -> bool:
        """Whether something waits for an instance since this turn."""
        return key in self._parking

    def park(self, record: Record) -> None:
        """Keep a record of `process-inbox` until the earlier ones are handled."""
        self.parked.append(structs.replace(record, offset=self._first_place + record.offset))
        self._parking.add(record.key)
        self._spend(len(record.value or b""))

    def release(self, key: str, record: Record | None, inbox_offset: int) -> None:
        """Handle the first record that waits for an instance."""
        self.released[key] += 1
        self.released_places.append((key, inbox_offset))
        self._tombstones.append(released(key, inbox_offset, self._now_ms))
        self._spend(0)
        if record is not None:
            self.handle(record)

    def resumes(self, record: Record) -> bool:
        """Whether the instance has stopped at this record."""
        instance = self.current(record.key)
        return instance is not None and self.is_cause(record, instance.stopped)

    def is_cause(self, record: Record, stopped: str | None) -> bool:
        """Whether an instance that has `stopped` there (a digest) has stopped at this record."""
        if stopped is None:
            return False
        try:
            return digest(self._decode(record).id) == stopped
        except NotAnEnvelope:
            return False

    def newer_type(self, record: Record) -> str | None:
        """The type of a record that only newer code handles; None if this code does, or earlier code did."""
        try:
            envelope = self._decode(record)
        except NotAnEnvelope:
            return None
        name = record.key.partition("/")[0]
        is_new = is_newer(self._processes[name], envelope, self._removed.get(name, frozenset()))
        return envelope.type if is_new else None

    def refuse(self, record: Record) -> None:
        """Make a record of `process-inbox` a dead letter again, because its instance cannot be read."""
        reason = f'"{record.key}" cannot be read by this version of the code: deploy one that can, then retry'
        self.letters.append(dead_letter(record, reason, self._now_ms))
        self._spend(0)

    def handle(self, record: Record) -> None:
        """Let the instance handle a record of `process-inbox`; if it fails, it stops there, with a dead letter."""
        instance = self.current(record.key)
        name, _, key = record.key.partition("/")
        process = self._processes[name]
        try:
            envelope = self._decode(record)
            place = place_of(record.value, envelope)
        except NotAnEnvelope as error:  # not written by a router: routers copy only what they can read
            self.letters.append(dead_letter(record, str(error), self._now_ms))
            return
        span = None
        if envelope.traceparent is not None:
            facts = _facts(process, envelope.type, envelope.id)
            span = spans.continued(f"react {process.name}", envelope.traceparent, "consumer", facts)
        if span is not None:
            envelope = structs.replace(envelope, traceparent=span.traceparent)
        with running("react", envelope.type, record.key, envelope.id, envelope.traceparent):
            step, failure = self._attempt(
                process,
                record.key,
                lambda: next_step(self._registry, process, key, instance, envelope, place, self._now),
                span,
            )
        if failure is not None:
            self.letters.append(dead_letter(record, failure, self._now_ms))
            self._stop(instance or Instance(process, key, process.initial), envelope.id)
        elif step is None and instance is not None and instance.stopped == digest(envelope.id):
            # the declaration changed, and no longer handles it
            resumed = instance.resume() if instance.has_begun else None  # else its start is given up
            self._take(record.key, Step(resumed, None if resumed is None else write_instance(resumed), []))

    def fire(self, key: str, timer: str) -> None:
        """Fire a timer of the instance, if it is still set."""
        instance = self.current(key)
        if instance is None or instance.stopped is not None or timer not in instance.timers:
            return  # a record of this turn has ended or stopped the instance, or cancelled the timer
        if instance.timers[timer].due_ms > self._now_ms:
            return
        set_for = instance.timers[timer]
        cause_id = timer_id(instance.key, timer, set_for)
        span = None
        if set_for.traceparent is not None:  # a trace of its own, because it may fire after days
            facts, links = _facts(instance.process, TIMED_OUT, cause_id), [set_for.traceparent]
            span = spans.begun(f"react {instance.process.name}", "internal", facts, links, always=True)
        context = None if span is None else span.traceparent
        with running("react", timer, key, cause_id, context):
            _, failure = self._attempt(instance.process, key, lambda: instance.fire(timer, self._now, context), span)
        if failure is not None:
            letter = dead_letter(timed_out(instance, timer, self._partition), failure, self._now_ms)
            at = f"{topics.INBOX}/{self._partition}/timer/{key}/{timer}@{set_for.due_ms}"
            self.letters.append(structs.replace(letter, key=letter_key(at)))
            self._stop(instance, cause_id)

    def _attempt(
        self, process: AnyProcess, key: str, react: Callable[[], Step | None], span: Span | None
    ) -> tuple[Step | None, str | None]:
        """Take the result of a user's `react`; returns it, or why it failed. Raises what is TRANSIENT.

        Neither the log nor the reason has the text of an error of a process that has personal values at hand. span: of
        the reaction; one of an instance that ignores what it has handled before is not ended, and so not exported.
        """
        step, failure = None, None
        try:
            step = react()
        except (KeyboardInterrupt, *TRANSIENT):
            raise
        except BaseException as error:  # noqa: BLE001 - a user's code may raise anything; the partition must continue
            failure = _logged_failure(process, key, error)
        if step is not None:
            self._take(key, step)
        if span is not None and (step is not None or failure is not None):
            sent = 0 if step is None else len(step.commands)
            span.note({"headwater.commands": sent}, error="" if failure is None else "failed")
            self.traced.append(span)
        return step, failure

    def _take(self, key: str, step: Step) -> None:
        self.changed[key] = step.instance, step.value
        self._commands += step.commands
        for entry in step.commands:
            self._spend(len(entry.value or b""))
        self._spend(len(step.value or b""))

    def _stop(self, instance: Instance, cause_id: str) -> None:
        stopped = instance.stop(cause_id)
        self._take(instance.record_key, Step(stopped, write_instance(stopped), []))

    def _decode(self, record: Record) -> Envelope:
        if self._decoded is None or self._decoded[0] is not record:
            self._decoded = record, decode(record.value)
        return self._decoded[1]

    def _spend(self, size_bytes: int) -> None:
        self._count += 1
        self._size_bytes += size_bytes


def is_newer(process: AnyProcess, envelope: Envelope, removed: frozenset[str]) -> bool:
    """Whether only newer code of a process handles an envelope. removed: what only earlier code has handled."""
    event = process.events.get(envelope.type)
    if event is not None:
        return envelope.data_version > event.version
    if envelope.type == TIMED_OUT or envelope.type in process.rows or envelope.type in removed:
        return False
    return envelope.type != REFUSED or not process.sees_refusals


def next_step(
    registry: CommandRegistry,
    process: AnyProcess,
    key: str,
    instance: Instance | None,
    envelope: Envelope,
    place: SourcePlace,
    now: datetime,
) -> Step | None:
    """The result of an envelope of `process-inbox` for the instance `key`; None if the instance ignores it.

    instance: as it is now; None if it has not begun, or has ended. place: see Instance.handle. Raises
    BadReaction, any error of `react`, and NotAnEnvelope or UnknownCommand if this code cannot read the envelope.
    """
    if envelope.type == TIMED_OUT:
        name = str(envelope.data.get("timer"))
        timer = instance.timers.get(name) if instance else None
        if instance is None or timer is None or timer_id(key, name, timer) != envelope.id:
            return None  # it was handled, or replaced
        return instance.fire(name, now, envelope.traceparent)
    if envelope.type == REFUSED:
        if instance is None or not process.sees_refusals:
            return None
        return instance.handle(read_refused(registry, envelope), envelope, place, now)
    row = process.rows.get(envelope.type)
    if row is None and envelope.type not in process.events:
        return None
    if instance is None and envelope.type not in process.starting:
        return None
    event = read_typed(registry, envelope) if row is None else read_row(row, envelope)
    return (instance or Instance(process, key, process.initial)).handle(event, envelope, place, now)


def _logged_failure(process: AnyProcess, key: str, error: BaseException) -> str:
    """Why a process failed, which is logged."""
    error_id = secrets.token_hex(8)
    facts = {"instance": key, "error_id": error_id}
    text = 'error %s: process instance "%s" stops, and its later events wait: fix the cause and retry its dead letter'
    if process.is_personal:
        reason = f"{type(error).__name__}, see the handler's log"
        logger.error(f"{text}\n%s", error_id, key, places_of_error(error), extra=facts)
    else:
        reason = described(error)
        logger.error(text, error_id, key, exc_info=error, extra=facts)
    return f'process "{process.name}" failed, error {error_id}: {reason}'


def _facts(process: AnyProcess, cause_type: str, cause_id: str) -> Facts:
    """What the span of a reaction is about; its commands carry its context."""
    return {
        "headwater.reaction.process": process.name,
        "headwater.cause.type": cause_type,
        "headwater.cause.id": cause_id,
    }


def described(error: BaseException) -> str:
    """The type and message of a user's error, whose message may itself fail."""
    return without_values("".join(traceback.format_exception_only(error)).strip())


def read_typed(registry: CommandRegistry, envelope: Envelope) -> Event:
    """The typed event of an envelope, in the current version; raises NotAnEnvelope (UnreadableEvent is one)."""
    aggregate = registry.aggregates.get(envelope.type.partition(".")[0])
    if aggregate is None:
        raise NotAnEnvelope(f'no aggregate has the event "{envelope.type}"')
    return read_event(aggregate, envelope)


def timed_out(instance: Instance, name: str, partition: int) -> Record:
    """A record of `process-inbox` that lets an instance handle the timer at which it failed."""
    timer: Timer = instance.timers[name]
    due = datetime.fromtimestamp(timer.due_ms / 1000, UTC)
    envelope = Envelope(
        id=timer_id(instance.key, name, timer),
        type=TIMED_OUT,
        stream="headwater.timers",
        time=due,
        data={"timer": name},
        traceparent=timer.traceparent,
    )
    return Record(topics.INBOX, partition, -1, instance.record_key, encode(envelope), timer.due_ms)
