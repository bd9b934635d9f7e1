"""A supervised process: how to run it, how to check it, and how often to restart it."""

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

Probe = Callable[[], str | None]
"""Checks whether a process can serve: None if it can, else the reason. Must return within seconds."""


class State(StrEnum):
    """The state of a supervised process."""

    WAITING = "waiting"
    STARTING = "starting"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    BACKOFF = "backoff"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """How to run a process and how to check it.

    `env` is added to this process's own environment. `prepare` runs before every start (write files, format a disk) and
    must be repeatable. `after` names the processes that must be healthy first. `user` is (uid, gid). While `held`
    returns True, the process waits for another one, and `start_timeout_s` does not run. A process that is not healthy
    within `start_timeout_s` is started anew. It is long, because on a busy machine a new start only takes longer.
    """

    name: str
    argv: tuple[str, ...]
    log: Path
    probe: Probe
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    user: tuple[int, int] | None = None
    prepare: Callable[[], None] = lambda: None
    after: tuple[str, ...] = ()
    stop_signal: signal.Signals = signal.SIGTERM
    start_timeout_s: float = 180.0
    held: Callable[[], bool] = lambda: False
    stop_timeout_s: float = 15.0


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """The state of a supervised process at one moment.

    `pid` and `guard` are those of the process and of its guard, `started` is their start, and `since` the beginning of
    the state (both Unix time in seconds).
    """

    name: str
    state: State
    pid: int | None
    guard: int | None
    started: float | None
    restarts: int
    since: float
    detail: str
