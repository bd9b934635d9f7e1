"""What accounts may do, and a log that refuses the rest: so tests in memory notice a right that is missing."""

from __future__ import annotations

from collections.abc import Sequence, Set
from concurrent.futures import Future
from functools import cache
from typing import Any

from headwater.eventlog.access import Operation, Program, Resource, Rule, account
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.ports import Entry, EventLog
from headwater.eventlog.settings import LogSettings
from headwater.projections.registry import ViewRegistry
from headwater.replay.grants import Declared, rules_of
from tests.support.domains import SHIPPED

READS = frozenset({"read", "tail", "end", "first", "last", "offset_at"})
DESCRIBES = frozenset({"stored_ends", "incarnation"})


def declared(*modules: str) -> Declared:
    settings = LogSettings(environment="env", modules=modules)
    return Declared.load(settings, ViewRegistry.load(modules))


def allowed(rules: Sequence[Rule], resource: Resource, name: str) -> Set[Operation]:
    """What rules allow with a resource."""
    matching = [
        rule.operations
        for rule in rules
        if rule.resource == resource and (name.startswith(rule.name) if rule.is_prefix else name == rule.name)
    ]
    return frozenset().union(*matching)


@cache
def _rules(program: Program) -> Sequence[Rule]:
    return rules_of(declared(*SHIPPED))[account("env", program)]


class LogWithRights:
    """A log for a program of the shipped domains, with what `headwater grants` gives its account."""

    def __init__(self, log: EventLog, program: Program) -> None:
        self._log, self._rules = log, _rules(program)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._log, name)
        if name not in READS | DESCRIBES:
            return found

        def asked(topic: str, *given: Any, **more: Any) -> Any:
            self._check(topic, Operation.READ if name in READS else Operation.DESCRIBE)
            return found(topic, *given, **more)

        return asked

    def submit(self, entry: Entry, partition: int) -> Future[int]:
        """See EventLog.submit."""
        self._check(entry.topic, Operation.WRITE)
        return self._log.submit(entry, partition)

    def _check(self, topic: str, operation: Operation) -> None:
        """READ and WRITE include DESCRIBE."""
        may = allowed(self._rules, Resource.TOPIC, f"env.{topic}")
        if operation not in may and not (operation == Operation.DESCRIBE and may & {Operation.READ, Operation.WRITE}):
            raise LogUnavailable(f'{operation.lower()} of "{topic}"', "topic authorization failed")
