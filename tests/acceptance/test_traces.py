"""One trace of a whole deployment: from a request to the rows in each store, and on through a process."""

from __future__ import annotations

import secrets

import httpx

from tests.support.collector import Collector, Seen
from tests.support.waiting import Latest, eventually

PAID = "POST /commands/order.pay > send order.pay > decide order.pay"
RESERVED = f"{PAID} > react order_fulfilment > decide stock.reserve"
EXPECTED = {
    "POST /commands/order.pay": "headwater-api",
    "POST /commands/order.pay > send order.pay": "headwater-api",
    PAID: "headwater-handler",
    f"{PAID} > patch streams": "headwater-load-postgres",
    f"{PAID} > patch streams > load streams postgres": "headwater-load-postgres",
    f"{PAID} > react order_fulfilment": "headwater-handler",
    RESERVED: "headwater-handler",
    f"{RESERVED} > patch reserved_stock": "headwater-load-postgres",
    **{
        f"{RESERVED} > patch reserved_stock > load reserved_stock {store}": f"headwater-load-{store}"
        for store in ("postgres", "elasticsearch", "valkey")
    },
}
"""Each span with those above it, and the program that has recorded it."""


def test_a_request_is_one_trace_into_the_rows_of_each_store_and_through_a_process(
    http: httpx.Client, collector: Collector
) -> None:
    key, sampled, unsampled = secrets.token_hex(4), secrets.token_hex(16), secrets.token_hex(16)
    sku, order = f"sku-{key}", f"order-{key}"
    line = {"sku": sku, "quantity": 2, "unit_cents": 5}
    steps = (
        ("stock.receive", {"sku": sku, "quantity": 9}, f"00-{unsampled}-{secrets.token_hex(8)}-00"),
        ("order.place", {"order_id": order, "customer": f"Ada {key}", "lines": [line]}, None),
        ("order.pay", {"order_id": order, "amount_cents": 10}, f"00-{sampled}-{secrets.token_hex(8)}-01"),
    )
    for name, body, traceparent in steps:
        headers = {} if traceparent is None else {"traceparent": traceparent}
        sent = http.post(f"/commands/{name}", json=body, headers=headers)
        assert sent.status_code == 201, sent.text
    eventually(lambda: http.get(f"/views/reserved_stock/{sku}").is_success, "the row is there")
    found: dict[str, Seen] = {}

    def is_whole() -> bool:
        found.update(paths(collector.trace(sampled)))
        return EXPECTED.keys() <= found.keys()

    eventually(is_whole, Latest(lambda: f"of {sorted(EXPECTED)} these have come: {sorted(found)}"))
    assert {path: found[path].service for path in EXPECTED} == EXPECTED
    assert all(span.began_ns <= span.ended_ns for span in found.values())
    assert not any(each.failed for each in found.values())
    for path, role in ((PAID, "handler"), (f"{PAID} > react order_fulfilment", "processes"), (RESERVED, "handler")):
        assert_batch(collector, found[path], "headwater.role", role)
    for store in ("postgres", "elasticsearch", "valkey"):
        load = found[f"{RESERVED} > patch reserved_stock > load reserved_stock {store}"]
        assert_batch(collector, load, "headwater.store", store)
    assert http.get("/health/live").is_success
    # the sampler decides on requests whose callers do not: here, that none is recorded
    roots = [span.name for span in collector.spans if not span.parent]
    assert {name.split(" ")[0] for name in roots} <= {"transaction", "load"}
    assert collector.trace(unsampled) == []
    texts = " ".join(str((span.name, span.facts)) for span in collector.spans)
    assert f"Ada {key}" not in texts


def paths(trace: list[Seen]) -> dict[str, Seen]:
    """Each span, by its name below those above it; of loads, with the store."""
    by_id = {event.id: event for event in trace}

    def path(span: Seen) -> str:
        name = f"{span.name} {span.facts['headwater.store']}" if span.name.startswith("load ") else span.name
        above = by_id.get(span.parent)
        return name if above is None else f"{path(above)} > {name}"

    return {path(each): each for each in trace}


def assert_batch(collector: Collector, member: Seen, fact: str, value: str) -> None:
    """A span links to that of its batch, which has a trace of its own and links back."""
    ((trace, batch_id),) = member.links

    def batch() -> Seen | None:
        return next((event for event in collector.trace(trace) if event.id == batch_id), None)

    found = eventually(batch, "the batch has arrived")
    assert found is not None
    assert (found.parent, found.facts[fact]) == ("", value)
    assert (member.trace, member.id) in found.links
    assert trace != member.trace
