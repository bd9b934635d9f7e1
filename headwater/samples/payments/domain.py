"""Cards that are charged and blocked, and the phones of their holders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, assert_never

from pydantic import BaseModel, ConfigDict, Field

from headwater import Aggregate, Command, Event, Observation, Rejected

MAX_EVIDENCE: Final = 100

CardNumber = Annotated[str, Field(min_length=1, max_length=100)]


class CardBlocked(Event, type="card.blocked"):
    """The card takes no payments. rule: that says so. evidence: ids of the observations that the rule was about."""

    card: str
    rule: str
    evidence: tuple[str, ...]


class CardUnblocked(Event, type="card.unblocked"):
    """The card takes payments again. rule: by which it was blocked."""

    card: str
    rule: str


class Card(BaseModel):
    """The rule by which the card is blocked; None if it is open, as each card is at first."""

    model_config = ConfigDict(frozen=True)

    blocked_by: str | None = None


def evolve(state: Card, event: CardBlocked | CardUnblocked) -> Card:
    """The state after `event`."""
    match event:
        case CardBlocked():
            return state.model_copy(update={"blocked_by": event.rule})
        case CardUnblocked():
            return state.model_copy(update={"blocked_by": None})
        case _:
            assert_never(event)


class BlockCard(Command, type="card.block"):
    """Block the card; if it is blocked already, nothing happens."""

    card: CardNumber
    rule: Annotated[str, Field(min_length=1, max_length=100)]
    evidence: Annotated[tuple[Annotated[str, Field(max_length=1_000)], ...], Field(max_length=MAX_EVIDENCE)] = ()


class UnblockCard(Command, type="card.unblock"):
    """Open a blocked card again."""

    card: CardNumber


def decide(command: BlockCard | UnblockCard, state: Card) -> Sequence[Event]:
    """The events of `command`; raises Rejected if a rule refuses it."""
    match command:
        case BlockCard():
            if state.blocked_by is not None:  # several alerts about one card are usual
                return []
            return [CardBlocked(card=command.card, rule=command.rule, evidence=command.evidence)]
        case UnblockCard():
            if state.blocked_by is None:
                raise Rejected("not_blocked", f'card "{command.card}" is not blocked')
            return [CardUnblocked(card=command.card, rule=state.blocked_by)]
        case _:
            assert_never(command)


card = Aggregate(name="card", id_field="card", initial=Card(), decide=decide, evolve=evolve)


class CardCharged(Observation, type="card_charged"):
    """A card was charged; the report's source is the shop. latitude, longitude: of the place of payment, in degrees."""

    card: Annotated[str, Field(min_length=1, max_length=100)]
    cents: Annotated[int, Field(ge=1, le=10**12)]
    latitude: Annotated[float, Field(ge=-90, le=90)]
    longitude: Annotated[float, Field(ge=-180, le=180)]


class PhoneLocated(Observation, type="phone_located"):
    """The phone of a card's holder was at this place. latitude, longitude: in degrees."""

    card: Annotated[str, Field(min_length=1, max_length=100)]
    latitude: Annotated[float, Field(ge=-90, le=90)]
    longitude: Annotated[float, Field(ge=-180, le=180)]
