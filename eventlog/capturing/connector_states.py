"""Waits until a connector is in a state; raises ConnectError if it fails, or is not in it after RUNNING_S."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from headwater.eventlog.capturing.declaring import Source
from headwater.eventlog.capturing.errors import ConnectError, ConnectorFailed
from headwater.eventlog.capturing.kafka_connect import ConnectorState, KafkaConnect
from headwater.eventlog.capturing.naming import SourceNames

RUNNING_S: Final = 180.0
"""How long a connector may take to run, or to stop: as long as a server of the local stack may take to start."""
CAPTURED_S: Final = 30.0
"""How long a connector may take to capture what the database has logged already."""
POLL_S: Final = 0.1


def wait_until_running(connect: KafkaConnect, source: Source, names: SourceNames) -> None:
    """Return once it and its task run."""
    _wait_for(connect, source, names, "RUNNING", lambda state: state is not None and state.is_running)


def wait_until_paused(connect: KafkaConnect, source: Source, names: SourceNames) -> None:
    """Return once neither the connector nor its task runs."""

    def is_paused(state: ConnectorState | None) -> bool:
        return state is not None and state.connector == "PAUSED" and state.task != "RUNNING"

    _wait_for(connect, source, names, "PAUSED", is_paused)


def wait_until_stopped(connect: KafkaConnect, source: Source, names: SourceNames) -> None:
    """Return once the task is gone."""

    def is_stopped(state: ConnectorState | None) -> bool:
        return state is not None and state.connector == "STOPPED" and not state.task

    _wait_for(connect, source, names, "STOPPED", is_stopped)


def wait_until_removed(connect: KafkaConnect, source: Source, names: SourceNames) -> None:
    """Return once the connector is gone."""
    _wait_for(connect, source, names, "removed", lambda state: state is None)


def is_reached(condition: Callable[[], bool], timeout_s: float | None = None) -> bool:
    """Whether this becomes true within this time; None: CAPTURED_S."""
    deadline = time.monotonic() + (CAPTURED_S if timeout_s is None else timeout_s)
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _wait_for(
    connect: KafkaConnect,
    source: Source,
    names: SourceNames,
    wanted: str,
    is_reached: Callable[[ConnectorState | None], bool],
) -> None:
    deadline = time.monotonic() + RUNNING_S
    while True:
        state = connect.state(names.connector)
        if is_reached(state):
            return
        if state is not None and state.state == "FAILED" and wanted == "RUNNING":
            raise ConnectorFailed(source.name, state.error)
        if time.monotonic() > deadline:
            found = f"{state.connector}, and its task {state.task or 'absent'}" if state else "not registered"
            raise ConnectError(
                f'the connector of source "{source.name}" is {found}, not {wanted}, after {RUNNING_S:.0f} s: '
                "see the log of Kafka Connect"
            )
        time.sleep(POLL_S)
