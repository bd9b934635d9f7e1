"""The audit log: the records of what operators did, without secrets, and the topic `audit`, where they are kept.

An action has two records, one when it begins and one when it ends, each complete for itself.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, Literal

import msgspec

from headwater.eventlog.actors import actor_of
from headwater.eventlog.envelope import format_time, timestamp_ms
from headwater.eventlog.errors import EventLogError, LogUnavailable, NotRecorded, SettingError
from headwater.eventlog.hidden_values import without_values
from headwater.eventlog.kafka.admin import missing_topics, prepare_topics
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.kafka.writer import Appender
from headwater.eventlog.ports import EventLog
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import AUDIT, EVENTS, topic_specs

REACH_S: Final = 2.0
"""How long a broker may take to accept a connection."""
STORE_S: Final = 30.0

Phase = Literal["begin", "end"]
Outcome = Literal["done", "failed", "refused", "interrupted"]

MAX_TEXT_CHARACTERS: Final = 1_000
READ_CHARACTERS: Final = 10 * MAX_TEXT_CHARACTERS
"""Of a text: the rest is not looked at."""
MAX_ITEMS: Final = 100
"""Of an argument that is a list."""
SECRETS: Final = (
    (re.compile(r"(hw_[0-9a-f]{16})_[A-Za-z0-9_-]+"), r"\1_…"),  # an API key; its id is no secret
    # the user and the password in an address; a password may have slashes and more @
    (re.compile(r"(\w{1,20}://)\S{1,500}@"), r"\1…@"),
    (re.compile(r"\b(Bearer|Basic) +[A-Za-z0-9._~+/=-]+", re.IGNORECASE), r"\1 …"),
    (re.compile(r"\beyJ[A-Za-z0-9_-]+\.[A-Za-z0-9._-]+"), "…"),  # a token
    # password=…, "password": "…", PASSWORD '…'
    (
        re.compile(
            r"(?i)((?:password|passwd|secret|token)\w{0,20}[\"']?)(\s{0,3}[=:]\s{0,3}|\s{1,3}(?=[\"']))"
            r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|\S+)"""
        ),
        r"\1\2…",
    ),
)


class AuditRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One record of an action.

    action: the same in both records. verb: such as `replay erase`. arguments: as they were given, or by default, except
    those that are empty. actor: of HEADWATER_ACTOR. user: of the operating system; sudo_user: who became this user.
    client: the address from which they logged in by SSH. begun, time: of the action and of this record, RFC 3339.
    outcome, exit_code, reason: at the end; reason: why it did not do what it should.
    """

    action: str
    phase: Phase
    verb: str
    environment: str
    user: str
    host: str
    begun: str
    time: str
    arguments: dict[str, Any] = {}
    actor: str | None = None
    sudo_user: str | None = None
    client: str | None = None
    outcome: Outcome | None = None
    exit_code: int | None = None
    reason: str | None = None

    @classmethod
    def begin(cls, verb: str, arguments: Mapping[str, Any], environment: str, env: Mapping[str, str]) -> AuditRecord:
        """The record of an action that begins now; raises SettingError if HEADWATER_ACTOR is none."""
        now = format_time(datetime.now(UTC))
        return cls(
            action=uuid.uuid4().hex,
            phase="begin",
            verb=verb,
            environment=environment,
            user=_user(),
            host=socket.gethostname(),
            begun=now,
            time=now,
            arguments={
                name: _shown(argument)
                for name, argument in arguments.items()
                if argument not in (None, False, "", (), [])
            },
            actor=actor_of(env),
            sudo_user=hidden(env["SUDO_USER"]) if env.get("SUDO_USER") else None,
            client=hidden(env["SSH_CONNECTION"].split(" ")[0]) if env.get("SSH_CONNECTION") else None,
        )

    def ended(self, outcome: Outcome, exit_code: int, reason: str) -> AuditRecord:
        """The record of its end, now."""
        now = format_time(datetime.now(UTC))
        return msgspec.structs.replace(
            self, phase="end", time=now, outcome=outcome, exit_code=exit_code, reason=hidden(reason) or None
        )

    def to_json(self) -> bytes:
        """The record's value."""
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, value: bytes) -> AuditRecord:
        """Read a record's value; raises ValueError if it is no such record. Other members are ignored."""
        return msgspec.json.decode(value, type=cls)


def hidden(text: str) -> str:
    """A text without secrets and values of records, cut to a length that is worth keeping."""
    text = without_values(text[:READ_CHARACTERS])
    for pattern, shown in SECRETS:
        text = pattern.sub(shown, text)
    text = text.encode(errors="replace").decode()
    return text if len(text) <= MAX_TEXT_CHARACTERS else f"{text[: MAX_TEXT_CHARACTERS - 1]}…"


