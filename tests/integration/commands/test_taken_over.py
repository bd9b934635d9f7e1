"""A command that was answered once is answered so for good, whoever owns its partition by then."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from headwater.commands.errors import IdempotencyKeyReused
from headwater.commands.receipt import KEY_REUSED, Receipt
from headwater.commands.sending.client import BlockingCommandClient
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import RECEIPTS
from headwater.samples.listings.domain import ListProperty
from tests.integration.commands.handler_process import REGISTRY, handler, send, start_handler, stored_events
from tests.support.listed import LISTING
from tests.support.receipt_keys import short_key
from tests.support.waiting import eventually

LISTED: dict[str, Any] = LISTING | {"listing_id": "L1"}


@pytest.fixture
def log(log_settings: LogSettings) -> Iterator[KafkaLog]:
    with closing(KafkaLog(log_settings)) as opened:
        yield opened


def ask(log: KafkaLog) -> None:
    send(log, "listing.list_property", command_id="made", **LISTED)
    send(log, "listing.sell", command_id="refused", listing_id="L2", sold_for=1)


def answers(log: KafkaLog, command_id: str, count: int) -> list[bytes | None]:
    """All that was answered under an id, or in refusal of it, once that is so much."""

    def found() -> list[bytes | None]:
        records = [partition for p in range(log.partitions) for partition in log.read(RECEIPTS, p, 0)]
        return [record.value for record in records if short_key(record.key).partition("#")[0] == command_id]

    eventually(lambda: len(found()) >= count)
    return found()


def test_a_retry_is_answered_alike_by_whoever_takes_over_with_whatever_state(
    log_settings: LogSettings, log: KafkaLog
) -> None:
    killed = start_handler(log_settings)
    try:
        ask(log)
        (made,), (refused,) = answers(log, "made", 1), answers(log, "refused", 1)
    finally:
        killed.kill()
        killed.wait()
    # another machine knows nothing; nor does one that has lost its disk
    elsewhere = replace(log_settings, state=log_settings.state / "elsewhere")
    elsewhere.state.mkdir()
    for owner in (1, 2):
        with handler(elsewhere):
            ask(log)
            send(log, "listing.list_property", command_id="made", **(LISTED | {"price": 1}))
            told = answers(log, "made", 1 + 2 * owner)
            assert answers(log, "refused", 1 + owner) == [refused] * (1 + owner)
        again, reused = [each for each in told if each == made], [each for each in told if each != made]
        assert len(again) == 1 + owner
        assert [(r.outcome, r.error and r.error.code) for r in receipts(reused)] == [("failed", KEY_REUSED)] * owner
        shutil.rmtree(elsewhere.state / "handler")
    with BlockingCommandClient(log, REGISTRY) as client:
        assert client.send(ListProperty(**LISTED), command_id="made") == receipts([made])[0]
        with pytest.raises(IdempotencyKeyReused):
            client.send(ListProperty(**(LISTED | {"price": 1})), command_id="made")
        assert client.receipt("refused", "listing/L2") == receipts([refused])[0]
    assert {stream: len(events) for stream, events in stored_events(log_settings).items()} == {"listing/L1": 1}


def receipts(values: list[bytes | None]) -> list[Receipt]:
    return [Receipt.from_json(value or b"") for value in values]
