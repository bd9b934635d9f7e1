"""The membership of a customer, in one of three tiers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from headwater import Aggregate, Command, Event

Tier = Literal["basic", "silver", "gold"]


class TierChanged(Event, type="membership.tier_changed"):
    """From now on the customer is in this tier."""

    customer: str
    tier: str


class Membership(BaseModel):
    """The tier; None before the first one."""

    model_config = ConfigDict(frozen=True)

    tier: str | None = None


def evolve(state: Membership, event: TierChanged) -> Membership:
    """The state after `event`."""
    return state.model_copy(update={"tier": event.tier})


class ChangeTier(Command, type="membership.change_tier"):
    """Put the customer into a tier; does nothing if the customer is in it."""

    customer: Annotated[str, Field(min_length=1, max_length=100)]
    tier: Tier


def decide(command: ChangeTier, state: Membership) -> Sequence[Event]:
    """The events of `command`."""
    return [] if command.tier == state.tier else [TierChanged(customer=command.customer, tier=command.tier)]


membership = Aggregate(name="membership", id_field="customer", initial=Membership(), decide=decide, evolve=evolve)
