"""One simulation: clients that contend, handlers and a broker that fail, and the history checked afterwards."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import Unanswered
from headwater.commands.receipt import Receipt
from headwater.commands.sending.gateway import CommandGateway
from headwater.compose.ports import free_ports
from headwater.compose.settings import StackSettings
from headwater.compose.stack import PARTS, Stack
from headwater.eventlog.envelope import HEARTBEAT, decode
from headwater.eventlog.errors import EventLogError
from headwater.eventlog.kafka import admin
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import EVENTS
from tests.simulation.faults import HANDLERS, READ_SIDE, WRITE_SIDE, Fault, Handlers, Kind, carry_out, plan
from tests.simulation.history import Asked, Stored, complaints
from tests.simulation.read_side import ReadSide
from tests.support.kafka_proxy import HOST, KafkaProxy
from tests.support.submitted import submit
from tests.support.waiting import BOUND_S

STREAMS, CLIENTS, GATEWAYS = 12, 24, 3
ATTEMPT_S = 3.0
"""How long a client waits before it sends the same command again; short, so that answers are lost to it."""
FINAL_ATTEMPTS = 100
ASKED_AGAIN, ASKED_AGAIN_PER_S = 3_000, 20
"""At most, in the end, in all and for each second of faults; half an hour of clients makes a hundred times as many."""

logger = logging.getLogger(__name__)


class Outcome(NamedTuple):
    """What came of a simulation."""

    complaints: list[str]
    faults: list[str]
    outcomes: Counter[str]
    retries: int


class Clients:
    """Clients of several gateways, which note all that they ask and are told."""

    def __init__(self, seed: int, gateways: Sequence[CommandGateway]) -> None:
        self._rng, self._gateways = random.Random(seed), gateways
        self._seen = {f"T{number}": 0 for number in range(STREAMS)}
        self.asked: list[Asked] = []
        self.attempts = 0

    async def go_on(self, number: int, stopped: asyncio.Event) -> None:
        """Send command after command; some give up on theirs, so that nobody knows what became of it."""
        rng, made = random.Random(self._rng.random()), 0
        while not stopped.is_set():
            tally = rng.choice(list(self._seen))
            known = self._seen[tally]
            expected = rng.choice([None, known, known, max(0, known - 1), known + 1])
            at_most = rng.choice([10**9, 10**9, known + 2])
            made += 1
            command_id = f"{number}-{made}"
            asked = Asked(command_id, f"tally/{tally}", rng.randint(1, 5), at_most, expected, time.monotonic())
            self.asked.append(asked)
            copies = rng.choice([1, 1, 1, 2])
            for _ in range(rng.choice([1, 20])):
                if any(await asyncio.gather(*(self.attempt(asked, rng) for _ in range(copies)))):
                    break
            if asked.answers:
                self._seen[tally] = max(self._seen[tally], asked.answers[0].version)

    async def answered(self) -> None:
        """Until the first command is."""
        async with asyncio.timeout(BOUND_S):
            while not any(asked.answers for asked in self.asked):  # noqa: ASYNC110 - nothing is told of it
                await asyncio.sleep(0.05)

    async def attempt(self, asked: Asked, rng: random.Random, mark: str = "") -> Receipt | None:
        """Send it once, to any gateway; None where no answer came. `mark` makes another body of it."""
        self.attempts += 1
        body = {
            "tally_id": asked.stream.partition("/")[2],
            "mark": mark or asked.command_id,
            "times": asked.times,
            "at_most": asked.at_most,
        }
        try:
            receipt = await submit(
                rng.choice(self._gateways),
                "tally.add",
                body,
                command_id=asked.command_id,
                expected_version=asked.expected,
            )
        except (Unanswered, EventLogError):
            return None
        if not mark:
            asked.take(receipt, time.monotonic())
        return receipt

    async def ask_again(self, number: int) -> None:
        """So many commands, once more: those that were answered, a tenth of them with another body, and a tenth of the
        others.
        """
        rng = random.Random(self._rng.random())
        chosen = rng.sample(self.asked, min(len(self.asked), number))

        async def again(asked: Asked) -> None:
            if not asked.answers and rng.random() < 0.9:
                return
            for _ in range(FINAL_ATTEMPTS):
                if await self.attempt(asked, rng):
                    break
            else:
                raise AssertionError(f"{asked.command_id} is not answered though everything is well again")
            if rng.random() < 0.1:
                asked.reuse = await self.attempt(asked, rng, mark="another")

        for start in range(0, len(chosen), 200):
            await asyncio.gather(*(again(asked) for asked in chosen[start : start + 200]))


def simulate(
    seed: int, seconds: float, folder: Path, *, kinds: Sequence[Kind] = WRITE_SIDE, views: bool = False
) -> Outcome:
    """Run for about `seconds` of faults of these kinds, with servers and processes of its own in `folder`.

    views: with the read side, which fails too; in the end every view is compared with a replay of it, row by row.
    """
    with Stack(StackSettings(folder / "servers", free_ports()), PARTS if views else ["kafka"]) as servers:
        # with the process of the orders, so that partitions of every role are fought for
        modules = ("orders", "tests.simulation.tally", *(["tests.simulation.tally_views"] if views else []))
        settings = LogSettings("simulation", servers.endpoints.kafka, partitions=4, state=folder, modules=modules)
        admin.prepare(settings)
        with closing(KafkaProxy(servers.settings.ports.kafka)) as way:
            disturbed = replace(settings, bootstrap=f"{HOST}:{way.port}")
            read_side = ReadSide(settings, servers) if views else None
            faults = plan(seed, seconds, kinds if read_side is None else [*kinds, *READ_SIDE])
            again = min(ASKED_AGAIN, round(ASKED_AGAIN_PER_S * seconds))
            running = _simulate(seed, faults, settings, Handlers(disturbed), servers, way, read_side, again)
            return asyncio.run(running)


async def _simulate(
    seed: int,
    faults: Sequence[Fault],
    settings: LogSettings,
    handlers: Handlers,
    servers: Stack,
    way: KafkaProxy,
    read_side: ReadSide | None,
    again: int,
) -> Outcome:
    registry = CommandRegistry.load(settings.modules)
    # a log each, as processes of their own would have
    logs = [KafkaLog(replace(settings)) for _ in range(GATEWAYS)]
    gateways = [CommandGateway(log, registry, timeout_s=ATTEMPT_S) for log in logs]
    wrong: list[str] = []
    try:
        for _ in range(HANDLERS):
            handlers.start()
        if read_side is not None:
            read_side.start()
        for gateway in gateways:
            await gateway.start()
        clients, stopped = Clients(seed, gateways), asyncio.Event()
        running = [asyncio.create_task(clients.go_on(number, stopped)) for number in range(CLIENTS)]
        await clients.answered()  # faults before that would meet handlers that start, and no commands
        await carry_out(faults, handlers, servers, way, read_side)
        stopped.set()
        await asyncio.gather(*running)
        logger.info("no more faults: %d commands were sent, now they are asked again", len(clients.asked))
        await clients.ask_again(again)
        stored = await asyncio.to_thread(read_events, logs[0])
        if read_side is not None:
            logger.info("the log holds %d events, now the views are compared with it", len(stored))
            wrong = await asyncio.to_thread(read_side.complaints)
    except Exception:
        print(f"the end of the handlers' log:\n{handlers.end_of_log()}")
        raise
    finally:
        if read_side is not None:
            read_side.stop()
        handlers.stop()
        for gateway in gateways:
            await gateway.close()
        for log in logs:
            log.close()
    outcomes = Counter(asked.answers[0].outcome if asked.answers else "unanswered" for asked in clients.asked)
    retries = clients.attempts - len(clients.asked)
    return Outcome([*complaints(clients.asked, stored), *wrong], [f.kind for f in faults], outcomes, retries)


def read_events(log: KafkaLog) -> list[Stored]:
    """All events of all partitions, in the order of each."""
    found = []
    for partition in range(log.partitions):
        for record in log.read(EVENTS, partition, 0):
            event = decode(record.value)
            if event.type != HEARTBEAT:
                place = f"{partition}:{record.offset}"
                found.append(Stored(event.stream, event.sequence, event.causation_id or "", place))
    return found
