"""Retries dead letters of the write side: sends commands as new commands, and sends processes their events again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec import structs

from headwater.commands.codec import command_record, read_command
from headwater.commands.declaring.process import ProcessRegistry
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import CommandError, UnreadableProcess
from headwater.commands.owning.resume_offset import read_topics
from headwater.commands.reacting.causes import SourcePlace, placed, retried, source_of
from headwater.commands.reacting.instance import read_instance, waits_for
from headwater.commands.reacting.outbox import command_of
from headwater.commands.reacting.router import Router, Routes
from headwater.commands.reacting.row_router import RowRouter, row_role
from headwater.commands.reacting.starts import read_starts, start_of
from headwater.commands.reacting.turn import described, read_typed
from headwater.commands.receipt import Receipt
from headwater.eventlog.envelope import decode, partition_of, timestamp_ms
from headwater.eventlog.errors import NotAnEnvelope
from headwater.eventlog.letters import LOST, ROUTED_BY, SENT_BY, Letter
from headwater.eventlog.ports import ROUTER, Entry, EventLog, Record, Role, record_at
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.times import now_ms
from headwater.eventlog.topics import COMMANDS, DEAD_LETTERS, EVENTS, INBOX, PROCESSES, RECEIPTS
from headwater.replay.erasing import receipt_after
from headwater.replay.errors import CannotRetry, NothingToRetry, Undeclared

TIMEOUT_S: Final = 30.0


def is_resent(key: str) -> bool:
    """Whether the record of a letter is sent again, instead of read again by views."""
    topic, *_, last = key.split("/")
    return topic in (COMMANDS, INBOX, PROCESSES) or last in (ROUTED_BY, SENT_BY)


def is_loss_notice(key: str) -> bool:
    """Whether the letter reports records that were deleted unread: there is nothing to retry."""
    return LOST.fullmatch(key) is not None


class Resender:
    """Sends the records of dead letters again, read by the current aggregates and processes of `settings`."""

    def __init__(self, settings: LogSettings, log: EventLog) -> None:
        self._log, self._patch_partitions = log, settings.patch_partitions
        self._stopped = StoppedInstances(log)
        self._commands, self._processes = CommandRegistry.load(settings.modules), ProcessRegistry.load(settings.modules)

    def resend(self, key: str, letter: Letter) -> Receipt | None:
        """Send the record again, and wait for the receipt if it is a command; processes handle it later.

        Raises CannotRetry if it still cannot be read, or would be ignored; NothingToRetry if nothing needs it any more;
        and LogUnavailable.
        """
        record_key = (letter.key or b"").decode(errors="surrogateescape")
        value = letter.value if letter.value is not None else self._value(key, record_key)
        if key.startswith(f"{COMMANDS}/"):
            return self._decide(key, value)
        if key.startswith(f"{PROCESSES}/"):
            self._read(key, record_key, value)
            return None
        if key.endswith(f"/{SENT_BY}"):
            entries = [self._of_outbox(key, record_key, value)]
        elif key.startswith(f"{INBOX}/"):
            entries = [self._for_instance(key, record_key, value)]
        else:
            entries = self._routed(key, record_key, value)
        for entry in entries:
            self._log.submit(entry, partition_of(entry.key, self._log.partitions)).result(TIMEOUT_S)
        return None

    def _value(self, key: str, record_key: str) -> bytes:
        """The value of a letter that was too large for it; raises CannotRetry if the log does not have it any more."""
        topic, partition, place = key.split("/", 2)
        value_found: bytes | None = None
        if topic == PROCESSES:
            value_found = self._log.last(topic, int(partition), record_key)
        elif (offset := place.partition("/")[0]).isdecimal():
            record = record_at(self._log, topic, int(partition), int(offset))
            value_found = None if record is None else record.value
        if value_found is None and topic == INBOX:
            value_found = self._event_at(record_key)
        if value_found is None:
            raise CannotRetry(key, f'it has no value to send, and "{topic}" does not have the record any more')
        return value_found

    def _event_at(self, record_key: str) -> bytes | None:
        """The event at which an instance has stopped, from `events`: `process-inbox` keeps records for some days."""
        value = self._last_instance(record_key)
        for partition, topic in read_topics(self._log, ROUTER).items() if value is not None else ():
            for record in self._log.read(EVENTS, partition, 0):
                if record.value is not None and waits_for(value, record.key):
                    source = source_of(EVENTS, partition, topic.number)
                    return placed(record.value, SourcePlace(source, record.offset))
        return None

    def _last_instance(self, record_key: str) -> bytes | None:
        return self._log.last(PROCESSES, partition_of(record_key, self._log.partitions), record_key)

    def _decide(self, key: str, value: bytes) -> Receipt:
        """The receipt of a new command with the same body; the old command id would return the first receipt."""
        try:
            command = decode(value)
            typed = read_command(self._commands.command(command.type), command.data, command.time, is_sealed=True)
            again = structs.replace(
                command,
                id=f"{command.id}/retry",
                stream=typed.stream,
                time=datetime.now(UTC),
                correlation_id=command.correlation_id or command.id,
                causation_id=command.id,
            )
            entry = command_record(again, typed.aggregate.identity, typed.body, timestamp_ms(again.time))
        except (NotAnEnvelope, CommandError) as error:
            raise CannotRetry(key, f"it is still not a valid command: {error}") from error
        partition = partition_of(typed.stream, self._log.partitions)
        start = self._log.end(RECEIPTS, partition)
        self._log.submit(entry, partition).result(TIMEOUT_S)
        if (receipt := receipt_after(self._log, again, partition, start, TIMEOUT_S)) is None:
            problem = f"no handler answered within {TIMEOUT_S:g} s; the command was sent, look up its receipt later"
            raise CannotRetry(key, problem)
        return receipt

    def _read(self, key: str, record_key: str, value: bytes) -> None:
        """Nothing is sent: the instance handles its waiting events once handlers run code that can read it."""
        name, _, instance = record_key.partition("/")
        process = self._processes.processes.get(name)
        if process is None:
            raise CannotRetry(key, f'process "{name}" is not declared')
        try:
            read_instance(process, instance, value)
        except UnreadableProcess as error:
            raise CannotRetry(key, str(error)) from error

    def _for_instance(self, key: str, record_key: str, value: bytes) -> Entry:
        """The record at which an instance has stopped."""
        try:
            event_id = decode(value).id
        except NotAnEnvelope as error:
            raise CannotRetry(key, f"it still cannot be read: {error}") from error
        if not self._stopped.wait_for(record_key, event_id):
            raise NothingToRetry(key, f'"{record_key}" has handled it since, or has ended')
        return Entry(INBOX, record_key, value, now_ms())

    def _routed(self, key: str, record_key: str, value: bytes) -> list[Entry]:
        """The copies of an event or a row that a router could not read, for the processes that handle it."""
        topic, *place = key.split("/")
        partition, offset = map(int, place[:2])
        if topic != EVENTS and any(record.key == record_key for record in self._log.read(topic, partition, offset + 1)):
            raise NothingToRetry(key, "the row has changed since, and its processes have seen the later change")
        if topic == EVENTS:  # its instance would only stop at one that cannot be read
            try:
                read_typed(self._commands, decode(value))
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # also of a user's upcaster or validator
                raise CannotRetry(key, f"it still cannot be read: {described(error)}") from error
        router, role = self._router(key, topic)
        starts = read_starts(self._log, role)

        def route(record: Record) -> Sequence[Entry]:
            at = record.offset
            return router.route(record, lambda name: start_of(starts, name, partition) <= at)

        record = Record(topic, partition, offset, record_key, value, timestamp_ms(datetime.now(UTC)))
        copies = route(record)
        for copy in copies:
            if copy.topic == DEAD_LETTERS:
                raise CannotRetry(key, f"it still cannot be read: {Letter.from_json(copy.value or b'').reason}")
        if not copies:
            if others := sorted({name.partition("/")[0] for name in starts} - self._processes.processes.keys()):
                raise Undeclared(key, "processes", others)
            raise NothingToRetry(key, "no process of this deployment handles it")
        later = list[Entry]()  # copies of later events of the stream
        if topic == EVENTS:
            stream = decode(value).stream
            for later_record in self._log.read(EVENTS, partition, offset + 1):
                if later_record.value is not None and later_record.key.rpartition("/")[0] == stream:
                    later += route(later_record)
        entries = [entry for copy in copies for entry in self._in_order(copy, later)]
        if not entries:
            raise CannotRetry(
                key,
                "nothing was sent, because its process instances have handled later events of its stream: they would "
                "see it out of order",
            )
        return [structs.replace(entry, value=retried(entry.value or b"")) for entry in entries]

    def _in_order(self, copy: Entry, later: Sequence[Entry]) -> list[Entry]:
        """What an instance can handle of an event and the later ones of its stream; all of them if it has not begun."""
        following = [record for record in later if record.key == copy.key]
        return [] if following and self._last_instance(copy.key) is not None else [copy, *following]

    def _of_outbox(self, key: str, record_key: str, value: bytes) -> Entry:
        """The command of a message; its id is the one that it would have had."""
        topic, *place = key.split("/")
        partition, offset = map(int, place[:2])
        record = Record(topic, partition, offset, record_key, value, timestamp_ms(datetime.now(UTC)))
        try:
            entry = command_of(self._commands, topic.split(".")[1], record)
        except (NotAnEnvelope, CommandError) as error:
            raise CannotRetry(key, f"it is still not a valid command: {error}") from error
        if entry is None:
            raise NothingToRetry(key, "its message is not a command")
        return entry

    def _router(self, key: str, topic: str) -> tuple[Routes, Role]:
        if topic == EVENTS:
            number = read_topics(self._log, ROUTER)[int(key.split("/")[1])].number
            return Router(self._commands, self._processes, number), ROUTER
        if topic not in self._processes.by_topic:
            raise CannotRetry(key, f'no process handles rows of "{topic}"')
        return RowRouter(self._log, self._processes, topic), row_role(topic, self._patch_partitions)


_MARK: Final = b'"stopped":'
"""Bytes that the record of an instance contains if it has stopped; most have not."""


class StoppedInstances:
    """What the log says of stopped instances, always up to its end: each record is read once."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._read: dict[int, int] = {}
        """By partition, the offset up to which it was read."""
        self._found: dict[str, bytes] = {}

    def wait_for(self, record_key: str, event_id: str) -> bool:
        """Whether an instance has stopped at this event or timer. record_key: of the instance."""
        partition = partition_of(record_key, self._log.partitions)
        end = self._log.end(PROCESSES, partition)
        for record in self._log.read(PROCESSES, partition, self._read.get(partition, 0), end):
            if record.value is not None and _MARK in record.value:
                self._found[record.key] = record.value
            else:
                self._found.pop(record.key, None)
        self._read[partition] = end
        return waits_for(self._found.get(record_key), event_id)
