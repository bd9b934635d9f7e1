"""A disk that is really full under the handler's local state: no answer, a clear error, and all is well afterwards."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from headwater.commands.errors import LocalStateError, Unanswered
from headwater.commands.handling.command_task import CommandTask
from headwater.commands.local_state.disk_state import LOW_WATER_BYTES, DiskBudget, DiskStore
from headwater.commands.owning.ownership import PartitionOwner
from headwater.commands.receipt import Receipt
from headwater.commands.sending.gateway import CommandGateway
from headwater.eventlog.envelope import partition_of
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.ports import HANDLER
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import EVENTS
from tests.integration.commands.handler_process import REGISTRY, handler, output, stored_events, with_gateway
from tests.integration.commands.small_disk import fill, free, small_disk
from tests.support.background import running
from tests.support.listed import LISTING
from tests.support.submitted import submit
from tests.support.waiting import eventually

MIB = 1024 * 1024
ATTEMPT_S = 2.0
ATTEMPTS = 150


async def propose(gateway: CommandGateway, name: str) -> Receipt | None:
    """One attempt, always with the same id for the same listing; None where it is not answered."""
    try:
        return await submit(gateway, "listing.list_property", LISTING | {"listing_id": name}, command_id=name)
    except Unanswered:
        return None


async def answered(gateway: CommandGateway, name: str) -> Receipt:
    for _ in range(ATTEMPTS):
        if receipt := await propose(gateway, name):
            return receipt
    raise AssertionError(f'"{name}" was not answered in {ATTEMPTS} attempts')


def test_a_handler_that_has_too_little_room_answers_again_as_soon_as_there_is_some(
    log_settings: LogSettings, tmp_path: Path
) -> None:
    names = ["L1", "L2"]
    with small_disk(LOW_WATER_BYTES + 32 * MIB, tmp_path) as disk:
        settings = replace(log_settings, state=disk)

        async def play(gateway: CommandGateway) -> None:
            assert await answered(gateway, "before")
            fill(disk, LOW_WATER_BYTES - MIB)
            assert await asyncio.gather(*(propose(gateway, name) for name in names)) == [None, None]
            assert not set(names) & listed(settings)
            told = f'the local state in "{disk}/handler/{settings.environment}/0/'
            await asyncio.to_thread(eventually, lambda: told in output(settings), "the log says which state")
            assert re.search("25[0-5] MiB are free on its disk, but 256 MiB are needed", output(settings))
            assert "free some space, or set HEADWATER_STATE to another disk" in output(settings)
            free(disk)
            assert {(await answered(gateway, name)).outcome for name in names} == {"accepted"}

        with handler(settings) as process:
            with_gateway(settings, play, ATTEMPT_S)
            assert process.poll() is None, output(settings)
    check_that_each_is_in_the_log_once(log_settings, {"before", *names})


def listed(settings: LogSettings) -> set[str]:
    """The listings that can be seen in the log now; nobody is fenced off for it."""
    with closing(KafkaLog(settings)) as log:
        return {record.key.split("/")[1] for p in range(settings.partitions) for record in log.read(EVENTS, p, 0)}


def check_that_each_is_in_the_log_once(settings: LogSettings, names: set[str]) -> None:
    assert {stream: len(events) for stream, events in stored_events(settings).items()} == {
        f"listing/{name}": 1 for name in names
    }


def test_a_batch_that_does_not_fit_on_the_disk_is_refused_whole_and_what_was_before_it_stays(tmp_path: Path) -> None:
    with small_disk(8 * MIB, tmp_path) as disk:
        store = opened(disk)
        fill(disk)
        written = 0
        with pytest.raises(LocalStateError, match=f'"{disk}/0".*No space left on device.*free some space'):
            for number in range(1, 100):
                store.apply({f"a{number}": b"x" * 1_000, f"b{number}": b"y"}, {}, {"snapshots": number})
                written = number
        store.close()
        with pytest.raises(LocalStateError, match="No space left on device"):
            opened(disk)
        free(disk)
        store = opened(disk)
        assert store.position("snapshots") == written > 0
        assert [store.snapshot(f"b{number}") for number in range(1, 100)] == [b"y"] * written + [None] * (99 - written)
        store.close()


def opened(disk: Path, partition: int = 0) -> DiskStore:
    """Without the check that keeps it from ever meeting a full disk."""
    return DiskStore(disk / str(partition), "a", DiskBudget(), low_water_bytes=0)


def test_a_write_that_meets_a_full_disk_is_made_up_for_from_the_log(
    log_settings: LogSettings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    of_one_partition = (f"L{n}" for n in count() if partition_of(f"listing/L{n}", log_settings.partitions) == 0)
    asked: list[str] = []

    def is_full() -> bool:
        return re.search(f'"{disk}/0".*No space left on device', caplog.text) is not None

    async def play(gateway: CommandGateway) -> None:
        assert await answered(gateway, "before")
        fill(disk)
        # what meets the full disk first is in the log already; what comes once the log says so is not decided
        while not is_full():
            assert len(asked) < 100
            asked.append(next(of_one_partition))
            await propose(gateway, asked[-1])
        asked.append(next(of_one_partition))
        assert await propose(gateway, asked[-1]) is None
        assert asked[-1] not in listed(log_settings)
        assert "free some space, or set HEADWATER_STATE to another disk" in caplog.text
        free(disk)
        assert {(await answered(gateway, name)).outcome for name in asked} == {"accepted"}

    with small_disk(8 * MIB, tmp_path) as disk, serving(log_settings, lambda partition: opened(disk, partition)):
        with_gateway(log_settings, play, ATTEMPT_S)
    check_that_each_is_in_the_log_once(log_settings, {"before", *asked})


@contextmanager
def serving(settings: LogSettings, open_store: Callable[[int], DiskStore]) -> Iterator[None]:
    """A handler in a thread, with a state of one's own."""
    with closing(KafkaLog(settings)) as log:
        owner = PartitionOwner(log, HANDLER, lambda p: CommandTask(log, REGISTRY, p, open_store(p)))
        with running(owner.run):
            yield
