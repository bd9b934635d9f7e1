"""The spans of what process instances do with the events that they get."""

from __future__ import annotations

from commands.reacting.instance import Step
from eventlog.envelope import Envelope
from eventlog.tracing import spans
from eventlog.tracing.spans import Span


def begin_reaction(process: str, cause: Envelope) -> Span | None:
    """The span of a reaction, whose context its commands carry; None if the trace of its cause is not sampled."""
    facts = {"headwater.reaction.process": process, "headwater.cause.type": cause.type, "headwater.cause.id": cause.id}
    return spans.continued(f"react {process}", cause.traceparent, "consumer", facts)


def is_reaction(span: Span, step: Step | None, *, failed: bool) -> bool:
    """Whether there was one, and then say so in its span: an instance ignores what it has handled before."""
    if step is None and not failed:
        return False
    span.note({"headwater.commands": 0 if step is None else len(step.commands)}, error="failed" if failed else "")
    return True
