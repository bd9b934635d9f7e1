"""Loaders as processes that share one store's patches: killed, paused and continued, and joined by others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headwater.compose.settings import StackSettings
from headwater.eventlog.settings import LogSettings
from headwater.projections.reading.reader import fold
from headwater.projections.testing.contracts import History, history
from tests.contracts.opened_stores import Server
from tests.contracts.view_histories import BY_GROUP
from tests.integration.projections.loading import create, rows_become, send
from tests.support.waiting import BOUND_S, eventually

Start = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
def start(settings: LogSettings, stack: StackSettings, tmp_path: Path) -> Iterator[Start]:
    """Starts a loader of a store as a process."""
    started: list[subprocess.Popen[bytes]] = []
    at = stack.endpoints
    variables = {
        "HEADWATER_ENVIRONMENT": settings.environment,
        "HEADWATER_MODULES": ",".join(settings.modules),
        "HEADWATER_PARTITIONS": str(settings.partitions),
        "HEADWATER_KAFKA": settings.bootstrap,
        "HEADWATER_POSTGRES": at.postgres,
        "HEADWATER_ELASTICSEARCH": at.elasticsearch,
        "HEADWATER_VALKEY": at.valkey,
    }

    def begin(store: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "tests.integration.projections.loader_process", store]
        with (tmp_path / f"{store}-{len(started)}.log").open("wb") as log:
            started.append(subprocess.Popen(argv, env=os.environ | variables, stdout=log, stderr=log))
        return started[-1]

    yield begin
    for process in started:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
        process.terminate()
    for process in started:
        process.wait(BOUND_S)


def part(told: History, number: int, of: int) -> History:
    """The patches of one of `of` equal stretches."""
    cut = {each: len(found) * number // of for each, found in told.patches.items()}
    after = {each: len(found) * (number + 1) // of for each, found in told.patches.items()}
    return History(
        told.view, told.sources, {each: found[cut[each] : after[each]] for each, found in told.patches.items()}
    )


@pytest.mark.complete
def test_a_store_whose_loaders_are_killed_paused_and_joined_loses_and_doubles_nothing(
    servers: dict[str, Server],
    settings: LogSettings,
    producer: Producer,
    start: Start,
) -> None:
    told = history(BY_GROUP, list(BY_GROUP.plan.events.values()), seed=7, length=400)
    targets = {name: create(server, BY_GROUP) for name, server in servers.items()}

    def reached(share: float) -> None:
        """Wait until every store has taken in this share of what was sent."""
        for name, server in servers.items():
            store = server.open()
            eventually(
                lambda store=store, name=name: (  # type: ignore[misc]
                    sum(ledger.next_offset for ledger in store.ledgers(targets[name]).values())
                    >= share * sum(told.ends.values())
                ),
                f"{share:.0%} are in {name}",
                BOUND_S,
            )

    killed = [start(name) for name in servers]
    send(producer, settings, part(told, 0, 4))
    reached(0.1)
    paused = [start(name) for name in servers]
    send(producer, settings, part(told, 1, 4))
    for process in killed:
        process.kill()
    reached(0.45)
    for process in paused:
        process.send_signal(signal.SIGSTOP)
    send(producer, settings, part(told, 2, 4))
    for name in servers:
        start(name)
    # the group waits for the paused ones until their session ends, then gives their partitions to the new ones
    reached(0.7)
    for process in paused:
        process.send_signal(signal.SIGCONT)
    send(producer, settings, part(told, 3, 4))
    for server in servers.values():
        rows_become(server, told)
        assert server.rows(BY_GROUP) == fold(BY_GROUP, told.sources)
    assert all(process.poll() is None for process in paused)
