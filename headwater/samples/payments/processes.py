"""Blocks cards that were charged several times in quick succession.

The rows of the view `rapid_payments` are final, so each alert comes once. The process remembers nothing: the aggregate
knows whether the card is blocked.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from headwater import Process, Reaction, ViewRow

from .domain import MAX_EVIDENCE, BlockCard


class RapidPayments(ViewRow, view="rapid_payments"):
    """A series of payments of one card. ids: of its payments, in their order."""

    card: str
    ids: list[str]


class Nothing(BaseModel):
    """No state."""

    model_config = ConfigDict(frozen=True)


def react(event: RapidPayments, state: Nothing) -> Reaction[Nothing]:
    """The reaction to an alert: one command for its card, with the first payments of the series as evidence."""
    evidence = tuple(event.ids[:MAX_EVIDENCE])
    return Reaction(state, [BlockCard(card=event.card, rule=RapidPayments.view, evidence=evidence)], ended=True)


card_blocking = Process(
    name="card_blocking",
    key="card",
    initial=Nothing(),
    starts=(RapidPayments,),
    react=react,
    begins="origin",
)
