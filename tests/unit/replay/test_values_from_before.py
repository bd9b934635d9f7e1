"""A field becomes personal, and older events have it in clear: what the docs say to do leaves nothing of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from headwater.commands.declaring.process import ProcessRegistry
from headwater.commands.sending.client import CommandClient
from headwater.eventlog import topics
from headwater.eventlog.envelope import Envelope, encode, partition_of
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.personal.memory import MemoryKeys
from headwater.eventlog.ports import Entry
from headwater.replay.erasing import Eraser, find
from tests.support.memory_vault import memory_vault
from tests.support.personal_customers import Mail
from tests.unit.commands.test_client import handled
from tests.unit.commands.test_retries_after_erasure import REGISTRY

MODULES = ["tests.support.personal_customers"]
STREAM = "customer/C1"
CLEAR, AGAIN = "old@canary.org", "now@canary.org"


@pytest.fixture
def keys() -> Iterator[MemoryKeys]:
    with memory_vault() as found:
        yield found


def kept(log: MemoryLog, topic: str) -> dict[str, bytes]:
    """What compaction leaves."""
    last = {partition.key: partition.value for p in range(log.partitions) for partition in log.read(topic, p, 0)}
    return {key: value for key, value in last.items() if value is not None}


def test_what_is_in_clear_is_recorded_again_and_erased(keys: MemoryKeys) -> None:
    log = MemoryLog(partitions=2)
    mailed = {"customer_id": "C1", "address": CLEAR}
    event = Envelope(f"{STREAM}/1", "customer.mailed", STREAM, datetime.now(UTC), mailed, sequence=1)
    log.submit(Entry(topics.EVENTS, event.id, encode(event), 1), partition_of(STREAM, log.partitions))

    async def again() -> None:
        async with CommandClient(log, REGISTRY) as client:
            await client.send(Mail(customer_id="C1", address=AGAIN))

    with handled(log, MODULES):
        asyncio.run(again())
        eraser, target = Eraser(log, REGISTRY, ProcessRegistry([])), find(log, f"{STREAM}/1")
        copies = eraser.copies(target)
        eraser.erase(target)
        eraser.remove(target, copies, end_instances=False)
    with handled(log, MODULES):
        asyncio.run(again())
    assert sorted(key for key in kept(log, topics.EVENTS) if key.startswith(STREAM)) == [f"{STREAM}/2", f"{STREAM}/3"]
    for topic in (topics.EVENTS, topics.SNAPSHOTS, topics.COMMANDS, topics.RECEIPTS):
        assert b"canary" not in b"\n".join(kept(log, topic).values()), topic
    keys.erase("C1")
    assert len(keys.keys_of("C1")) == 1, "all that is left was sealed with the one key of the person"
