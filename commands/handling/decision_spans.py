"""The spans of decisions, which end with the transactions that they have in common."""

from __future__ import annotations

import time
from collections.abc import Collection

from headwater.commands.handling.decision import Decision
from headwater.eventlog.envelope import Envelope
from headwater.eventlog.tracing import spans
from headwater.eventlog.tracing.spans import Facts, Span


def begin_decision(command: Envelope) -> Span | None:
    """The span of the decision on a command, whose context its events carry; None if its trace is not sampled."""
    if command.traceparent is None or not spans.is_on():
        return None
    facts = {
        "headwater.command.type": command.type,
        "headwater.command.id": command.id,
        "headwater.stream": command.stream,
    }
    return spans.continued(f"decide {command.type}", command.traceparent, "consumer", facts)


def note_decision(span: Span, decision: Decision | None, began_ns: int) -> None:
    """Say in its span what was decided, and how long that took.

    decision: None: the command was answered before, or is a dead letter. began_ns: of the clock of performance.
    """
    rule_us = (time.perf_counter_ns() - began_ns) // 1_000
    if decision is None:
        span.note({"headwater.outcome": "repeated", "headwater.rule_us": rule_us})
        return
    facts = {"headwater.outcome": decision.outcome, "headwater.events": len(decision.events)}
    span.note({**facts, "headwater.rule_us": rule_us}, error="failed" if decision.outcome == "failed" else "")


def end_committed(role: str, members: Collection[Span], began_ns: int, records: int) -> None:
    """End the spans of messages whose transaction is committed now; it has a span too.

    began_ns: of the transaction, since 1970. records: how many messages it has.
    """
    facts: Facts = {"headwater.role": role, "headwater.records": records}
    spans.end_together("transaction", members, began_ns, time.time_ns(), facts)
