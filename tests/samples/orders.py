"""The sample `orders`, checked: the events show the outcome of each order.

The events are read from the view `streams`. Lines of large orders are rows of the real-time view `large_order_lines`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from headwater.compose.samples.orders import CENTS, PLENTY, RECEIVED, SCARCE, Orders, Wish
from headwater.compose.samples.sample import Client, Deployment, Request
from tests.samples.checked import CheckedSample, Happened, happened, read_after, settled
from tests.samples.stored_rows import Rows, differences, followed, table

ORDERS: Final = 200
PRODUCTS: Mapping[str, tuple[str, str, int]] = {
    PLENTY: ("green tea", "drinks", 725),
    SCARCE: ("saffron, 1 g", "spices", 900),
}
"""Name, category, and rate of tax in hundredths of a percent."""
LINES, LARGE_CENTS = "large_order_lines", 1_000
AGGREGATES = ("order", "stock", "refund")


def ends_of(wish: Wish) -> tuple[str, ...]:
    """The types of events that the stream of an order may end with."""
    if wish.paid:
        return ("order.confirmed", "order.cancelled") if SCARCE in wish.skus else ("order.confirmed",)
    return ("order.cancelled",) if wish.called_off else ("order.placed",)


def event_differences(wishes: Mapping[str, Wish], events: Iterable[Happened]) -> Iterator[str]:
    """Every difference between the events of orders, stock and refunds and those that `wishes` require.

    A paid order is confirmed if there is stock for it, else cancelled and refunded. Stock is reserved only for
    confirmed orders. Every stream has each version once.
    """
    streams: dict[str, list[Happened]] = defaultdict(list)
    for event in sorted(events, key=lambda event: (event.stream, event.sequence)):
        streams[event.stream].append(event)
    for stream, own in streams.items():
        versions = [event.sequence for event in own]
        if versions != list(range(1, len(own) + 1)):
            yield f"{stream} has the versions {versions}"
    ends = {name: streams[f"order/{name}"][-1].type if f"order/{name}" in streams else "missing" for name in wishes}
    for name, end in ends.items():
        expected = ends_of(wishes[name])
        if end not in expected:
            yield f"order/{name} ended with {end}, not {' or '.join(expected)}"
    confirmed = {name for name, end in ends.items() if end == "order.confirmed"}
    reserved = Counter(sku for name in confirmed for sku in wishes[name].skus)
    wanted = sum(wish.skus.count(SCARCE) for wish in wishes.values() if wish.paid)
    if reserved[SCARCE] != min(RECEIVED[SCARCE], wanted):  # as many as there is stock for
        yield f"{reserved[SCARCE]} orders with {SCARCE} are confirmed, not {min(RECEIVED[SCARCE], wanted)}"
    for sku, received in RECEIVED.items():
        states = [event.data["available"] for event in streams.get(f"stock/{sku}", ()) if "available" in event.data]
        if states[-1:] != [received - reserved[sku]]:
            yield f"of {sku} {states[-1:]} are available, not {received - reserved[sku]}"
    owed = {f"refund/{name}": wish.cents for name, wish in wishes.items() if wish.paid and name not in confirmed}
    refunds = {
        stream: sum(event.data["amount_cents"] for event in own)
        for stream, own in streams.items()
        if stream.startswith("refund/")
    }
    for stream in sorted(owed.keys() | refunds.keys()):
        if refunds.get(stream) != owed.get(stream):
            yield f"{stream} is {refunds.get(stream, 0)} cents, not {owed.get(stream, 0)}"


def large_order_lines(wishes: Mapping[str, Wish]) -> Rows:
    """The rows of LINES."""
    large = {name: wish.skus for name, wish in wishes.items() if wish.cents >= LARGE_CENTS}
    found = {}
    for name, line, sku in [(name, line, sku) for name, skus in large.items() for line, sku in enumerate(skus)]:
        product, category, basis_points = PRODUCTS[sku]
        found[f"order%2F{name}/{line}"] = {
            "stream": f"order/{name}",
            "line": line,
            "customer": "Ada",
            "sku": sku,
            "product": product,
            "category": category,
            "quantity": 1,
            "cents": CENTS[sku],
            "tax_cents": (CENTS[sku] * basis_points + 5_000) // 10_000,
        }
    return found


class CheckedOrders(CheckedSample, Orders):
    """Customers' orders.

    Most are paid, and some of these need more of a product than there is; half of the others are cancelled.
    """

    things = "orders"
    number = ORDERS
    measured = 100
    views = ("streams", LINES)

    def rounds(self) -> Sequence[Sequence[Request]]:
        return self.begin(ORDERS)

    async def write_and_read(self, client: Client, number: int) -> tuple[float, str]:
        name = f"fresh-{number}"
        receipt = await client.send(self.place(name, Wish((PLENTY,))))
        took_s, answer = await read_after(client, f"/views/streams/order/{name}/1", receipt["position"])
        shown = answer.json().get("type") == "order.placed"
        return took_s, "" if shown else f"streams/order/{name}/1 did not show its own write: {answer.text}"

    async def trade(self, client: Client, number: int) -> None:
        name = f"traded-{number}"
        await client.send(self.place(name, Wish((PLENTY,), paid=True)))
        await client.send(self.pay(name))

    async def mismatches(self, client: Client, deployment: Deployment) -> list[str]:
        await client.settle(self.rows)
        # wait for the process: it has finished when every order has its final event
        return await settled(lambda: self._differences(deployment))

    def _differences(self, deployment: Deployment) -> Iterator[str]:
        """Those of the events, and of the lines in PostgreSQL and in their topic."""
        yield from event_differences(self.wishes, happened(deployment, AGGREGATES))
        for rows in (table(deployment, LINES, "key"), followed(deployment, LINES, "key")):
            yield from differences(LINES, large_order_lines(self.wishes), rows, "Python")


sample: Final = CheckedOrders
