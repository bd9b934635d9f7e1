"""A rule that does not return, in real handlers: the partitions move, and all others are served."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest

from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.owning.running_code import slow_code
from headwater.commands.receipt import Receipt
from headwater.commands.sending.gateway import CommandGateway
from headwater.eventlog.envelope import partition_of
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.times import now_ms
from tests.integration.commands.handler_process import handler, output, with_gateway
from tests.support.hanging_door import door
from tests.support.submitted import submit
from tests.support.waiting import eventually

ROOT: Final = Path(__file__).parents[3]
MODULE: Final = "tests.support.hanging_door"
BOUND_S: Final = 300.0


@pytest.mark.complete
def test_partitions_move_away_from_a_rule_that_does_not_return_and_it_is_named(log_settings: LogSettings) -> None:
    opened, log = log_settings.state / "opened", KafkaLog(log_settings)
    doors = {partition_of(f"door/{number}", log_settings.partitions): str(number) for number in range(100)}

    def reported() -> list[str]:
        return slow_code(log, now_ms())

    def takeovers() -> int:
        return output(log_settings).count("taking over as handler")

    async def play(gateway: CommandGateway) -> None:
        body = {"door_id": doors[0], "waits": True}
        waits = asyncio.create_task(submit(gateway, "door.pass", body, command_id="hangs"))
        (line,) = await asyncio.to_thread(eventually, reported, "it is reported", BOUND_S)
        assert line.startswith(f'partition 0 of the handler waits: "decide" for "door.pass" of "door/{doors[0]}" (id "')
        with handler(log_settings, MODULE, ROOT, DOOR_OPENED=str(opened)):
            await asyncio.to_thread(eventually, lambda: takeovers() > log_settings.partitions, "one moves", BOUND_S)
            for _ in range(20):
                answers: list[Receipt] = [
                    await submit(gateway, "door.pass", {"door_id": name}) for at, name in doors.items() if at
                ]
                assert {answer.outcome for answer in answers} == {"accepted"}
            # on a machine that stands still, members are also lost, each of which moves its partitions and back
            lost = output(log_settings).count("Kafka has not heard of this member")
            assert takeovers() <= 2 * log_settings.partitions * (1 + lost), output(log_settings)
            opened.touch()
            assert (await waits).outcome == "accepted"
        await asyncio.to_thread(eventually, lambda: not reported(), "the report is taken back", BOUND_S)

    with handler(log_settings, MODULE, ROOT, DOOR_OPENED=str(opened)):
        with_gateway(log_settings, play, BOUND_S, CommandRegistry([(MODULE, door)]))
    log.close()
