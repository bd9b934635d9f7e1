"""The sample `orders`: orders for more stock than there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headwater.compose.samples.sample import Request, Sample

PLENTY, SCARCE = "tea", "saffron"
CENTS: Mapping[str, int] = {PLENTY: 250, SCARCE: 900}
RECEIVED: Mapping[str, int] = {PLENTY: 100_000, SCARCE: 20}
LOADED: Final = 20


@dataclass(frozen=True)
class Wish:
    """An order to place: its products, one of each, and whether the customer pays or cancels it."""

    skus: tuple[str, ...]
    paid: bool = False
    called_off: bool = False

    @property
    def cents(self) -> int:
        """The price of the order."""
        return sum(CENTS[sku] for sku in self.skus)


class Orders(Sample):
    """Customers' orders, some for more of a product than there is. wishes: those that were placed, by their names."""

    rows: Mapping[str, str] = {"streams": "order/order-1/1", "large_order_lines": "order%2Forder-4/0"}

    def __init__(self) -> None:
        self.wishes: dict[str, Wish] = {}

    def loading(self) -> Sequence[Sequence[Request]]:
        return self.begin(LOADED)

    def begin(self, number: int) -> list[list[Request]]:
        """So many orders, most of them paid; half of the others are cancelled."""
        wishes = {
            f"order-{n}": Wish((PLENTY, SCARCE) if n % 4 == 0 else (PLENTY,), n % 10 != 0, n % 20 == 0)
            for n in range(1, number + 1)
        }
        return [
            [Request("stock.receive", {"sku": sku, "quantity": quantity}) for sku, quantity in RECEIVED.items()],
            [self.place(name, wish) for name, wish in wishes.items()],
            [
                *(self.pay(name) for name, wish in wishes.items() if wish.paid),
                *(
                    Request("order.cancel", {"order_id": name, "reason": "the customer changed their mind"})
                    for name, wish in wishes.items()
                    if wish.called_off
                ),
            ],
        ]

    def place(self, name: str, wish: Wish) -> Request:
        """The command that places an order."""
        self.wishes[name] = wish
        lines = [{"sku": sku, "quantity": 1, "unit_cents": CENTS[sku]} for sku in wish.skus]
        return Request("order.place", {"order_id": name, "customer": "Ada", "lines": lines})

    def pay(self, name: str) -> Request:
        """The command that pays an order that was placed."""
        return Request("order.pay", {"order_id": name, "amount_cents": self.wishes[name].cents})


sample: Final = Orders


TO_TRY: Final[tuple[tuple[str, str], ...]] = (
    ("the history of an order: placed, paid, confirmed", "curl -sS {api}/streams/order/order-1"),
    (
        "place another order",
        "curl -sS -X POST {api}/commands/order.place -H 'content-type: application/json' "
        '-d \'{{"order_id": "mine", "customer": "Ada", '
        '"lines": [{{"sku": "tea", "quantity": 2, "unit_cents": 250}}]}}\'',
    ),
    (
        "pay it; then a process reserves its stock",
        "curl -sS -X POST {api}/commands/order.pay -H 'content-type: application/json' "
        '-d \'{{"order_id": "mine", "amount_cents": 500}}\'',
    ),
    ("its history", "curl -sS {api}/streams/order/mine"),
    ("the history of the stock of tea", "curl -sS {api}/streams/stock/tea"),
)
"""What each does, and its command."""