def _shown(value: Any) -> Any:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        listed = [_shown(item) for item in value[:MAX_ITEMS]]
        return [*listed, f"and {len(value) - MAX_ITEMS} more"] if len(value) > MAX_ITEMS else listed
    return hidden(str(value))


def _user() -> str:
    """The user that runs this process; not LOGNAME, which anybody can set."""
    try:
        import pwd  # noqa: PLC0415 - not on every system

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return str(os.getuid()) if hasattr(os, "getuid") else getpass.getuser()


class Trail:
    """Appends records to the topic `audit` of a deployment, which it creates if it is missing.

    A record may come twice after an error, and is the same then.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        """Raises SettingError."""
        self.settings = LogSettings.without_modules(env)
        self._appender = Appender(self.settings, self.settings.topic(AUDIT), "recording an action", STORE_S)
        self._is_prepared = False

    def append(self, record: AuditRecord) -> None:
        """Append a record, and return when it is stored. Raises LogUnavailable."""
        if not self._is_prepared:
            _check_reachable(self.settings.bootstrap)
            own = [spec for spec in topic_specs(self.settings) if spec.name == AUDIT]
            if missing_topics(self.settings, own):
                prepare_topics(self.settings, own)
        self._is_prepared = False  # the next record finds out at once if this one waits in vain
        self._appender.put(record.action, record.to_json())
        self._appender.flush()
        self._is_prepared = True

    def check_partitions(self) -> None:
        """Raise SettingError if this shell has another number of partitions than the deployment: what is changed by key
        would go elsewhere, and what is read would be a part."""
        number = 0
        with suppress(LogUnavailable), closing(KafkaLog(self.settings)) as log:  # not every account may ask
            number = len(log.stored_ends(EVENTS))
        if number not in (0, self.settings.partitions):
            needs = f'{number}, as many as the topic "{self.settings.topic(EVENTS)}" has'
            raise SettingError("HEADWATER_PARTITIONS", str(self.settings.partitions), needs)


class Trails:
    """Appends records with trails that are kept for the next ones, because a new one connects first; threads may share
    it.

    A trail has one record at a time, so nobody waits for the record of another, or gets its error.
    """

    def __init__(self, open_trail: Callable[[], Trail]) -> None:
        self._open = open_trail
        self._idle: list[Trail] = []

    def append(self, record: AuditRecord) -> None:
        """See Trail.append; also raises SettingError."""
        try:
            trail = self._idle.pop()
        except IndexError:
            trail = self._open()
        trail.append(record)  # one that has failed is not used again
        self._idle.append(trail)


def begin(
    append: Callable[[AuditRecord], None],
    verb: str,
    arguments: Mapping[str, Any],
    environment: str,
    env: Mapping[str, str],
    actor: str | None = None,
) -> AuditRecord:
    """Record that an action begins, and return the record. Raises NotRecorded: then it must not be done.

    append: see Trail. actor: who asked, if it is not that of `env`.
    """
    begun = AuditRecord.begin(verb, arguments, environment, env)
    if actor is not None:
        begun = msgspec.structs.replace(begun, actor=actor)
    try:
        append(begun)
    except EventLogError as error:
        raise NotRecorded(verb, str(error)) from error
    return begun


def read_trail(log: EventLog, since: datetime | None = None) -> Iterator[AuditRecord | None]:
    """The records since a time, the oldest first; None for each that is none. Raises LogUnavailable."""
    if not log.stored_ends(AUDIT).get(0):
        return
    start = 0 if since is None else log.offset_at(AUDIT, 0, timestamp_ms(since))
    for record in log.read(AUDIT, 0, start):
        try:
            yield AuditRecord.from_json(record.value or b"")
        except ValueError:
            yield None


def last_of_each(records: Iterable[AuditRecord]) -> list[AuditRecord]:
    """The last record of each action, in the order of their beginnings."""
    latest: dict[str, AuditRecord] = {}
    for record in records:
        if record.action not in latest or record.phase == "end":
            latest[record.action] = record
    return list(latest.values())


def _check_reachable(bootstrap: str) -> None:
    """Raise LogUnavailable if no broker accepts connections: Kafka's client would try for long."""
    reason = "no broker is named"
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
            return
        except (OSError, UnicodeError) as error:  # UnicodeError: of a name that cannot be one, such as a..b
            reason = getattr(error, "strerror", None) or str(error)
    raise LogUnavailable("recording an action", f"{bootstrap}: {reason}")
