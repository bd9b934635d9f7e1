"""The outbox of a captured database: commands that its application writes to the write-ahead log, in its transactions.

    SELECT pg_logical_emit_message(true, 'headwater.command', '{"type": "payment.refund", "body": {"payment_id": "P"}}')

Debezium writes such messages to one topic, in the order of commits. The owner of its only partition appends them to
`commands`, in a transaction with its offset.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Final

import msgspec
from msgspec import structs

from headwater.commands.codec import command_record, read_command
from headwater.commands.declaring.exact_numbers import may_be_rounded
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import TooLarge
from headwater.commands.owning.resume_offset import begin_at
from headwater.commands.reacting.router import COMMIT_IDLE_S, IDLE_S, or_dead_letter, places_topic, role_reading
from headwater.eventlog.access import Program
from headwater.eventlog.actors import OUTBOX_ACTOR
from headwater.eventlog.capturing.declaring import Source
from headwater.eventlog.capturing.naming import COMMAND_PREFIX, MESSAGES, source_topics, topic_about
from headwater.eventlog.capturing.positions import lsn_text
from headwater.eventlog.envelope import CLIENT, OUTBOX, Envelope
from headwater.eventlog.errors import NotAnEnvelope
from headwater.eventlog.letters import SENT_BY
from headwater.eventlog.limits import MAX_BODY_BYTES
from headwater.eventlog.ports import Entry, EventLog, PartitionWriter, Record, Role, abort_on_error
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.times import now_ms
from headwater.eventlog.topics import TopicSpec

FORM: Final = '{"type": "payment.refund", "body": {…}}, with id, expected_version and correlation_id if you need them'
MAX_ID_CHARACTERS: Final = 10_000


class _Content(msgspec.Struct):
    prefix: str
    content: bytes
    """Base64 in JSON."""


class _Place(msgspec.Struct):
    lsn: int
    ts_ms: int


class _Message(msgspec.Struct):
    message: _Content
    source: _Place


class _Command(msgspec.Struct, forbid_unknown_fields=True):
    """A command, in the form that `POST /commands` takes."""

    type: str
    body: dict[str, Any]
    id: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_ID_CHARACTERS)] | None = None
    expected_version: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    traceparent: str | None = None


class _Body(msgspec.Struct):
    """The body of a command, as text."""

    body: msgspec.Raw


class _Type(msgspec.Struct):
    """The type of a command, whose other members may be wrong."""

    type: str


_TYPE: Final = msgspec.json.Decoder(_Type)
_BODY: Final = msgspec.json.Decoder(_Body)
_MESSAGE: Final = msgspec.json.Decoder(_Message)
_COMMAND: Final = msgspec.json.Decoder(_Command)


def outbox_role(source: Source) -> Role:
    """The role that sends the commands of a source."""
    return role_reading(topic_about(source, MESSAGES), SENT_BY)


def outbox_topics(settings: LogSettings, sources: Sequence[Source]) -> list[TopicSpec]:
    """The topics of the messages of these sources, and those of their roles; names are without the environment."""
    roles = [outbox_role(source) for source in sources]
    reads = {role.reads for role in roles}
    every = [spec for source in sources for spec in source_topics(source, settings)]
    messages = [spec.read_by(Program.HANDLER) for spec in every if spec.name in reads]
    return [*messages, *(places_topic(name, 1, settings) for role in roles for name in role.owns)]


def settle_start(log: EventLog, role: Role) -> None:
    """Let a role that has never run begin at the first message that is kept: the earlier ones are not missed."""
    begin_at(log, role, 0, log.first(role.reads, 0))


class OutboxTask:
    """Sends the commands of one source; a PartitionTask."""

    def __init__(
        self,
        commands: CommandRegistry,
        source: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """source: its name. clock: returns the time in seconds."""
        self._commands, self._source, self._clock = commands, source, clock
        self._noted = clock()

    def restore(self, writer: PartitionWriter, stopped: Callable[[], bool]) -> str:
        """See PartitionTask.restore."""
        return f'commands of the source "{self._source}"'

    def wait_s(self) -> float:
        """See PartitionTask.wait_s."""
        return IDLE_S

    def work(self, writer: PartitionWriter, records: Sequence[Record]) -> None:
        """See PartitionTask.work."""
        entries = list[Entry]()
        for record in records:
            command = partial(command_of, self._commands, self._source, record)
            # a letter stays for ever: a retry reads the message from its own topic, as long as that has it
            letter_of = structs.replace(record, value=None) if may_be_personal(self._commands, record) else record
            entries += or_dead_letter(letter_of, lambda: filter(None, [command()]), reader=SENT_BY)  # noqa: B023 - now
        if entries or (records and self._clock() - self._noted >= COMMIT_IDLE_S):
            with abort_on_error(writer.begin()) as begun:
                begun.append(sorted(entries, key=lambda entry: entry.topic))
                begun.commit(records[-1].offset + 1)
            self._noted = self._clock()

    def close(self) -> None:
        """See PartitionTask.close."""


def may_be_personal(commands: CommandRegistry, record: Record) -> bool:
    """Whether a message may have personal values in plaintext, as far as the type of its command says it."""
    if not commands.personal:
        return False
    try:
        kind = commands.commands.get(_TYPE.decode(_MESSAGE.decode(record.value or b"").message.content).type)
    except (msgspec.MsgspecError, UnicodeError):
        return True
    return kind is None or kind.command.sealed_fields is not None


def command_of(commands: CommandRegistry, source: str, record: Record) -> Entry | None:
    """The record of `commands` for a message; None if the message is no command.

    Without an id of its own, a command has the place of the message in the database's log as its id: the same if the
    message is read again, and not that of a client's command. If a person was erased since the message was written, the
    command has no values of this person. Raises NotAnEnvelope, UnknownCommand, MalformedCommand and TooLarge.
    """
    try:
        message = _MESSAGE.decode(record.value or b"")
    except msgspec.MsgspecError:
        return None  # an application may use messages for other purposes
    if message.message.prefix != COMMAND_PREFIX:
        return None
    try:
        command = _COMMAND.decode(message.message.content)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise NotAnEnvelope(f"not a command ({error}): write {FORM}") from error
    content = message.message.content
    text = bytes(_BODY.decode(content).body) if may_be_rounded(content) else None
    time = datetime.fromtimestamp(message.source.ts_ms / 1000, UTC)
    typed = read_command(commands.command(command.type), command.body, time, text=text, since=time)
    if len(typed.body) > MAX_BODY_BYTES:
        raise TooLarge(len(typed.body), MAX_BODY_BYTES)
    place = f"{source}@{lsn_text(message.source.lsn)}"
    envelope = Envelope(
        id=command.id or place,
        type=command.type,
        stream=typed.stream,
        time=time,
        data={},
        source=f"/headwater/{typed.aggregate.name}",
        expected_version=command.expected_version,
        correlation_id=command.correlation_id,
        causation_id=command.causation_id or place,
        traceparent=command.traceparent,
        origin=CLIENT if command.id else OUTBOX,
        actor=f"{OUTBOX_ACTOR}{source}",
    )
    # with the current time: retention would delete old commands before they are decided
    return command_record(envelope, typed.aggregate.identity, typed.body, now_ms())
