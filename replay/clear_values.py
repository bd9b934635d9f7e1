"""Personal plaintext values, as records have them that were stored before their fields became personal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import orjson

from headwater.commands.declaring.observation import ObservationRegistry, sealed_fields
from headwater.commands.declaring.personal import PersonalField, PersonalFields, texts_in
from headwater.commands.declaring.process import ProcessRegistry
from headwater.commands.declaring.registry import CommandRegistry
from headwater.eventlog.letters import Letter
from headwater.eventlog.limits import MAX_ENTRY_BYTES
from headwater.eventlog.personal.installed import installed
from headwater.eventlog.personal.sealed_text import is_sealed
from headwater.eventlog.times import FIRST_RECORD_MS

LONGER: Final = 4 / 3
TEXT_BYTES: Final = 250
"""A sealed text is so much longer than its value: in base64, with a key, a type and the path of a field."""
_NO_MESSAGE: Final = "it has the type of a message with personal fields, but Headwater cannot read it"


class _Head(msgspec.Struct, gc=False):
    """Which fields of a record are personal."""

    type: str
    subject: str = ""
    time: str = ""
    dataversion: int = 0


_EARLIEST: Final = datetime.fromtimestamp(FIRST_RECORD_MS / 1000, UTC)
_HEAD: Final = msgspec.json.Decoder(_Head)


@dataclass
class Found:
    """What a topic has. clear: records with plaintext values, by their type. unfit: by key, why it cannot be encrypted.

    undeclared: how many records there are of types that no module declares. size_bytes: of all records.
    """

    records: int = 0
    size_bytes: int = 0
    clear: Counter[str] = field(default_factory=Counter)
    persons: set[str] = field(default_factory=set)
    undeclared: Counter[str] = field(default_factory=Counter)
    unfit: dict[str, str] = field(default_factory=dict)


class Unfit(ValueError):
    """A record with plaintext values cannot be encrypted; the message says why, without the values."""


@dataclass
class _Body:
    """The part of a record that has personal fields.

    document: the record's JSON, of an event in its current version. data: in the document. since: when it was stored.
    drops: whether its older version, in which it is stored, has plaintext that the current one does not have.
    """

    document: Any
    fields: PersonalFields
    data: dict[str, Any]
    subject: str
    since: datetime
    type: str
    drops: bool = False

    @property
    def is_clear(self) -> bool:
        """Whether the record has to be written again."""
        return self.drops or any(True for _ in _clear(self))


class ClearValues:
    """Finds and seals the plaintext values of a deployment's records."""

    def __init__(
        self, commands: CommandRegistry, observations: ObservationRegistry, processes: ProcessRegistry
    ) -> None:
        self._commands, self._observations, self._processes = commands, observations, processes

    @classmethod
    def load(cls, modules: Sequence[str]) -> ClearValues:
        """Those of a deployment that loads `modules` (see `LogSettings.modules`)."""
        return cls(CommandRegistry.load(modules), ObservationRegistry.load(modules), ProcessRegistry.load(modules))

    @property
    def is_needed(self) -> bool:
        """Whether anything is personal."""
        processes = self._processes.processes.values()
        return bool(self._commands.personal or self._observations.personal) or any(p.sealed_fields for p in processes)

    def look(self, key: str, value: bytes | None, findings: Found) -> None:
        """Add a record to what is found; those of a topic in the order of their partition."""
        findings.records += 1
        findings.size_bytes += len(value or b"")
        if value is None:
            findings.unfit.pop(key, None)  # it is copied as a tombstone
        try:
            if (body := self._message(value, findings)) is None:
                return
        except Unfit as error:
            findings.unfit[key] = str(error)
            return
        persons, size_bytes, reason = set[str](), 0, ""
        for personal_field, clear, person in _clear(body):
            persons.add(person)
            size_bytes += int(len(orjson.dumps(clear)) * (LONGER - 1)) + TEXT_BYTES
            if not person:
                reason = f'"{personal_field.path}" belongs to no data subject: its field with the person is empty'
        if not (persons or body.drops):
            return
        findings.clear[body.type] += 1
        findings.persons |= persons - {""}
        if len(value or b"") + size_bytes > MAX_ENTRY_BYTES:
            reason = "it would be too large for Kafka with encrypted values"
        if reason:
            findings.unfit[key] = reason

    def sealed(self, value: bytes | None) -> bytes | None:
        """A message with encrypted values; the same bytes if it has none in clear. Raises KeysUnavailable, and Unfit.

        Values of a person who was erased after the message was made are erased with the others: no key is made.
        """
        body = self._message(value)
        if body is None:
            return value
        has_sealed = _seal(body)
        return orjson.dumps(body.document) if has_sealed or body.drops else value

    def has_clear(self, value: bytes | None) -> bool:
        """Whether a message has plaintext values; not, if it cannot be read."""
        try:
            body = self._message(value)
        except Unfit:
            return False
        return body is not None and body.is_clear

    def has_clear_letter(self, _: str, value: bytes) -> bool:
        """Whether the record in a dead letter has plaintext values."""
        try:
            return self.has_clear(Letter.from_json(value).value)
        except ValueError:
            return False

    def sealed_letter(self, value: bytes) -> bytes | None:
        """A dead letter whose record is sealed; None if it cannot be encrypted."""
        letter = Letter.from_json(value)
        place = {name: member for name, member in orjson.loads(value).items() if name not in Letter._fields}
        try:
            return letter._replace(value=self.sealed(letter.value)).to_json(**place)
        except Unfit:
            return None

    def has_clear_state(self, key: str, value: bytes) -> bool:
        """Whether a record of `processes` is an instance whose state has plaintext values."""
        body = self._state(key, value, _EARLIEST)
        return body is not None and body.is_clear

    def sealed_state(self, key: str, value: bytes, time: datetime) -> bytes | None:
        """The record of an instance with encrypted values; None if it has none in clear. time: of the record.

        Raises Unfit and KeysUnavailable.
        """
        body = self._state(key, value, time)
        return orjson.dumps(body.document) if body is not None and _seal(body) else None

    def _state(self, key: str, value: bytes, time: datetime) -> _Body | None:
        name, _, subject = key.partition("/")
        process = self._processes.processes.get(name)
        if process is None or process.sealed_fields is None:
            return None
        try:
            document = orjson.loads(value)
        except ValueError:
            return None
        state = document.get("state") if isinstance(document, dict) else None
        if not isinstance(state, dict):
            return None
        return _Body(document, process.sealed_fields, state, subject, time, name)

    def difference(self, before: bytes | None, after: bytes | None) -> str:
        """Why a copy of a message is not the same with encrypted values; empty if it is."""
        if before == after:
            body = self._message(after)
            return "a value is in plaintext" if body is not None and body.is_clear else ""
        first, second = self._message(before), self._message(after)
        if first is None or second is None:
            return "it is no message with personal values"
        from headwater.eventlog.personal.vault import ERASED  # noqa: PLC0415 - it imports cryptography

        vault = installed()
        if second.is_clear:
            return "a value is in plaintext"
        values, copied = _taken(first), _taken(second)
        for value, copy in zip(values, copied, strict=False):
            if copy != value and not (is_sealed(copy) and vault.open(copy) in (ERASED, value)):
                return "a value is another one"
        if len(values) != len(copied) or first.document != second.document:
            return "more than its personal values differs"
        return ""

    def _message(self, value: bytes | None, findings: Found | None = None) -> _Body | None:
        """A command, event or observation with personal fields; None if it is none."""
        try:
            head = _HEAD.decode(value or b"")
        except (msgspec.DecodeError, UnicodeError):
            self._check_foreign(value or b"")
            return None  # a tombstone, a heartbeat, or not written by Headwater
        is_declared = (
            head.type in self._commands.recorded
            or head.type in self._observations.types
            or head.type in self._commands.commands
            or head.type.startswith("headwater.")
        )
        observation = self._observations.types.get(head.type)
        if findings is not None and not is_declared:
            findings.undeclared[head.type] += 1
        elif findings is not None and observation is not None and head.dataversion != observation.version:
            findings.undeclared[f"{head.type} of version {head.dataversion}"] += 1  # its fields may have other names
        if (fields := self._personal(head.type)) is None:
            return None
        try:
            document = orjson.loads(value or b"")
        except orjson.JSONDecodeError:
            raise Unfit(_NO_MESSAGE) from None
        stored = document.get("data", {})
        if not isinstance(stored, dict):
            raise Unfit(_NO_MESSAGE)
        data = self._current(head, document, stored)
        subject = "" if observation is not None else head.subject.partition("/")[2]
        drops = data is not stored and any(not is_sealed(text) for text in texts_in(stored) - texts_in(data))
        return _Body(document, fields, data, subject, _time(head.time), head.type, drops)

    def _check_foreign(self, value: bytes) -> None:
        """Raise Unfit if a record that Headwater cannot read has the type of one with personal fields."""
        try:
            document = orjson.loads(value)
        except orjson.JSONDecodeError:
            return
        type_ = document.get("type") if isinstance(document, dict) else None
        if isinstance(type_, str) and self._personal(type_) is not None:
            raise Unfit(_NO_MESSAGE)

    def _personal(self, type_: str) -> PersonalFields | None:
        if (event := self._commands.recorded.get(type_)) is not None:
            return event.sealed_fields
        if (observation := self._observations.types.get(type_)) is not None:
            return sealed_fields(observation)
        command = self._commands.commands.get(type_)
        return None if command is None else command.command.sealed_fields

    def _current(self, head: _Head, document: dict[str, Any], stored: dict[str, Any]) -> dict[str, Any]:
        """The data in the current version, in which the document then is, too."""
        event = self._commands.recorded.get(head.type)
        if event is None or head.dataversion == event.version:
            return stored
        try:
            if not 0 < head.dataversion < event.version:
                raise ValueError
            document["data"] = current = event.history.upcast(head.dataversion, stored)
        except ValueError:
            raise Unfit(f'its version {head.dataversion} cannot be read as the current "{event.type}"') from None
        document["type"], document["dataversion"] = event.type, event.version
        return current


