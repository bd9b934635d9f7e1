"""The test kit for domains: it decides as production does, and says what differs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from headwater import Aggregate, Command, Event, Process, Reaction, Refused, TimedOut, rename, upcast
from headwater.commands.errors import BadDecision, BadReaction, MalformedCommand, Rejected, UnreadableEvent
from headwater.samples.listings import domain as listing
from headwater.samples.orders.domain import order, refund, stock
from headwater.samples.orders.processes import PAY_WITHIN, UNPAID, order_fulfilment
from headwater.testing import at, given, recorded
from tests.support.badly_behaved import BAD_COMMANDS, BAD_ENDS, BAD_EVENTS, BAD_SAYINGS, BAD_STATES, Do, wild
from tests.support.listed import LISTING

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")

LISTED = listing.Listed(**LISTING | {"listing_id": "L1", "description": ""})
REPRICE = listing.ChangePrice(listing_id="L1", price=58_000)
REPRICED = listing.PriceChanged(listing_id="L1", city="Sacramento", price=58_000, previous_price=59_222)


def test_a_command_on_what_is_given_records_what_is_expected_and_the_next_follows() -> None:
    decided = given(listing.listing, LISTED).when(REPRICE).then(REPRICED)
    assert (decided.events, decided.version, decided.stream) == ((REPRICED,), 2, "listing/L1")
    assert decided.state.price == 58_000
    again = decided.when(REPRICE).then_nothing()
    assert (again.events, again.version) == ((), 2)
    again.when(listing.Sell(listing_id="L1", sold_for=1)).then_rejected("not_under_offer").when(REPRICE).then_nothing()


def test_what_is_given_stays_as_it_is() -> None:
    listed = given(listing.listing, LISTED)
    for price in (1, 2):
        assert listed.when(listing.ChangePrice(listing_id="L1", price=price)).state.price == price
    assert (listed.state.price, listed.version) == (59_222, 1)


@pytest.mark.parametrize(
    ("expected", "says"),
    [
        ([], ["recorded other events", "+ listing.price_changed", "+     price: 58000"]),
        (
            [REPRICED.model_copy(update={"price": 58_001})],
            [
                "    listing.price_changed\n",
                "-     price: 58001\n",
                "+     price: 58000\n",
                '        city: "Sacramento"',
            ],
        ),
        ([REPRICED, REPRICED], ["- listing.price_changed"]),
        ([LISTED], ["- listing.listed", "+ listing.price_changed"]),
    ],
)
def test_other_events_than_expected_are_shown_line_by_line(expected: Sequence[Event], says: Sequence[str]) -> None:
    with pytest.raises(AssertionError) as failed:
        given(listing.listing, LISTED).when(REPRICE).then(*expected)
    assert str(failed.value).startswith('"listing.change_price" on "listing/L1" recorded other events')
    for text in says:
        assert text in str(failed.value)


def test_a_refusal_where_events_were_expected_tells_why() -> None:
    with pytest.raises(AssertionError, match=r'was rejected: "not_listed": .*\n  expected:\n    listing.price_changed'):
        given(listing.listing).when(REPRICE).then(REPRICED)
    with pytest.raises(AssertionError, match='was rejected: "not_listed"'):
        given(listing.listing).when(REPRICE).then_nothing()


def test_a_refusal_is_compared_by_code_and_by_what_it_says() -> None:
    refused = given(listing.listing).when(REPRICE)
    assert refused.rejected is not None
    refused.then_rejected("not_listed").then_rejected("not_listed", saying=refused.rejected.message[5:])
    for code, saying in (("already_sold", ""), ("not_listed", "something else")):
        with pytest.raises(AssertionError, match=f'not rejected with "{code}".*but with "not_listed": '):
            refused.then_rejected(code, saying=saying)
    with pytest.raises(AssertionError, match=r"but recorded:\n    listing.price_changed\n"):
        given(listing.listing, LISTED).when(REPRICE).then_rejected("not_listed")
    with pytest.raises(AssertionError, match="but was accepted and changed nothing"):
        given(listing.listing, LISTED, REPRICED).when(REPRICE).then_rejected("not_listed")


@pytest.mark.parametrize("what", [*BAD_SAYINGS, *BAD_ENDS, *BAD_EVENTS, *BAD_STATES])
def test_whatever_production_answers_failed_to_fails_the_test(what: str) -> None:
    with pytest.raises(BaseException) as failed:
        given(wild).when(Do(wild_id="w", what=what))
    assert not isinstance(failed.value, AssertionError | Rejected | AttributeError) or what == "broken Rejected"


@pytest.mark.parametrize("what", BAD_COMMANDS)
def test_a_command_that_cannot_be_made_again_from_its_record_fails_the_test(what: str) -> None:
    with pytest.raises(RuntimeError, match="SystemExit"):
        given(wild).when(Do.model_construct(wild_id="w", what=what))


def test_a_command_that_the_api_would_refuse_fails_the_test() -> None:
    with pytest.raises(MalformedCommand):
        given(listing.listing, LISTED).when(listing.ChangePrice.model_construct(listing_id="L1", price=-5))


class Moved(Event, type="box.moved", version=2, history=[upcast(1, rename("place", "shelf"))]):
    box_id: str
    shelf: str


class Box(BaseModel):
    model_config = ConfigDict(frozen=True)
    shelf: str = ""


class Move(Command, type="box.move"):
    box_id: str
    shelf: str


class Lost(Event, type="box.lost"):
    box_id: str


def evolve(state: Box, event: Moved) -> Box:
    return Box(shelf=event.shelf) if event.shelf != "nowhere" else None  # type: ignore[return-value]


def decide(command: Move, state: Box) -> Sequence[Event]:
    return [Moved(box_id=command.box_id, shelf=command.shelf)] if command.shelf != state.shelf else []


box = Aggregate(name="box", id_field="box_id", initial=Box(), decide=decide, evolve=evolve)


def test_what_an_older_version_recorded_is_read_as_the_current_one() -> None:
    for data in ({"box_id": "B", "place": "top"}, '{"box_id": "B", "place": "top"}', b'{"box_id":"B","place":"top"}'):
        given(box, recorded(Moved, 1, data)).when(Move(box_id="B", shelf="top")).then_nothing()
    with pytest.raises(UnreadableEvent, match="Extra inputs"):
        given(box, recorded(Moved, 1, {"box_id": "B", "where": "top"}))
    with pytest.raises(UnreadableEvent, match="newer version of the code"):
        given(box, recorded(Moved, 3, {"box_id": "B"}))


def test_what_is_given_must_be_possible() -> None:
    top = Moved(box_id="B", shelf="top")
    with pytest.raises(ValueError, match="box/B, box/C: use events of one stream"):
        given(box, top, Moved(box_id="C", shelf="top"))
    with pytest.raises(ValueError, match='for "box/C", but the events before it are of "box/B"'):
        given(box, top).when(Move(box_id="C", shelf="top"))
    with pytest.raises(TypeError, match='"box" has no event Lost'):
        given(box, Lost(box_id="B"))
    with pytest.raises(TypeError, match='"box" does not decide'):
        given(box).when(REPRICE)
    with pytest.raises(TypeError, match=r'"listing\.price_changed" is not an event of "box"'):
        given(box, top).when(Move(box_id="B", shelf="low")).then(REPRICED)
    with pytest.raises(TypeError, match="expect events"):
        given(box).when(Move(box_id="B", shelf="low")).then({"shelf": "low"})  # type: ignore[arg-type]
    with pytest.raises(BadDecision, match='"evolve" of "box" returned None'):
        given(box, Moved(box_id="B", shelf="nowhere"))
    with pytest.raises(ValidationError):
        given(box, Moved.model_construct(box_id="B", shelf=5))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not an Aggregate or a Process"):
        given(Box())  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="has no zone"):
        at(datetime(2026, 1, 2), top)


# Processes

LINES = (order.Line(sku="tea", quantity=2, unit_cents=5),)
PLACED = order.Placed(order_id="O", customer="Ada", lines=LINES, total_cents=10)
PAID = order.Paid(order_id="O", customer="Ada", lines=LINES, paid_cents=10)
RESERVE = stock.Reserve(sku="tea", order_id="O", quantity=2)


def test_a_process_sends_commands_and_sets_timers() -> None:
    placed = given(order_fulfilment).when(PLACED).then().then_timers({UNPAID: PAY_WITHIN})
    assert placed.state is not None and placed.state.wanted == ("tea",)
    placed.when(PAID).then(RESERVE).then_timers({})
    placed.when(TimedOut(UNPAID)).then(order.Expire(order_id="O")).then_timers({})
    given(order_fulfilment, PLACED, PAID).when(stock.Reserved(sku="tea", order_id="O", quantity=2, available=3)).then(
        order.Confirm(order_id="O")
    )


def test_a_process_sees_its_commands_refused() -> None:
    refused = Refused(RESERVE, "rejected", "unknown_product", "there is no tea")
    reason = '"tea" cannot be reserved: there is no tea'
    given(order_fulfilment, PLACED, PAID).when(refused).then(order.Cancel(order_id="O", reason=reason))
    with pytest.raises(ValueError, match="it has not sent this command"):
        given(order_fulfilment, PLACED).when(refused)


def test_a_process_ends_and_what_is_not_its_business_does_nothing() -> None:
    given(order_fulfilment).when(PAID).then_nothing()
    expired = order.Expired(order_id="O", customer="Ada")
    assert given(order_fulfilment, PLACED).when(expired).then().then_ended().state is None
    with pytest.raises(AssertionError, match="other timers"):
        given(order_fulfilment, PLACED).when(expired).then_nothing()
    cancelled = order.Cancelled(order_id="O", customer="Ada", lines=LINES, paid_cents=10, reason="no")
    owed = refund.Request(order_id="O", customer="Ada", amount_cents=10, reason="no")
    given(order_fulfilment, PLACED).when(cancelled).then(owed).then_ended()


def test_time_passes_for_the_timers_of_a_process() -> None:
    noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    placed = given(order_fulfilment, at(noon, PLACED))
    assert placed.timers == {UNPAID: PAY_WITHIN}
    late = placed.when(
        at(noon + timedelta(minutes=10), stock.Reserved(sku="tea", order_id="O", quantity=2, available=3))
    )
    late.then().then_timers({UNPAID: PAY_WITHIN - timedelta(minutes=10)})


@pytest.mark.parametrize(
    ("fails", "says"),
    [
        (lambda: given(order_fulfilment).when(PLACED).then(RESERVE), ["sent other commands", "- stock.reserve"]),
        (lambda: given(order_fulfilment, PLACED).when(PAID).then(), ["+ stock.reserve", "+     quantity: 2"]),
        (lambda: given(order_fulfilment).when(PAID).then(RESERVE), ["had not begun"]),
        (lambda: given(order_fulfilment).when(PLACED).then_timers({}), ['actual:   "unpaid" in 0:30:00']),
        (lambda: given(order_fulfilment).when(PLACED).then_ended(), ["has not ended"]),
    ],
)
def test_what_differs_is_said_of_a_process_too(fails: Any, says: Sequence[str]) -> None:
    with pytest.raises(AssertionError) as failed:
        fails()
    for text in ('"order_fulfilment" after "order.p', *says):
        assert text in str(failed.value)


@pytest.mark.parametrize(
    ("fails", "error", "says"),
    [
        (lambda: given(order_fulfilment, LISTED), TypeError, "does not handle Listed"),
        (lambda: given(order_fulfilment, PLACED).when(TimedOut("late")), ValueError, 'no running timer "late"'),
        (lambda: given(order_fulfilment).when(TimedOut(UNPAID)), ValueError, "no timers"),
        (
            lambda: given(order_fulfilment, PLACED, PAID.model_copy(update={"order_id": "P"})),
            ValueError,
            'for the instance "P", but what came before it is for "O"',
        ),
    ],
)
def test_what_a_process_sees_must_be_possible(fails: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        fails()


def reacting(answer: Any) -> Process[Box]:
    def react(event: Moved | TimedOut, state: Box) -> Reaction[Box]:
        made: Reaction[Box] = answer() if callable(answer) else answer
        return made

    return Process(name="mover", key="box_id", initial=Box(), starts=(Moved,), react=react)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (None, "returned NoneType, not a Reaction"),
        (Reaction(Box(), ["x"]), "sends str"),  # type: ignore[list-item]
        (Reaction(LISTED), "the state of"),
        (Reaction(Box(), timers={"t": 5}), "use a text as name, and a timedelta"),  # type: ignore[dict-item]
        (Reaction(Box(), [Move.model_construct(box_id="B", shelf=5)]), "does not match its own model"),  # type: ignore[arg-type]
        (Reaction(Box.model_construct(shelf=5)), "does not match its own model"),  # type: ignore[arg-type]
        (Reaction(Box(), [Move(box_id="B", shelf="x" * 1024 * 1024)]), "bytes, but at most"),
    ],
)
def test_whatever_stops_an_instance_in_production_fails_the_test(answer: Any, says: str) -> None:
    with pytest.raises(BadReaction, match=says):
        given(reacting(answer)).when(Moved(box_id="B", shelf="top"))


def test_what_react_raises_comes_out_of_the_test() -> None:
    with pytest.raises(ZeroDivisionError):
        given(reacting(lambda: 1 / 0)).when(Moved(box_id="B", shelf="top"))


def test_an_instance_with_too_long_a_key_fails_the_test() -> None:
    with pytest.raises(BadReaction, match="the key of an instance"):
        given(reacting(Reaction(Box()))).when(Moved(box_id="B" * 20_000, shelf="top"))


def test_a_command_that_its_aggregate_could_not_read_fails_the_test() -> None:
    with pytest.raises(MalformedCommand):
        given(reacting(Reaction(Box(), [Move(box_id="B", shelf="nul\0l")]))).when(Moved(box_id="B", shelf="top"))
