"""Handler processes under test, and what the log holds after them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from headwater.commands.codec import fold
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.sending.gateway import CommandGateway
from headwater.eventlog.envelope import HEARTBEAT, Envelope, decode, encode, partition_of, timestamp_ms
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.ports import Entry
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import COMMANDS, EVENTS
from headwater.samples.listings.domain import listing
from tests.support.domains import SHIPPED
from tests.support.waiting import BOUND_S

Answer = TypeVar("Answer")

REGISTRY = CommandRegistry.load(SHIPPED)


def start_handler(
    settings: LogSettings, modules: str = "listings", path: Path | None = None, **variables: str
) -> subprocess.Popen[bytes]:
    """`headwater handler` in the deployment of `settings`; its log goes to the state directory."""
    environment = os.environ | {
        "HEADWATER_ENVIRONMENT": settings.environment,
        "HEADWATER_KAFKA": settings.bootstrap,
        "HEADWATER_PARTITIONS": str(settings.partitions),
        "HEADWATER_MODULES": modules,
        "HEADWATER_STATE": str(settings.state),
        "PYTHONPATH": str(path or ""),
        **variables,
    }
    with (settings.state / "handler.log").open("ab") as output:
        return subprocess.Popen([sys.executable, "-m", "headwater.commands"], env=environment, stderr=output)


@contextmanager
def handler(
    settings: LogSettings, modules: str = "listings", path: Path | None = None, **variables: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A handler process that is stopped cleanly, and must stop cleanly."""
    process = start_handler(settings, modules, path, **variables)
    try:
        yield process
        if process.poll() is None:
            process.terminate()
            assert ended(process) == 0, output(settings)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def ended(process: subprocess.Popen[bytes]) -> int | None:
    """The exit code of a process that was asked to end; None if it does not."""
    try:
        return process.wait(BOUND_S)
    except subprocess.TimeoutExpired:
        return None


def output(settings: LogSettings) -> str:
    """What the handlers of the deployment have logged."""
    return (settings.state / "handler.log").read_text()


def send(
    log: KafkaLog, command_type: str, ago: timedelta = timedelta(0), command_id: str | None = None, **body: Any
) -> None:
    """Append a command around the gateway, which would answer a retry from what it has read."""
    aggregate = REGISTRY.command(command_type).aggregate
    stream = f"{aggregate.name}/{aggregate.identity.of_data(body)}"
    time = datetime.now(UTC) - ago
    envelope = Envelope(command_id or f"{command_type}-{stream}", command_type, stream, time, body)
    entry = Entry(COMMANDS, stream, encode(envelope), timestamp_ms(datetime.now(UTC)))
    log.submit(entry, partition_of(stream, log.partitions)).result(240)


def with_gateway(
    settings: LogSettings,
    play: Callable[[CommandGateway], Awaitable[Answer]],
    timeout_s: float = 240.0,
    registry: CommandRegistry = REGISTRY,
) -> Answer:
    """What `play` returns, given a gateway that knows all receipts; timeout_s: how long it waits for one."""

    async def main() -> Answer:
        log = KafkaLog(settings)
        gateway = CommandGateway(log, registry, timeout_s=timeout_s)
        await gateway.start()
        try:
            assert await asyncio.to_thread(gateway.wait_ready, 240)
            return await play(gateway)
        finally:
            await gateway.close()
            log.close()

    return asyncio.run(main())


def stored_events(settings: LogSettings) -> dict[str, list[Envelope]]:
    """All events by stream, in the order of the log; a gap, repetition or foreign key fails."""
    log = KafkaLog(settings)
    streams: dict[str, list[Envelope]] = defaultdict(list)
    for partition in range(settings.partitions):
        # a new owner waits for the end of transactions that are still being settled
        log.own(partition).close()
        for record in log.read(EVENTS, partition, 0):
            envelope = decode(record.value)
            if envelope.type != HEARTBEAT:
                assert record.key == envelope.id == f"{envelope.stream}/{envelope.sequence}"
                streams[envelope.stream].append(envelope)
    log.close()
    for envelopes in streams.values():
        assert [envelope.sequence for envelope in envelopes] == list(range(1, len(envelopes) + 1)), streams
        fold(listing, envelopes)
    return streams
