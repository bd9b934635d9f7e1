"""The cards of the payments sample: what an alert does to a card, and what a person does."""

from __future__ import annotations

import pytest

from headwater import Process, Reaction, RowDeleted, ViewRow
from headwater.samples.payments.domain import MAX_EVIDENCE, BlockCard, CardBlocked, CardUnblocked, UnblockCard, card
from headwater.samples.payments.processes import Nothing, RapidPayments, card_blocking
from headwater.testing import given

ALERT = RapidPayments(card="A", ids=["p1", "p2"])
BLOCK = BlockCard(card="A", rule="rapid_payments", evidence=("p1", "p2"))
BLOCKED = CardBlocked(card="A", rule="rapid_payments", evidence=("p1", "p2"))


def test_each_alert_is_one_command_and_nothing_is_kept() -> None:
    first = given(card_blocking).when(ALERT).then(BLOCK).then_ended()
    later = RapidPayments(card="A", ids=[f"p{number}" for number in range(MAX_EVIDENCE + 1)])
    first.when(later).then(BLOCK.model_copy(update={"evidence": tuple(later.ids[:-1])})).then_ended()


def test_a_card_is_blocked_once_until_a_person_opens_it() -> None:
    given(card).when(UnblockCard(card="A")).then_rejected("not_blocked")
    blocked = given(card).when(BLOCK).then(BLOCKED)
    blocked.when(BlockCard(card="A", rule="stolen")).then_nothing()
    opened = blocked.when(UnblockCard(card="A")).then(CardUnblocked(card="A", rule="rapid_payments"))
    opened.when(BlockCard(card="A", rule="stolen")).then(CardBlocked(card="A", rule="stolen", evidence=()))


class Lateness(ViewRow, view="bus_lateness"):
    key: str
    minutes: int


def test_rows_of_other_views_are_errors_of_the_test_and_deletions_name_their_row() -> None:
    with pytest.raises(TypeError, match=r'"card_blocking" does not handle .*add it to the annotation of "event"'):
        given(card_blocking).when(Lateness(key="7", minutes=1))
    with pytest.raises(ValueError, match='for the instance "B", but what came before it is for "A"'):
        given(card_blocking, ALERT).when(ALERT.model_copy(update={"card": "B"}))

    def react(event: Lateness | RowDeleted[Lateness], state: Nothing) -> Reaction[Nothing]:
        return Reaction(state, ended=isinstance(event, RowDeleted))

    lateness = Process(name="lateness", key="row", initial=Nothing(), starts=(Lateness,), react=react)
    late = given(lateness, Lateness(key="7", minutes=1)).when(Lateness(key="7", minutes=2))
    late.when(RowDeleted(Lateness, "7")).then_ended()
    with pytest.raises(ValueError, match='the deletion of a row of the view "bus_lateness" is for the instance "8"'):
        late.when(RowDeleted(Lateness, "8"))
