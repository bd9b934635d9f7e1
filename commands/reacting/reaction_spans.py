"""The spans of what process instances do with the events that they get."""

from __future__ import annotations

from headwater.commands.reacting.causes import TIMED_OUT, Timer
from headwater.commands.reacting.instance import Step
from headwater.eventlog.envelope import Envelope
from headwater.eventlog.ports import Record
from headwater.eventlog.tracing import spans
from headwater.eventlog.tracing.spans import Span, origin_of_change, span_of


def begin_reaction(process: str, cause: Envelope) -> Span | None:
    """The span of a reaction, whose context its commands carry; None if the trace of its cause is not sampled."""
    facts = {"headwater.reaction.process": process, "headwater.cause.type": cause.type, "headwater.cause.id": cause.id}
    return spans.continued(f"react {process}", cause.traceparent, "consumer", facts)


def begin_change(topic: str, record: Record) -> Span | None:
    """The span of the routing of a change of a captured row, which has the trace of the patches of the same change.
    None if that is not sampled."""
    context = origin_of_change(f"{topic}/{record.partition}", record.offset)
    if context is None:
        return None
    _, own = span_of(context, "route")
    return spans.first(f"route {topic}", own, "consumer", {"headwater.change": f"{record.partition}:{record.offset}"})


def begin_timer(process: str, timer: Timer, timer_id: str) -> Span | None:
    """The span of the reaction to a timer, in a trace of its own, because it may fire after days; it links to the
    reaction that set it. None if that is not sampled."""
    if timer.traceparent is None:
        return None
    facts = {"headwater.reaction.process": process, "headwater.cause.type": TIMED_OUT, "headwater.cause.id": timer_id}
    return spans.begun(f"react {process}", "internal", facts, [timer.traceparent], always=True)


def is_reaction(span: Span, step: Step | None, *, failed: bool) -> bool:
    """Whether there was one, and then say so in its span: an instance ignores what it has handled before."""
    if step is None and not failed:
        return False
    span.note({"headwater.commands": 0 if step is None else len(step.commands)}, error="failed" if failed else "")
    return True
