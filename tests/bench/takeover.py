"""How long a partition is unanswered when its owner is killed, and what the time is spent on."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.sending.gateway import CommandGateway
from headwater.eventlog.envelope import partition_of
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.settings import LogSettings
from tests.bench._handlers import handler
from tests.bench._waiting import eventually
from tests.bench.commands import deployment
from tests.support.submitted import submit

NAMES = ("takeover",)
TAKING = re.compile(r"^(\S+ \S+) .*partition (\d+): taking over as handler", re.MULTILINE)
SERVING = re.compile(
    r'^(\S+ \S+) .*partition (\d+): serving "commands" .* owned in ([\d.]+) s, restored in ([\d.]+) s', re.MULTILINE
)


def run(name: str) -> Iterator[dict[str, Any]]:
    """SIGKILL one of two handlers, and send a command to each of its partitions at that moment."""
    settings = LogSettings.from_environment(os.environ)
    with deployment(settings) as ours, tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        first, second = state / "first.log", state / "second.log"
        with handler(ours, state, first) as killed:
            eventually(lambda: len(SERVING.findall(first.read_text())) == ours.partitions, "the partitions are served")
            with handler(ours, state, second):
                eventually(
                    lambda: len(SERVING.findall(second.read_text())) == ours.partitions // 2,
                    "the partitions are served",
                )
                moved = {int(partition) for _, partition, *_ in SERVING.findall(second.read_text())}
                left = [partition for partition in range(ours.partitions) if partition not in moved]
                at, answered_s = asyncio.run(ask(ours, left, killed.kill))
                yield {
                    "value": round(max(answered_s), 2),
                    "unit": "s",
                    "conditions": f"{len(left)} of {ours.partitions} partitions, two handlers; from SIGKILL of "
                    "their owner until a command sent at that moment is answered, the slowest of them",
                    **parts(second.read_text(), left, at, max(answered_s)),
                }


async def ask(settings: LogSettings, partitions: list[int], kill: Any) -> tuple[float, list[float]]:
    """The time of the kill, and seconds from then until a command of each partition is answered."""
    log = KafkaLog(settings)
    gateway = CommandGateway(log, CommandRegistry.load(["listings"]), timeout_s=60)
    await gateway.start()
    await asyncio.to_thread(gateway.wait_ready, 30)
    listed = {"city": "Sacramento", "zip": "z95838", "property_type": "Residential", "beds": 2, "baths": 1.0}
    listed |= {"square_feet": 836, "price": 59_222, "latitude": 38.6, "longitude": -121.4}

    async def answered_s(partition: int) -> float:
        listing = next(
            f"L{n}" for n in range(10_000) if partition_of(f"listing/L{n}", settings.partitions) == partition
        )
        await submit(gateway, "listing.list_property", {"listing_id": listing, **listed})
        return time.monotonic() - started

    at, started = time.time(), time.monotonic()
    kill()
    try:
        return at, await asyncio.gather(*(answered_s(partition) for partition in partitions))
    finally:
        await gateway.close()
        log.close()


def parts(lines: str, partitions: list[int], killed_at: float, total_s: float) -> dict[str, float]:
    """What the slowest partition's time was spent on, from the log lines of its new owner, in seconds."""
    taken = {int(p): seconds(at) - killed_at for at, p in TAKING.findall(lines) if int(p) in partitions}
    served = {int(p): (seconds(at) - killed_at, float(o), float(r)) for at, p, o, r in SERVING.findall(lines)}
    slowest = max(partitions, key=lambda partition: served[partition][0])
    served_s, fence_s, restore_s = served[slowest]
    return {
        "session_and_rebalance_s": round(taken[slowest], 2),
        "fence_s": fence_s,
        "restore_s": restore_s,
        "first_answer_s": round(total_s - served_s, 2),
    }


def seconds(text: str) -> float:
    """Of a log line's time, since 1970."""
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S,%f").astimezone().timestamp()
