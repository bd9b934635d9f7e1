"""Everything that the log can refuse.

EventLogError
├── SettingError         a setting is missing or wrong
├── UnknownModule        HEADWATER_MODULES names what is no module and no shipped domain
├── AmbiguousModule      HEADWATER_MODULES names what is a module and a shipped domain
├── ModuleBroken         a module with declarations does not import
├── TopicMismatch        a topic exists with other settings than Headwater needs
├── NotAnEnvelope        a record is no CloudEvents document that Headwater can read
├── LogUnavailable       the log did not answer in time
├── LeftOpen             the log has lost the end of an earlier owner's transaction
└── Fenced               another process owns the partition now
"""

from __future__ import annotations

from collections.abc import Sequence


class EventLogError(Exception):
    """Root of the log's errors."""


class SettingError(EventLogError):
    """A setting is missing or wrong; `variable` names it."""

    def __init__(self, variable: str, value: str, needs: str) -> None:
        super().__init__(f'environment variable "{variable}" is "{value}": set it to {needs}')
        self.variable = variable


class UnknownModule(EventLogError):
    """HEADWATER_MODULES names what is neither a module that Python finds nor a shipped domain."""

    def __init__(self, name: str, shipped: Sequence[str]) -> None:
        super().__init__(
            f'there is no module "{name}": name in HEADWATER_MODULES modules that Python finds, '
            f"or shipped domains ({', '.join(shipped)})"
        )
        self.name, self.shipped = name, tuple(shipped)


class AmbiguousModule(EventLogError):
    """HEADWATER_MODULES names a shipped domain, but Python finds a module of that name too; place: where."""

    def __init__(self, name: str, place: str, packages: Sequence[str]) -> None:
        super().__init__(
            f'HEADWATER_MODULES names "{name}", which is a shipped domain and a module of yours at "{place}": name '
            f'what is in yours, such as "{name}.domain", or the packages of the shipped one, {", ".join(packages)}'
        )
        self.name, self.place = name, place


class ModuleBroken(EventLogError):
    """A module that should hold declarations does not import; the cause is chained."""

    def __init__(self, module: str, cause: Exception) -> None:
        super().__init__(
            f'module "{module}" does not import ({type(cause).__name__}: {cause}): '
            "correct it, or correct its name in HEADWATER_MODULES"
        )
        self.module = module


class TopicMismatch(EventLogError):
    """A topic exists, but with settings that would lose or reorder records."""

    def __init__(self, topic: str, setting: str, expected: str, actual: str) -> None:
        super().__init__(
            f'topic "{topic}" has {setting} "{actual}", but Headwater needs "{expected}": '
            "alter the topic, or use another HEADWATER_ENVIRONMENT"
        )
        self.topic, self.setting, self.expected, self.actual = topic, setting, expected, actual


class NotAnEnvelope(EventLogError):
    """A record is not a CloudEvents 1.0 JSON document; `reason` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"not an event: {reason}")
        self.reason = reason


class LogUnavailable(EventLogError):
    """The log did not answer in time; nothing is known of what was sent last."""

    def __init__(self, what: str, cause: str) -> None:
        super().__init__(f"the log is away while {what}: {cause}; try again when Kafka answers")
        self.what, self.cause = what, cause


class LeftOpen(EventLogError):
    """A transaction of an earlier owner has records in a partition, but no end: neither committed nor aborted.

    Kafka 4.3.0 and 4.3.1 do that where a partition is without a leader while its transaction is ended. To go on would
    bring records back that nobody was told of, with the next commit of the same transactional id.
    """

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        super().__init__(
            f'partition {partition} of "{topic}" has records from offset {offset} on whose transaction Kafka has '
            f"forgotten to end; nothing is written to it until you end it: {abort_command(topic, partition, offset)}"
        )
        self.topic, self.partition, self.offset = topic, partition, offset


def abort_command(topic: str, partition: int, offset: int) -> str:
    """What an operator runs to end a transaction that Kafka has forgotten to end."""
    return (
        f"kafka-transactions.sh --bootstrap-server ... abort --topic {topic} --partition {partition} "
        f"--start-offset {offset}"
    )


class Fenced(EventLogError):
    """Another process has taken over the partition: stop writing to it."""

    def __init__(self, partition: int) -> None:
        super().__init__(f"partition {partition} belongs to another handler now; this one stops writing to it")
        self.partition = partition
