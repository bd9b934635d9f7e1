"""One command id, sent at the same time for several streams by several clients, on Kafka."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from headwater.commands.receipt import Receipt
from headwater.commands.sending.gateway import CommandGateway
from headwater.commands.sending.stored_receipts import open_stored
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.settings import LogSettings
from tests.integration.commands.handler_process import REGISTRY, handler, stored_events
from tests.support.listed import LISTING
from tests.support.submitted import submit

TRIES: Final = 40
STREAMS: Final = 3
"""Per try: more than one partition, and often two of one partition."""


def streams_of(number: int) -> list[str]:
    return [f"T{number}-{each}" for each in range(STREAMS)]


async def send_all(gateways: list[CommandGateway], number: int) -> list[Receipt]:
    """The try's id, for each of its streams at once, through each gateway."""
    sent = [
        submit(gateway, "listing.list_property", LISTING | {"listing_id": stream}, command_id=f"try-{number}")
        for stream in streams_of(number)
        for gateway in gateways
    ]
    return await asyncio.gather(*sent)


def test_each_stream_decides_an_id_once_and_every_retry_gets_the_first_receipt(log_settings: LogSettings) -> None:
    async def play() -> None:
        log = KafkaLog(log_settings)
        first, second, later = (
            CommandGateway(
                log, REGISTRY, timeout_s=240.0, open_index=partial(open_stored, log, log_settings.state / "api", 7)
            )
            for _ in range(3)
        )
        for gateway in (first, second):
            await gateway.start()
            assert await asyncio.to_thread(gateway.wait_ready, 240)
        found = [await send_all([first, second], number) for number in range(TRIES)]
        for number, receipts in enumerate(found):
            assert {receipt.outcome for receipt in receipts} == {"accepted"}
            for stream, pair in zip(streams_of(number), zip(receipts[::2], receipts[1::2], strict=True), strict=True):
                assert pair[0] == pair[1]
                assert [event.id for event in pair[0].events] == [f"listing/{stream}/1"]
        await later.start()
        assert await asyncio.to_thread(later.wait_ready, 240)
        for number, receipts in enumerate(found):
            assert await send_all([second, later], number) == receipts
            for receipt in receipts:
                assert await later.receipt(receipt.command_id, receipt.stream) == receipt
        for gateway in (first, second, later):
            await gateway.close()
        log.close()

    with handler(log_settings):
        asyncio.run(play())
    assert {len(events) for events in stored_events(log_settings).values()} == {1}
    assert len(stored_events(log_settings)) == TRIES * STREAMS
