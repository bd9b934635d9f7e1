"""Where traces begin whose origin has no trace context; several processes record spans of each."""

from __future__ import annotations

from headwater.eventlog.tracing import spans


def origin_of_change(source: str, offset: int) -> str | None:
    """The context of a change of a captured row; None if that is not sampled.

    source: such as `cdc.shop.public.customers/0`.
    """
    return spans.origin_of("change", "change", source, str(offset))


def origin_of_batch(tag: str, number: int) -> str | None:
    """The context of the span of a batch of a stream view; None if that is not sampled. tag: of the generation."""
    return spans.origin_of("batch", "batch", tag, str(number))