def _clear(body: _Body) -> Iterator[tuple[PersonalField, Any, str]]:
    """The plaintext values that say something, with their fields and persons."""
    clear = list[tuple[PersonalField, Any, str]]()

    def note(personal_field: PersonalField, value: Any, person: str) -> Any:
        if not is_sealed(value) and (person or value):
            clear.append((personal_field, value, person))
        return value

    body.fields.changed(body.data, note, body.subject)
    yield from clear


def _seal(body: _Body) -> bool:
    """Seal the plaintext values of a record; returns whether there are any. Raises Unfit and KeysUnavailable."""
    vault, changed = installed(), False

    def seal(personal_field: PersonalField, value: Any, person: str) -> Any:
        nonlocal changed
        if is_sealed(value) or not (person or value):
            return value
        if not person:
            raise Unfit(f'"{personal_field.path}" belongs to nobody')
        changed = True
        return vault.seal(person, body.fields.record_type, personal_field.path, value, since=body.since)

    body.fields.changed(body.data, seal, body.subject)
    return changed


def _taken(body: _Body) -> list[Any]:
    """The personal values of a record, which are null in its document afterwards."""
    taken = list[Any]()

    def take(_: PersonalField, value: Any, __: str) -> Any:
        taken.append(value)

    body.fields.changed(body.data, take, body.subject)
    return taken


def _time(text: str) -> datetime:
    """When a record was made; the earliest time if it does not say so: then all erasures came later."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return _EARLIEST
    return time if time.tzinfo else time.replace(tzinfo=UTC)
