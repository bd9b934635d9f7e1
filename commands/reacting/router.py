"""Routing: the owner of a partition of `events` copies the events of processes into `process-inbox`.

An instance needs events of several partitions; for example, an order needs those of its stock. So events are copied
under the key of their instance, and the owner of that partition handles them (`process_task`). Copies and the offset in
`events` are one transaction. The partitions of captured tables and of views are routed in the same way, each table and
each view by a role of its own (`row_router`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any, Final, Protocol

import orjson
from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.process import AnyProcess, ProcessRegistry
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.handling.handler import dead_letter
from headwater.commands.owning.resume_offset import LAST_READ, mark_of, read_topics, why_lost
from headwater.commands.owning.running_code import running
from headwater.commands.reacting.causes import SourcePlace, placed, source_of
from headwater.commands.reacting.starts import INCARNATION, PLACES_KEY, Starts, input_name, start_of
from headwater.commands.reacting.turn import described, read_typed
from headwater.eventlog import topics
from headwater.eventlog.access import Program
from headwater.eventlog.envelope import Envelope, decode
from headwater.eventlog.errors import TRANSIENT, NotAnEnvelope, RecordsLost
from headwater.eventlog.letters import ROUTED_BY
from headwater.eventlog.limits import MAX_COPY_BYTES, MAX_INSTANCE_KEY_BYTES, MAX_TRANSACTION_BYTES, entry_size, size_of
from headwater.eventlog.ports import ROUTER, Entry, EventLog, PartitionWriter, Record, Role, abort_on_error
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.times import now_ms

COMMIT_IDLE_S: Final = 5.0
"""How long a router may leave its offset uncommitted if no event concerns a process; this much is read again."""
IDLE_S: Final = 60.0
MAX_SPAN_OFFSETS: Final = 5_000
"""Of the events that one transaction copies for processes that are behind."""

logger = logging.getLogger(__name__)


def role_reading(topic: str, name: str, partitions: int | None = None) -> Role:
    """A role that reads one topic, with a topic of its own for its offsets.

    name: what it does. partitions: see Role.
    """
    return Role(f"{name}.{topic}", topic, (f"{topics.ROUTED}.{topic}",), partitions)


def places_topic(name: str, partitions: int, settings: LogSettings) -> topics.TopicSpec:
    """The topic for the offsets of such a role. name: of the topic, without the environment."""
    users = frozenset({Program.HANDLER})
    return topics.TopicSpec(name, partitions, topics.compact_settings(settings), users, users)


class Routes(Protocol):
    """Decides what is copied for one record of a topic."""

    inputs: frozenset[str]
    """The names of the inputs that are routed, see input_name."""
    incarnation: str | None
    """The id of the topic, noted beside its offsets; None of events, whose id is noted elsewhere."""
    number: int
    """Of the topic, see ReadTopic; 0 if its id distinguishes it."""

    def route(self, record: Record, accepts: Callable[[str], bool]) -> Sequence[Entry]:
        """One copy for each process that handles the record, or a dead letter.

        accepts: whether the record is routed to an input, by its name.
        """


class Router:
    """Decides what is copied for one event."""

    def __init__(self, commands: CommandRegistry, processes: ProcessRegistry, number: int = 0) -> None:
        """number: of the topic that is read, see ReadTopic; a RoutingTask sets it."""
        self.number = number
        declared = processes.processes.values()
        self.inputs = frozenset(input_name(process.name, kind) for process in declared for kind in process.events)
        self.incarnation: str | None = None
        self._commands, self._by_event = commands, processes.by_event
        self._aggregates = {event_type.partition(".")[0] for event_type in processes.by_event}

    def route(self, record: Record, accepts: Callable[[str], bool]) -> Sequence[Entry]:
        """See Routes.route."""
        # the key starts with the aggregate, so most events need not be parsed
        if record.value is None or record.key.partition("/")[0] not in self._aggregates:
            return ()
        return or_dead_letter(record, lambda: self._copies(record, accepts))

    def _copies(self, record: Record, accepts: Callable[[str], bool]) -> list[Entry]:
        envelope = decode(record.value)
        source = source_of(record.topic, record.partition, self.number)
        value = placed(record.value or b"", SourcePlace(source, record.offset))
        return [copied(process, key, value) for process, key in self.instances(envelope, accepts)]

    def instances(
        self, envelope: Envelope, accepts: Callable[[str], bool] = lambda _: True
    ) -> list[tuple[AnyProcess, str]]:
        """The instances that an event belongs to, even if the rest of it cannot be read. accepts: see Routes.route.

        Such an instance stops at the event, or waits for code that reads it. If its later events were handled first, a
        retry would come too late. Raises the error of the event if its data does not have the key.
        """
        handling = self._by_event.get(envelope.type, ())
        processes = [process for process in handling if accepts(input_name(process.name, envelope.type))]
        if not processes:
            return []
        kind = processes[0].events[envelope.type]
        if kind.sealed_fields is not None:  # keys are in plaintext, and nothing else of it is needed
            named = [(process, key_in_data(process, envelope)) for process in processes]
            if all(key is not None for _, key in named):
                return [(process, key) for process, key in named if key is not None]
        try:
            event = read_typed(self._commands, envelope)
            return [(process, process.identity.of(event)) for process in processes]
        except KeyboardInterrupt:
            raise
        except BaseException:  # also of a user's upcaster or validator
            keys = [(process, key_in_data(process, envelope)) for process in processes]
            instances = [(process, key) for process, key in keys if key is not None]
            if len(instances) < len(keys):
                raise
            return instances


def key_in_data(process: AnyProcess, envelope: Envelope) -> str | None:
    """The key in the data of an event that cannot be read; None if there is none that fits its type."""
    event = process.events[envelope.type]
    data, values = envelope.data, dict[str, Any]()
    if 0 < envelope.data_version < event.version:
        with suppress(ValueError):
            data = event.history.upcast(envelope.data_version, data)
    try:
        for name in process.identity.names:
            value = orjson.dumps(data[name])
            values[name] = _adapter(event, name).validate_json(value)
        return process.identity.of_data(values)
    except (KeyError, ValueError, TypeError, PydanticUserError):  # pydantic's ValidationError is a ValueError
        return None


@lru_cache(maxsize=1_000)
def _adapter(event: type[Event], field: str) -> TypeAdapter[Any]:
    info = event.model_fields[field]
    annotation: Any = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
    return TypeAdapter(annotation, config=event.model_config)


def copied(process: AnyProcess, key: str, value: bytes | None) -> Entry:
    """The record of `process-inbox` for the instance `key`; raises NotAnEnvelope if it or its key is too large."""
    record_key = f"{process.name}/{key}"
    if size_of(record_key) > MAX_INSTANCE_KEY_BYTES:
        raise NotAnEnvelope(f"the key of an instance has more than {MAX_INSTANCE_KEY_BYTES} bytes")
    if (size_bytes := entry_size(record_key, value)) > MAX_COPY_BYTES:
        raise NotAnEnvelope(f"its copy for a process would have {size_bytes} bytes, more than {MAX_COPY_BYTES}")
    # with the current time: retention would delete old events before they are handled
    return Entry(topics.INBOX, record_key, value, now_ms())


def or_dead_letter(record: Record, copies: Callable[[], Iterable[Entry]], *, reader: str = ROUTED_BY) -> list[Entry]:
    """All copies of a record; if making them fails, its dead letter instead. Raises what is TRANSIENT.

    reader: end of the letter's key.
    """
    place = f"{record.topic}/{record.partition}/{record.offset}"
    try:
        with running(f"read, for the {reader}", record.key, record.topic, place):
            return list(copies())
    except (KeyboardInterrupt, *TRANSIENT):
        raise
    except BaseException as error:  # also of a user's upcaster or validator; the partition must continue
        logger.warning("%s is a dead letter", place, exc_info=True)
        return [dead_letter(record, described(error), record.timestamp_ms, reader=reader)]


class RoutingTask:
    """Copies the events of one partition into `process-inbox`, for the processes that handle them; a PartitionTask.

    Events are routed to all processes together, except to inputs that are behind: those of new processes that begin at
    the origin, and those that were not declared for a while, or not yet while a router with older code worked. These
    catch up in order, while the others continue. Changes of rows are routed likewise.
    """

    def __init__(
        self,
        log: EventLog,
        new_router: Callable[[], Routes],
        partition: int,
        starts: Starts,
        role: Role = ROUTER,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """starts: of every process and input, in what `role` reads. clock: returns the time in seconds."""
        self._log, self._partition, self._starts = log, partition, starts
        # each reads records in their order, as the deletions of rows require
        self._router, self._late_router = new_router(), new_router()
        self._role, self._places = role, role.owns[0]
        self._clock = clock
        self._noted = clock()
        self._next_offset = 0
        self._last: Record | None = None
        """Of the records that were read, as of now."""
        self._first_offsets: dict[str, int] = {}
        """For inputs that are not behind, the offset of their first record."""
        self._behind: dict[str, int] = {}
        """For the others, the offset to continue from; inputs that are not declared here stay there: newer code may
        handle them."""

    def restore(self, writer: PartitionWriter, stopped: Callable[[], bool]) -> str:
        """See PartitionTask.restore."""
        self._next_offset = self._log.next_offset(self._partition, self._role)
        if self._role is ROUTER:
            noted = read_topics(self._log, ROUTER)[self._partition]
            if self._next_offset and (reason := why_lost(self._log, ROUTER, self._partition, noted)):
                raise RecordsLost(ROUTER.reads, self._partition, self._next_offset, reason)
            self._router.number = self._late_router.number = noted.number
        kept = orjson.loads(self._log.last(self._places, self._partition, PLACES_KEY) or b"{}")
        kept.pop(INCARNATION, None)
        for name in {*kept, *self._router.inputs}:
            declared = name in self._router.inputs
            start = start_of(self._starts, name, self._partition)
            at = kept.get(name, start)
            is_behind = not declared or (at is not None and at < self._next_offset)
            if at is None:
                at = start if declared else self._next_offset
            (self._behind if is_behind else self._first_offsets)[name] = at
        behind = ", ".join(sorted(self._catching_up()))
        return f"processes catching up: {behind}" if behind else "no process is behind"

    def wait_s(self) -> float:
        """See PartitionTask.wait_s: a router works without new records only if processes are behind."""
        return 0.0 if self._catching_up() else IDLE_S

    def work(self, writer: PartitionWriter, records: Sequence[Record]) -> Sequence[Record]:
        """See PartitionTask.work."""
        entries: list[Entry] = []
        taken = size_bytes = 0
        for record in records:
            if size_bytes >= MAX_TRANSACTION_BYTES:  # also of those for processes that are behind
                break
            offset = record.offset
            copies = self._router.route(record, lambda name: self._first_offsets.get(name, offset + 1) <= offset)  # noqa: B023
            entries += copies
            size_bytes += _size_bytes(copies)
            taken += 1
        if taken:
            self._last = records[taken - 1]
            self._next_offset = self._last.offset + 1
        caught_up = self._catch_up()
        entries += caught_up or []
        if entries or caught_up is not None or (records and self._clock() - self._noted >= COMMIT_IDLE_S):
            self._commit(writer, entries)
        return records[taken:]

    def close(self) -> None:
        """See PartitionTask.close."""

    def _catching_up(self) -> list[str]:
        return [name for name in self._behind if name in self._router.inputs]

    def _catch_up(self) -> list[Entry] | None:
        """What is copied for the processes that are furthest behind; None if none is behind."""
        behind = {name: self._behind[name] for name in self._catching_up()}
        if not behind:
            return None
        start = min(behind.values())
        together = {name for name, at in behind.items() if at == start}
        # not beyond the offset of the next ones, with which they continue together
        end = min([at for at in behind.values() if at > start] + [self._next_offset, start + MAX_SPAN_OFFSETS])
        entries: list[Entry] = []
        size_bytes = 0
        for record in self._log.read(self._role.reads, self._partition, start, end):
            copies = self._late_router.route(record, together.__contains__)
            entries += copies
            size_bytes += _size_bytes(copies)
            if size_bytes >= MAX_TRANSACTION_BYTES:
                end = record.offset + 1
                break
        for name in together:
            self._behind[name] = end
            if end >= self._next_offset:
                del self._behind[name]
                self._first_offsets[name] = end
        return entries

    def _commit(self, writer: PartitionWriter, entries: Sequence[Entry]) -> None:
        places: dict[str, int | str | None] = {**dict.fromkeys(self._first_offsets), **self._behind}
        if self._router.incarnation is not None:
            places[INCARNATION] = self._router.incarnation
        notes = [Entry(self._places, PLACES_KEY, orjson.dumps(places), now_ms())]
        if self._last is not None and self._role is ROUTER:
            notes.append(Entry(self._places, LAST_READ, mark_of(self._last), now_ms()))
        with abort_on_error(writer.begin()) as begun:
            begun.append([*sorted(entries, key=attrgetter("topic")), *notes])
            begun.commit(self._next_offset)
        self._noted = self._clock()


def _size_bytes(entries: Sequence[Entry]) -> int:
    return sum([len(entry.value or b"") for entry in entries])
