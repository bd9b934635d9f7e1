"""The spans of decisions, and of the transactions that have them in common."""

from __future__ import annotations

from collections.abc import Collection

from commands.handling.decision import Decision
from eventlog.envelope import Envelope
from eventlog.tracing import spans
from eventlog.tracing.spans import Facts, Span


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


def end_decision(span: Span, decision: Decision | None) -> None:
    """End the span of a decision; None: the command was answered before, or is a dead letter."""
    if decision is None:
        span.end({"headwater.outcome": "repeated"})
        return
    facts = {"headwater.outcome": decision.outcome, "headwater.events": len(decision.events)}
    span.end(facts, error="failed" if decision.outcome == "failed" else "")


def end_commits(role: str, decided: Collection[str], began_ns: int, ended_ns: int, records: int) -> None:
    """The spans of a transaction that is committed: one in the trace of each message, and one for all of them.

    decided: the contexts of the messages' spans. records: how many messages the transaction has.
    """
    members = [spans.continued("commit", each, began_ns=began_ns) for each in decided]
    facts: Facts = {"headwater.role": role, "headwater.records": records}
    spans.end_together("transaction", [each for each in members if each is not None], began_ns, ended_ns, facts)
