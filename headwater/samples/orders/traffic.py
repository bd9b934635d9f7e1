"""The sample `orders`: orders for more stock than there is; the events show the outcome of each order.

The events are read from the view `streams`. Lines of large orders are rows of the real-time view `large_order_lines`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from headwater.compose.samples import stored_rows
from headwater.compose.samples.sample import Client, Deployment, Request, Sample, happened, settled

from .expected import CENTS, LINES, PLENTY, RECEIVED, SCARCE, Wish, differences, large_order_lines

ORDERS, LOADED = 200, 20
AGGREGATES = ("order", "stock", "refund")
LOOK_AGAIN_S = 0.2


class Orders:
    """Customers' orders; see Sample for the methods.

    Most are paid, and some of these need more of a product than there is; half of the others are cancelled.
    """

    things = "orders"
    measured = 100
    views: Sequence[str] = ("streams", LINES)
    rows: Mapping[str, str] = {"streams": "order/order-1/1", LINES: "order%2Forder-4/0"}

    def __init__(self) -> None:
        self._wishes: dict[str, Wish] = {}

    @property
    def number(self) -> int:
        return ORDERS

    async def prepare(self, client: Client, deployment: Deployment) -> None:
        return

    def loading(self) -> Sequence[Mapping[str, Request]]:
        return [{f"load-{each.type}-{_key(each)}": each for each in requests} for requests in self._begin(LOADED)]

    def rounds(self) -> Sequence[Sequence[Request]]:
        return self._begin(ORDERS)

    async def change(self) -> None:
        return

    async def write_and_read(self, client: Client, number: int) -> tuple[float, str]:
        name = f"fresh-{number}"
        receipt = await client.send(self._place(name, Wish((PLENTY,))))
        began = time.perf_counter()
        answer = await client.http.get(f"/views/streams/order/{name}/1", params={"after": receipt["position"]})
        took_s = time.perf_counter() - began
        shown = answer.json().get("type") == "order.placed"
        return took_s, "" if shown else f"streams/order/{name}/1 did not show its own write: {answer.text}"

    async def trade(self, client: Client, number: int) -> None:
        name = f"traded-{number}"
        await client.send(self._place(name, Wish((PLENTY,), paid=True)))
        await client.send(self._pay(name))

    async def mismatches(self, client: Client, deployment: Deployment) -> list[str]:
        await client.settle(self.rows)
        # wait for the process: it has finished when every order has its final event
        return await settled(lambda: self._differences(deployment), LOOK_AGAIN_S)

    def _differences(self, deployment: Deployment) -> list[str]:
        """Those of the events, and of the lines in PostgreSQL and in their topic."""
        found = differences(self._wishes, happened(deployment, AGGREGATES))
        for rows in (stored_rows.table(deployment, LINES, "key"), stored_rows.followed(deployment, LINES, "key")):
            found += stored_rows.differences(LINES, large_order_lines(self._wishes), rows, "Python")
        return found

    def _begin(self, number: int) -> list[list[Request]]:
        wishes = {
            f"order-{n}": Wish((PLENTY, SCARCE) if n % 4 == 0 else (PLENTY,), n % 10 != 0, n % 20 == 0)
            for n in range(1, number + 1)
        }
        return [
            [Request("stock.receive", {"sku": sku, "quantity": quantity}) for sku, quantity in RECEIVED.items()],
            [self._place(name, wish) for name, wish in wishes.items()],
            [
                *(self._pay(name) for name, wish in wishes.items() if wish.paid),
                *(
                    Request("order.cancel", {"order_id": name, "reason": "the customer changed their mind"})
                    for name, wish in wishes.items()
                    if wish.called_off
                ),
            ],
        ]

    def _place(self, name: str, wish: Wish) -> Request:
        self._wishes[name] = wish
        lines = [{"sku": sku, "quantity": 1, "unit_cents": CENTS[sku]} for sku in wish.skus]
        return Request("order.place", {"order_id": name, "customer": "Ada", "lines": lines})

    def _pay(self, name: str) -> Request:
        return Request("order.pay", {"order_id": name, "amount_cents": self._wishes[name].cents})


def _key(request: Request) -> str:
    return str(request.body.get("order_id") or request.body["sku"])


def sample() -> Sample:
    """What `run` and `demo` send, and check."""
    return Orders()


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
