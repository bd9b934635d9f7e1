"""The errors of the log.

EventLogError
├── SettingError         a setting is missing or wrong
├── UnknownModule        HEADWATER_MODULES has a name that is not a module or a sample
├── ModuleBroken         a module with declarations cannot be imported
├── TopicMismatch        a topic exists with other settings than Headwater needs
├── ResealUnfinished     `replay reseal` has begun to copy a topic, and has not finished
├── NotAnEnvelope        a record is not a CloudEvents document that Headwater can read
├── LogUnavailable       the log did not answer in time
├── NotRecorded          an action cannot be recorded in the audit log, so it is not done
├── KeysUnavailable      the store with the keys of persons did not answer, or cannot be used
│   ├── WrongKeyStore    the store with the keys of persons is not the one that the log notes
│   ├── ValueWithheld    a value of an erased person was not sent, until its command is known to be new
│   └── UnknownKey       a personal value is sealed with a key that the store of keys does not have, or cannot unwrap
├── RecordsLost          a topic has lost records that were handled, or is another one of the same name
├── LeftOpen             Kafka has lost the end of an earlier owner's transaction
└── Fenced               another process owns the partition now
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headwater.eventlog.declaring import WrongDeclaration

MAX_SHOWN: Final = 200
"""How many characters of a wrong value are shown."""


class EventLogError(Exception):
    """Root of the log's errors."""


class SettingError(EventLogError):
    """A setting is missing or wrong; `variable` names it."""

    def __init__(self, variable: str, value: str, needs: str) -> None:
        shown = "".join(
            character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in value[:MAX_SHOWN]
        )
        problem = f'is "{shown}"' if value else "is not set or empty"
        super().__init__(f'environment variable "{variable}" {problem}: set it to {needs}')
        self.variable = variable

    @classmethod
    def of(cls, faults: Sequence[SettingError]) -> SettingError:
        """One error for all of `faults`, at least one; its variable is that of the first."""
        first = faults[0]
        first.args = ("; ".join(str(fault) for fault in faults),)
        return first


class UnknownModule(EventLogError):
    """A name in HEADWATER_MODULES is neither a module that Python finds nor a sample."""

    def __init__(self, name: str, shipped: Sequence[str]) -> None:
        super().__init__(
            f'there is no module "{name}": correct the name in HEADWATER_MODULES, or add the folder with the module '
            f"to PYTHONPATH; samples ({', '.join(shipped)}) need no folder"
        )
        self.name, self.shipped = name, tuple(shipped)


SHOWN_CHARACTERS: Final = 1_000
"""Of the error of a module, so that a message stays one sentence."""


class ModuleBroken(EventLogError):
    """A module with declarations cannot be imported; the cause is chained.

    place: the line of the user's code that raised it, as `file:line`; empty if that is not known.
    """

    def __init__(self, module: str, cause: BaseException, place: str = "") -> None:
        text = _sentence(cause)
        if not isinstance(cause, WrongDeclaration):
            text = (
                f'{type(cause).__name__}: {text}; module "{module}" cannot be imported: '
                "correct this line, or the name in HEADWATER_MODULES"
            )
        where = place or f'module "{module}"'
        super().__init__(f"{where}: {text}")
        self.module, self.place = module, place


def _sentence(cause: BaseException) -> str:
    """The message of any exception, in one line."""
    try:
        text = " ".join(str(cause.msg if isinstance(cause, SyntaxError) else cause).split())
    except Exception as error:  # noqa: BLE001 - a user's exception may fail to say what it is
        return f"its message cannot be read ({type(error).__name__})"
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"


class TopicMismatch(EventLogError):
    """A topic exists, but with settings that would lose or reorder records."""

    def __init__(self, topic: str, setting: str, expected: str, actual: str) -> None:
        super().__init__(
            f'topic "{topic}" has {setting} "{actual}", but Headwater needs "{expected}": '
            "alter the topic, or use another HEADWATER_ENVIRONMENT"
        )
        self.topic, self.setting, self.expected, self.actual = topic, setting, expected, actual


