"""A basket: products are put in and taken out until it is checked out."""

from collections.abc import Mapping, Sequence
from typing import Annotated, assert_never

from pydantic import BaseModel, ConfigDict, Field

from headwater import Aggregate, Command, Event, Rejected, convert, default, rename, upcast

Pieces = Annotated[int, Field(gt=0, le=1000)]


def dozens(number: int) -> int:
    """The pieces in so many dozens."""
    return 12 * number


class ProductAdded(
    Event,
    type="basket.product_added",
    version=3,
    history=[
        upcast(1, rename("item", "product")),
        upcast(2, convert("pieces", dozens), default("gift", False)),
    ],
):
    """Some pieces of a product were put in; before version 3 they were counted in dozens."""

    basket_id: str
    product: str
    pieces: int
    gift: bool


class ProductRemoved(Event, type="basket.product_removed"):
    """Some pieces of a product were taken out."""

    basket_id: str
    product: str
    pieces: int


class CheckedOut(Event, type="basket.checked_out"):
    """The basket was bought as it stands."""

    basket_id: str


class Basket(BaseModel):
    """What the rules need to know: the pieces of each product, and whether it is bought."""

    model_config = ConfigDict(frozen=True)

    pieces: Mapping[str, int] = {}
    bought: bool = False


def evolve(state: Basket, event: ProductAdded | ProductRemoved | CheckedOut) -> Basket:
    """The basket after `event`."""
    match event:
        case ProductAdded():
            held = state.pieces.get(event.product, 0) + event.pieces
            return state.model_copy(update={"pieces": {**state.pieces, event.product: held}})
        case ProductRemoved():
            held = state.pieces[event.product] - event.pieces
            return state.model_copy(update={"pieces": {**state.pieces, event.product: held}})
        case CheckedOut():
            return state.model_copy(update={"bought": True})
        case _:
            assert_never(event)


class AddProduct(Command, type="basket.add_product"):
    """Put some pieces of a product in."""

    basket_id: str
    product: Annotated[str, Field(min_length=1)]
    pieces: Pieces
    gift: bool = False


class RemoveProduct(Command, type="basket.remove_product"):
    """Take some pieces of a product out."""

    basket_id: str
    product: str
    pieces: Pieces


class CheckOut(Command, type="basket.check_out"):
    """Buy what is in the basket."""

    basket_id: str


def decide(command: AddProduct | RemoveProduct | CheckOut, state: Basket) -> Sequence[Event]:
    """The events that `command` causes; raises Rejected where a rule says no."""
    if state.bought:
        raise Rejected("already_bought", "this basket is bought: start a new one")
    match command:
        case AddProduct():
            return [ProductAdded(**command.model_dump())]
        case RemoveProduct():
            if state.pieces.get(command.product, 0) < command.pieces:
                raise Rejected("not_in_basket", f'there are not {command.pieces} of "{command.product}" to take out')
            return [ProductRemoved(basket_id=command.basket_id, product=command.product, pieces=command.pieces)]
        case CheckOut():
            if not any(state.pieces.values()):
                raise Rejected("empty_basket", "there is nothing in the basket")
            return [CheckedOut(basket_id=command.basket_id)]
        case _:
            assert_never(command)


basket = Aggregate(name="basket", id_field="basket_id", initial=Basket(), decide=decide, evolve=evolve)
