"""What goes wrong, and when: a seeded plan, and the handler processes that it is carried out on."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, Literal, NamedTuple, Protocol

from headwater.commands.service import END_S
from headwater.compose.stack import Stack
from headwater.eventlog.kafka.writer import TRANSACTION_TIMEOUT_MS
from headwater.eventlog.settings import LogSettings
from tests.support import kafka_proxy as network

Kind = Literal[
    "kill", "pause", "leave", "join", "restart broker", "kill broker",
    "kill live query", "kill loader", "restart store",
    "late request", "lost answer", "request twice",
]  # fmt: skip
WRITE_SIDE: Final[Sequence[Kind]] = ("kill", "pause", "leave", "join", "restart broker", "kill broker")
NETWORK: Final[Mapping[Kind, network.Fault]] = {
    "late request": network.Fault.HELD,
    "lost answer": network.Fault.ANSWER_LOST,
    "request twice": network.Fault.TWICE,
}
"""Faults of requests on their way between a process that writes and the broker."""
READ_SIDE: Final[Sequence[Kind]] = ("kill live query", "kill loader", "restart store")
APART_S: Final = {True: (0.2, 1.2), False: (2.0, 7.0)}
"""Seconds between faults, from and to; True: of the network, of which a busy one has many."""
SENT_S: Final = 3.0
"""How long a request to which a fault is to happen is waited for."""
MAX_LATE_S: Final = 2.0
"""Late requests arrive during one of the next transactions."""
PAUSE_S = TRANSACTION_TIMEOUT_MS / 1000 + 2
"""Long enough for the broker to have aborted what the paused handler had begun."""
HANDLERS = 3
END_BOUND_S = END_S + 120.0
"""A machine may stand still for a while."""
LINES = 80
"""Of the handlers' log, for who looks for the cause of a fault."""

logger = logging.getLogger(__name__)


class Fault(NamedTuple):
    """One fault, `after_s` after the one before; `pick` chooses the handler, the store, or the request."""

    after_s: float
    kind: Kind
    pick: int


def plan(seed: int, seconds: float, kinds: Sequence[Kind] = WRITE_SIDE) -> list[Fault]:
    """Faults for about `seconds`, every kind in turn before one comes again; the same for the same seed."""
    rng = random.Random(seed)
    turn = list(kinds)
    faults: list[Fault] = []
    left = seconds
    while left > 0:
        rng.shuffle(turn)
        for kind in turn:
            fault = Fault(round(rng.uniform(*APART_S[kind in NETWORK]), 1), kind, rng.randrange(1_000))
            left -= fault.after_s
            if left <= 0:
                break
            faults.append(fault)
    return faults


class Handlers:
    """The handler processes of a simulation, which share one state directory."""

    def __init__(self, settings: LogSettings) -> None:
        self._settings = settings
        self._started: list[subprocess.Popen[bytes]] = []
        self._running: list[subprocess.Popen[bytes]] = []
        self._paused: set[asyncio.Task[None]] = set()
        self.log = settings.state / "handlers.log"

    def start(self) -> None:
        """One more."""
        environment = os.environ | {
            "HEADWATER_ENVIRONMENT": self._settings.environment,
            "HEADWATER_KAFKA": self._settings.bootstrap,
            "HEADWATER_PARTITIONS": str(self._settings.partitions),
            "HEADWATER_MODULES": ",".join(self._settings.modules),
            "HEADWATER_STATE": str(self._settings.state),
        }
        with self.log.open("ab") as output:
            process = subprocess.Popen([sys.executable, "-m", "headwater.commands"], env=environment, stderr=output)
        self._started.append(process)
        self._running.append(process)

    async def suffer(self, fault: Fault) -> None:
        """Carry out a fault of handlers; afterwards as many run as before."""
        self.supervise()
        if fault.kind == "join":
            self.start()
            fault = fault._replace(kind="leave")
            await asyncio.sleep(fault.after_s / 2)
        process = self._running.pop(fault.pick % len(self._running))
        if fault.kind == "pause":
            process.send_signal(signal.SIGSTOP)
            task = asyncio.create_task(self._resume(process))
            self._paused.add(task)
            task.add_done_callback(self._paused.discard)
        elif fault.kind == "kill":
            process.kill()
            process.wait()
            self.start()
        else:
            process.terminate()
            await asyncio.to_thread(self._wait, process)
            if len(self._running) < HANDLERS:
                self.start()

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        """Until it has ended, which it does in END_S whatever its threads do; its log has their stacks then."""
        try:
            process.wait(END_BOUND_S)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"the handler {process.pid} has not ended") from error
        if process.returncode:
            logger.warning("process %d ended with %d:\n%s", process.pid, process.returncode, self.end_of_log())

    def end_of_log(self) -> str:
        """The last lines of what the handlers have logged."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LINES:])

    async def _resume(self, process: subprocess.Popen[bytes]) -> None:
        await asyncio.sleep(PAUSE_S)
        process.send_signal(signal.SIGCONT)
        self._running.append(process)

    async def settle(self) -> None:
        """Return when no handler is paused any more and all run."""
        await asyncio.gather(*self._paused)
        self.supervise()

    def supervise(self) -> None:
        """Start those again that have ended, as a supervisor would: one that finds no broker at its start ends."""
        ended = [process for process in self._running if process.poll() is not None]
        for process in ended:
            self._running.remove(process)
            self.start()

    def stop(self) -> None:
        """All of them, however they are."""
        for task in self._paused:
            task.cancel()
        for process in self._started:
            process.kill()
            process.wait()


class Sufferer(Protocol):
    """What faults are carried out on."""

    async def suffer(self, fault: Fault) -> None:
        """Carry out a fault."""


async def disturb(way: network.KafkaProxy, fault: Fault) -> None:
    """Let a fault happen to the next request of a kind that `fault` chooses, from whichever process it comes."""
    rng = random.Random(fault.pick)
    step = network.Step(rng.choice(list(network.Api)), rng.randrange(3), NETWORK[fault.kind])
    before = len(way.happened)
    way.arm(step)
    with suppress(TimeoutError):
        async with asyncio.timeout(SENT_S):
            while len(way.happened) == before:  # noqa: ASYNC110 - nothing is told of it
                await asyncio.sleep(0.01)
            logger.info("%s: %s", step.api.name, fault.kind)
    way.arm()
    await asyncio.sleep(rng.choice([0.0, rng.uniform(0.0, MAX_LATE_S)]))
    with suppress(OSError):  # the broker is being restarted
        await asyncio.to_thread(way.release)


async def carry_out(
    faults: Sequence[Fault],
    handlers: Handlers,
    servers: Stack,
    way: network.KafkaProxy,
    read_side: Sufferer | None = None,
) -> None:
    """All faults, one after the other. way: between the processes that write and the broker."""
    for fault in faults:
        await asyncio.sleep(fault.after_s)
        logger.info("%s", fault.kind)
        if read_side is not None and fault.kind in READ_SIDE:
            await read_side.suffer(fault)
        elif fault.kind in NETWORK:
            await disturb(way, fault)
        elif fault.kind == "restart broker":
            await asyncio.to_thread(servers["kafka"].restart)
        elif fault.kind == "kill broker":
            await asyncio.to_thread(servers["kafka"].kill)
            await asyncio.to_thread(servers["kafka"].wait_healthy)
        else:
            await handlers.suffer(fault)
    await handlers.settle()