class ResealUnfinished(EventLogError):
    """`replay reseal` has begun to copy a topic, and has not finished: the topic may be incomplete."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f'topic "{topic}" is being copied by `replay reseal`, or was when that was interrupted: run '
            "`replay reseal` until it is done, then start again"
        )
        self.topic = topic


class NotAnEnvelope(EventLogError):
    """A record is not a CloudEvents 1.0 JSON document; `reason` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"not an event: {reason}")
        self.reason = reason


class LogUnavailable(EventLogError):
    """The log did not answer in time; it is not known whether the last write succeeded."""

    def __init__(self, what: str, cause: str) -> None:
        super().__init__(f"the log is unavailable while {what}: {cause}; try again when Kafka answers")
        self.what, self.cause = what, cause


class NotRecorded(EventLogError):
    """An action cannot be recorded in the audit log, so it is not done."""

    def __init__(self, verb: str, reason: str) -> None:
        super().__init__(f'"{verb}" was not done, because it cannot be recorded in the audit log: {reason}')
        self.verb = verb


class LeftOpen(EventLogError):
    """A transaction of an earlier owner is neither committed nor aborted.

    This happens with Kafka 4.3.0 and 4.3.1 if a partition has no leader while its transaction ends. Continuing would
    make records visible that were never acknowledged, with the next commit of the same transactional id.
    """

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        super().__init__(
            f'partition {partition} of "{topic}" has an open transaction from offset {offset} on, because Kafka lost '
            f"its end; nothing is written to the partition until you end it: {abort_command(topic, partition, offset)}"
        )
        self.topic, self.partition, self.offset = topic, partition, offset


def abort_command(topic: str, partition: int, offset: int) -> str:
    """The command with which an operator ends a transaction whose end Kafka has lost."""
    return (
        f"kafka-transactions.sh --bootstrap-server ... abort --topic {topic} --partition {partition} "
        f"--start-offset {offset}"
    )


class RecordsLost(EventLogError):
    """Offsets that say what was handled do not belong to the topic any more: it lost its end, or is another one."""

    def __init__(self, topic: str, partition: int, offset: int, reason: str) -> None:
        super().__init__(
            f'partition {partition} of "{topic}" {reason}, but processes have been sent its events up to offset '
            f"{offset}: they would be sent old events again, or miss new ones. Restore the topic with its records at "
            "their offsets; or, if records are lost for good, run `replay continue-processes`: processes then go on "
            "with events that come after it"
        )
        self.topic, self.partition, self.offset = topic, partition, offset


class Fenced(EventLogError):
    """Another process has taken over the partition: stop writing to it."""

    def __init__(self, partition: int) -> None:
        super().__init__(f"partition {partition} has another owner now; this one stops writing to it")
        self.partition = partition


class KeysUnavailable(EventLogError):
    """The store with the keys of persons did not answer, so personal values cannot be encrypted or opened now."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the store with the keys of persons is unavailable: {reason}; try again later")
        self.reason = reason


class WrongKeyStore(KeysUnavailable):
    """`HEADWATER_KEYS` names another store of keys than the log of the deployment notes."""


class ValueWithheld(KeysUnavailable):
    """A value of an erased person is not in the command, which asks only whether its id was decided before."""

    def __init__(self) -> None:
        super().__init__("a value of an erased person was not sent, to find out first whether the command is new")


class UnknownKey(KeysUnavailable):
    """A personal value is sealed with a key that the store does not have, or cannot unwrap, and the log does not say
    that it was destroyed: the store was restored from an earlier backup, or is that of another deployment."""

    def __init__(self, key_id: str, why: str = "") -> None:
        super().__init__(
            f"the key {key_id} of an encrypted value cannot be used ({why})"
            if why
            else f"it does not have the key {key_id} of an encrypted value: check HEADWATER_KEYS and "
            "HEADWATER_ENVIRONMENT, or restore a later backup of the store; if keys are lost for good, run headwater "
            "master-key adopt"
        )
        self.key_id = key_id


TRANSIENT: Final = (LogUnavailable, KeysUnavailable, Fenced)
"""Outages, which say nothing about the record at hand: whoever handles it raises them, and handles it again later, in
place and in order. It is neither a dead letter nor answered for good."""
