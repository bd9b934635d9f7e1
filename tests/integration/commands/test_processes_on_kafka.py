"""A process on real Kafka: orders are fulfilled, refused and expired though everything is killed in between."""

from __future__ import annotations

import os
import signal
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from headwater.commands.codec import fold
from headwater.eventlog.envelope import HEARTBEAT, Envelope, decode, encode, partition_of, timestamp_ms
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.ports import NEXT_OFFSET, Entry
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import DEAD_LETTERS, EVENTS, PROCESSES, RECEIPTS
from headwater.samples.orders.processes import PAY_WITHIN
from tests.integration.commands.handler_process import REGISTRY, ended, handler, output, send, start_handler
from tests.support.process_world import published
from tests.support.receipt_keys import short_key
from tests.support.waiting import eventually

ORDERS, IN_STOCK = 24, 15
UNPAID = timedelta(seconds=10)
"""How long the unpaid order has left: usually longer than the handler lives."""
UNDERPAYING = """
from pydantic import BaseModel, ConfigDict
from headwater.samples.orders.domain import order
from headwater.commands.declaring.process import Process, Reaction, Refused

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
ALERTS = "views.rapid_payments"
CARDS = 10
ALARMS = """
from pydantic import BaseModel, ConfigDict
from headwater import Process, Reaction, RowDeleted, ViewRow

class Alert(ViewRow, view="rapid_payments"):
    ids: list[str]

class Told(BaseModel):
    model_config = ConfigDict(frozen=True)
    seen: tuple[str, ...] = ()

def react(event: Alert | RowDeleted[Alert], state: Told) -> Reaction[Told]:
    return Reaction(Told(seen=(*state.seen, event.ids[0] if isinstance(event, Alert) else "deleted")))

alarms = Process(name="alarms", key="alert", initial=Told(), starts=(Alert,), react=react)
"""
"""A process that begins now, and whose instances are named by the keys of rows."""


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
        # on a slow machine, the unpaid one has expired before this is seen
        eventually(lambda: statuses(log)["placed"] + statuses(log)["expired"] == ORDERS + 1, "all orders are placed")
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
        assert ended(process) == 0, output(log_settings)
    follow_ups = answered(log, "order_fulfilment:")
    assert len(follow_ups) == len(set(follow_ups)), "a command of the process was answered twice"
    assert list(log.read(DEAD_LETTERS, 0, 0)) == []
    log.close()


def answered(log: KafkaLog, ids: str) -> list[str]:
    """The ids of answered commands that begin with this, once per receipt."""
    keys = (short_key(record.key) for partition in range(log.partitions) for record in log.read(RECEIPTS, partition, 0))
    return [key for key in keys if key.startswith(ids)]


def living(log: KafkaLog) -> dict[str, bytes]:
    """The instances that have not ended."""
    latest: dict[str, bytes | None] = {}
    for partition in range(log.partitions):
        latest |= {record.key: record.value for record in log.read(PROCESSES, partition, 0)}
    return {key: value for key, value in latest.items() if value is not None and key != NEXT_OFFSET}


def outcomes(log: KafkaLog, process: str = "underpaying/", field: str = "outcomes") -> dict[str, list[str]]:
    """What the instances of a process know, in a field of their state."""
    found = {key: value for key, value in living(log).items() if key.startswith(process)}
    return {key: orjson.loads(value)["state"][field] for key, value in found.items()}


def show(log: KafkaLog, key: str, row: dict[str, Any] | None, batch: int = 0) -> None:
    """Append what the view `rapid_payments` writes about a row; None if it was deleted."""
    value = None if row is None else encode(published("rapid_payments", key, row, datetime.now(UTC), batch=batch))
    entry = Entry(ALERTS, key, value, timestamp_ms(datetime.now(UTC)))
    log.submit(entry, partition_of(key, log.settings.patch_partitions)).result(240)


def blocked(log: KafkaLog) -> dict[str, bool]:
    return {stream: state.blocked_by is not None for stream, state in states(log).items() if stream.startswith("card/")}


@pytest.mark.complete
def test_cards_are_blocked_by_the_rows_of_a_view(log_settings: LogSettings, tmp_path: Path) -> None:
    """The topic of the view has other partitions than the log; the handlers make it."""
    log = KafkaLog(log_settings)
    (tmp_path / "alarms.py").write_text(ALARMS)
    cards = [f"card {number}" for number in range(CARDS)]
    alerts = {f"{card}/{part}": {"card": card, "ids": f'["{card}-{part}"]'} for card in cards for part in range(3)}
    partitions = log_settings.patch_partitions
    assert partitions > log.partitions
    with handler(log_settings, "payments"):
        eventually(lambda: len(log.stored_ends(ALERTS)) == partitions, "the handler has made the topic")
        for key, row in alerts.items():
            show(log, key, row)
        eventually(lambda: blocked(log) == dict.fromkeys((f"card/{card}" for card in cards), True))
        evidence = {event["card"]: event["evidence"] for event in blockings(log)}
        assert all(alerts[f"{card}/{ids[0][-1]}"]["ids"] == f'["{ids[0]}"]' for card, ids in evidence.items())
        eventually(lambda: len(answered(log, "card_blocking:")) == len(alerts), "each alert has blocked its card")
        send(log, "card.unblock", card=cards[0])
        eventually(lambda: not blocked(log)[f"card/{cards[0]}"])
    with handler(log_settings, "payments,alarms", tmp_path):
        eventually(lambda: f'process "alarms" begins in "{ALERTS}"' in output(log_settings))
        for key, row in alerts.items():  # a rebuilt generation, or a repeated batch
            show(log, key, row | {"payments": 2}, batch=7)
        show(log, f"{cards[0]}/0", None)
        show(log, "nobody", {"card": None, "ids": "[]"})
        show(log, "last/0", {"card": "last", "ids": '["last"]'})
        eventually(lambda: blocked(log).get("card/last", False))
        told = {f"alarms/{key}": [f"{row['card']}-{key[-1]}"] for key, row in alerts.items()}
        told[f"alarms/{cards[0]}/0"].append("deleted")
        told |= {"alarms/last/0": ["last"]}
        eventually(lambda: outcomes(log, "alarms/", "seen") == told, "it sees what comes after it began, once")
        letters = [record.key for record in log.read(DEAD_LETTERS, 0, 0)]
        assert len(letters) == 1
        assert letters[0].startswith(f"{ALERTS}/{partition_of('nobody', partitions)}/")
    assert {stream for stream, is_blocked in blocked(log).items() if not is_blocked} == {f"card/{cards[0]}"}
    assert len(blockings(log)) == CARDS + 1
    log.close()


def blockings(log: KafkaLog) -> list[Mapping[str, Any]]:
    """What the events `card.blocked` say."""
    read = (decode(partition.value) for p in range(log.partitions) for partition in log.read(EVENTS, p, 0))
    return [event.data for event in read if event.type == "card.blocked"]
