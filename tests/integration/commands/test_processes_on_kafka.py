"""A process on real Kafka: orders are fulfilled, refused and expired though everything is killed in between."""

from __future__ import annotations

import os
import signal
from collections import Counter, defaultdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson

from commands.codec import fold
from commands.processes.orders.order_fulfilment import PAY_WITHIN
from eventlog.envelope import HEARTBEAT, Envelope, decode
from eventlog.kafka import KafkaLog
from eventlog.ports import NEXT_OFFSET
from eventlog.settings import LogSettings
from eventlog.topics import DEAD_LETTERS, EVENTS, PROCESSES, RECEIPTS
from tests.integration.commands.handler_process import REGISTRY, output, send, start_handler
from tests.waiting import eventually

ORDERS, IN_STOCK = 24, 15
UNPAID = timedelta(seconds=10)
"""How long the unpaid order has left: longer than the handler lives."""
UNDERPAYING = """
from pydantic import BaseModel, ConfigDict
from commands.aggregates.orders import order
from commands.declaring.process import Process, Reaction, Refused

class Told(BaseModel):
    model_config = ConfigDict(frozen=True)
    outcomes: tuple[str, ...] = ()

def react(event: order.Placed | order.Paid | Refused, state: Told) -> Reaction[Told]:
    if isinstance(event, Refused):
        return Reaction(Told(outcomes=(*state.outcomes, event.outcome)))
    return Reaction(state, [order.Pay(order_id=event.order_id, amount_cents=1)])

underpaying = Process(name="underpaying", key="order_id", initial=Told(), starts=(order.Placed,), react=react)
"""
"""A process whose commands are all rejected."""


def states(log: KafkaLog) -> dict[str, Any]:
    """The state of every stream; an event that is missing or doubled fails."""
    streams: dict[str, list[Envelope]] = defaultdict(list)
    for partition in range(log.partitions):
        for record in log.read(EVENTS, partition, 0):
            envelope = decode(record.value)
            if envelope.type != HEARTBEAT:
                streams[envelope.stream].append(envelope)
    return {
        stream: fold(REGISTRY.aggregates[stream.partition("/")[0]], envelopes)[0]
        for stream, envelopes in streams.items()
    }


def statuses(log: KafkaLog) -> Counter[str]:
    return Counter(state.status for stream, state in states(log).items() if stream.startswith("order/"))


def test_orders_are_fulfilled_though_the_process_is_killed(log_settings: LogSettings, tmp_path: Path) -> None:
    log = KafkaLog(log_settings)
    (tmp_path / "underpaid.py").write_text(UNDERPAYING)
    process = start_handler(log_settings, "orders,underpaid", tmp_path)
    try:
        send(log, "stock.receive", sku="tea", quantity=IN_STOCK)
        send(log, "stock.receive", sku="milk", quantity=ORDERS)
        lines = [{"sku": sku, "quantity": 1, "unit_cents": 50} for sku in ("tea", "milk")]
        for number in range(ORDERS):
            send(log, "order.place", order_id=f"O{number}", customer="Ada", lines=lines)
        send(log, "order.place", PAY_WITHIN - UNPAID, order_id="late", customer="Ada", lines=lines)
        eventually(lambda: statuses(log)["placed"] == ORDERS + 1)
        for number in range(ORDERS):
            send(log, "order.pay", order_id=f"O{number}", amount_cents=100)
            if number in (ORDERS // 3, 2 * ORDERS // 3):
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
                process = start_handler(log_settings, "orders,underpaid", tmp_path)
        expected = Counter(confirmed=IN_STOCK, cancelled=ORDERS - IN_STOCK, expired=1)
        eventually(lambda: statuses(log) == expected, "all orders are settled", 240)
        refunds = [f"refund/O{n}" for n in range(ORDERS) if states(log)[f"order/O{n}"].status == "cancelled"]
        eventually(lambda: all(refund in states(log) for refund in refunds))
        fulfilled = {f"order_fulfilment/O{n}" for n in range(ORDERS)}
        eventually(lambda: not {key for key in living(log) if not key.startswith("underpaying/")} - fulfilled)
        told = {f"underpaying/O{n}": ["rejected"] * 2 for n in range(ORDERS)} | {"underpaying/late": ["rejected"]}
        eventually(lambda: outcomes(log) == told, "every refusal came once")
        eventually(lambda: len(states(log)["stock/milk"].reserved) == IN_STOCK)
        found = states(log)
        assert found["stock/tea"].available == 0
        assert found["stock/milk"].available == ORDERS - IN_STOCK
        assert {found[refund].amount_cents for refund in refunds} == {100}
        assert len([stream for stream in found if stream.startswith("refund/")]) == ORDERS - IN_STOCK
    finally:
        process.terminate()
        assert process.wait(120) == 0, output(log_settings)
    keys = [record.key for p in range(log.partitions) for record in log.read(RECEIPTS, p, 0)]
    follow_ups = [key for key in keys if key.startswith("order_fulfilment:")]
    assert len(follow_ups) == len(set(follow_ups)), "a command of the process was answered twice"
    assert list(log.read(DEAD_LETTERS, 0, 0)) == []
    log.close()


def living(log: KafkaLog) -> dict[str, bytes]:
    """The instances that have not ended."""
    latest: dict[str, bytes | None] = {}
    for partition in range(log.partitions):
        latest |= {record.key: record.value for record in log.read(PROCESSES, partition, 0)}
    return {key: value for key, value in latest.items() if value is not None and key != NEXT_OFFSET}


def outcomes(log: KafkaLog) -> dict[str, list[str]]:
    """What the instances of UNDERPAYING know."""
    found = {key: value for key, value in living(log).items() if key.startswith("underpaying/")}
    return {key: orjson.loads(value)["state"]["outcomes"] for key, value in found.items()}
