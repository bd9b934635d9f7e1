"""`replay erase` on real Kafka, through a running handler; and topics that are recreated."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from typer.main import get_command

from headwater.eventlog.envelope import partition_of
from headwater.eventlog.kafka import admin
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.letters import Letter
from headwater.eventlog.ports import Entry
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import (
    COMMANDS,
    DEAD_LETTERS,
    EVENTS,
    INBOX,
    PROCESSES,
    RECEIPTS,
    SINGLE,
    SNAPSHOTS,
    topic_specs,
)
from headwater.replay import cli
from tests.integration.commands.handler_process import handler, output, send
from tests.support.receipt_keys import short_key
from tests.support.waiting import eventually

MODULES = "listings,orders"
PRIVATE = "Ada Lovelace"


class Said(NamedTuple):
    """What a command ended with."""

    code: int
    output: str
    complaint: str


Erase = Callable[..., Said]


@pytest.fixture
def erase(log_settings: LogSettings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Erase:
    """Runs `replay erase` in this process, without a terminal."""
    variables = {
        "HEADWATER_ENVIRONMENT": log_settings.environment,
        "HEADWATER_KAFKA": log_settings.bootstrap,
        "HEADWATER_PARTITIONS": str(log_settings.partitions),
        "HEADWATER_MODULES": MODULES,
        "HEADWATER_STATE": str(log_settings.state / "replay"),
    }

    def run(*arguments: str) -> Said:
        capsys.readouterr()
        with monkeypatch.context() as own, pytest.raises(SystemExit) as ended:
            for name, value in variables.items():
                own.setenv(name, value)
            own.setattr(sys, "argv", ["replay", "erase", *arguments])
            own.setattr(sys, "stdin", io.StringIO())
            cli.main(get_command(cli.app_of(["erase"])))
        code, said = ended.value.code, capsys.readouterr()
        return Said(code if isinstance(code, int) else 0, said.out, said.err)

    return run


def latest(log: KafkaLog, topic: str) -> dict[str, bytes | None]:
    partitions = range(1 if topic in SINGLE else log.partitions)
    records = (each for partition in partitions for each in log.read(topic, partition, 0))
    return {record.key: record.value for record in records}


def version(log: KafkaLog, command_id: str) -> int:
    """The version in the receipt of a command, once it is there."""
    found: dict[str, Any] = {}

    def is_there() -> bool:
        value = {short_key(key): each for key, each in latest(log, RECEIPTS).items()}.get(command_id)
        found.update(orjson.loads(value) if value else {})
        return value is not None

    eventually(is_there, f"{command_id} is answered")
    assert found["outcome"] == "accepted", found
    return int(found["version"])


def listed(listing_id: str, **more: object) -> dict[str, Any]:
    body = {
        "city": "S",
        "zip": "95838",
        "property_type": "Condo",
        "beds": 1,
        "baths": 1.0,
        "square_feet": 1,
        "price": 1,
    }
    return {"listing_id": listing_id, **body, "latitude": 1.0, "longitude": 1.0, **more}


def test_what_was_erased_is_nowhere_that_the_command_reaches_and_no_version_comes_again(
    log_settings: LogSettings, tmp_path: Path, erase: Erase
) -> None:
    lines = [{"sku": "tea", "quantity": 1, "unit_cents": 50}]
    with closing(KafkaLog(log_settings)) as log:
        with handler(log_settings, MODULES):
            send(log, "listing.list_property", **listed("L1"))
            for number, price in enumerate((5, 9)):
                send(log, "listing.change_price", command_id=f"price{number}", listing_id="L1", price=price)
            send(log, "stock.receive", sku="tea", quantity=5)
            send(log, "order.place", command_id="placed", order_id="O1", customer=PRIVATE, lines=lines)
            assert version(log, "price1") == 3
            version(log, "placed")
            eventually(lambda: "order_fulfilment/O1" in latest(log, PROCESSES), "the process has begun")
            letter = Letter("why", "2026-01-01T00:00:00Z", b"k", latest(log, EVENTS)["order/O1/1"]).to_json()
            log.submit(Entry(DEAD_LETTERS, "events/9/9", letter, 0), 0).result(240)

            asked = erase("order/O1")
            assert (asked.code, asked.output) == (2, ""), "without a terminal it does nothing"
            assert f"environment {log_settings.environment}, modules {MODULES.replace(',', ', ')}" in asked.complaint
            assert "nothing was erased" in asked.complaint
            dry = json.loads(erase("order/O1", "--dry-run", "--json").output)
            assert (dry["letters"], dry["instances"]) == (["events/9/9"], ["order_fulfilment/O1"])
            assert latest(log, EVENTS)["order/O1/1"] is not None
            done = erase("order/O1", "--yes", "--end-instances")
            assert done.code == 0, done.complaint
            assert "order/O1 stays at version" in done.output
            assert "replay rebuild" in done.output
            price = json.loads(erase("listing/L1/3", "--yes", "--json").output)
            assert (price["events"], price["version"]) == (["listing/L1/3"], 3)
            assert erase("order/nobody", "--yes").code == 2
        for topic in (EVENTS, SNAPSHOTS, PROCESSES, DEAD_LETTERS):
            found = [key for key, value in latest(log, topic).items() if PRIVATE.encode() in (value or b"")]
            assert found == [], topic
        kept = [path for path in (tmp_path / "handler").rglob("*") if path.is_file()]
        assert [each for each in kept if PRIVATE.encode() in each.read_bytes()] == []
        state = orjson.loads(latest(log, SNAPSHOTS)["listing/L1"] or b"")
        assert (state["version"], state["state"]["price"]) == (3, 5)

        shutil.rmtree(tmp_path / "handler")
        partition = partition_of("listing/L1", log.partitions)
        log.submit(Entry(SNAPSHOTS, "listing/L1", None, 0), partition).result(240)
        with handler(log_settings, MODULES):  # on a cold disk, after a tombstone that somebody else wrote
            send(log, "listing.change_price", command_id="price2", listing_id="L1", price=11)
            assert version(log, "price2") == 4
            send(log, "order.place", command_id="again", order_id="O1", customer="Bo", lines=lines)
            assert version(log, "again") > 1, output(log_settings)


@pytest.mark.complete
def test_topics_that_were_made_again_are_read_from_their_start(log_settings: LogSettings) -> None:
    lines = [{"sku": "tea", "quantity": 1, "unit_cents": 50}]

    def place(log: KafkaLog, name: str) -> Callable[[], bool]:
        send(log, "order.place", command_id=name, order_id=name, customer="Bo", lines=lines)
        return lambda: f"order_fulfilment/{name}" in latest(log, PROCESSES)

    with closing(KafkaLog(log_settings)) as log:
        with handler(log_settings, MODULES):
            for number in range(20):
                begun = place(log, f"O{number}")
            eventually(begun, "the process has begun")
        again = [spec for spec in topic_specs(log_settings) if spec.name in (COMMANDS, INBOX)]
        admin.remove_topics(log_settings, again)
        eventually(lambda: len(admin.missing_topics(log_settings, again)) == 2)
        eventually(lambda: _prepared(log_settings), "the topics are recreated")
    with closing(KafkaLog(log_settings)) as log, handler(log_settings, MODULES):
        begun = place(log, "later")
        eventually(begun, "the command and the event are read")
        assert "was recreated" in output(log_settings)


def _prepared(settings: LogSettings) -> bool:
    """Kafka may refuse to make a topic that it is still deleting."""
    try:
        admin.prepare(settings)
    except Exception:  # noqa: BLE001
        return False
    return True
