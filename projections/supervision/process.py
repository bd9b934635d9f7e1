"""What a supervised process is: how to run it, how to tell that it runs well, and how often to try again."""

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

MAX_DOUBLINGS = 32
"""Of a wait, which has reached its longest by then; without an end, 2.0**1024 is an error."""

Probe = Callable[[], str | None]
"""Asks a process whether it can serve: None when it can, else the reason why not. Must return within seconds."""


class State(StrEnum):
    """Where a supervised process stands."""

    WAITING = "waiting"
    STARTING = "starting"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    BACKOFF = "backoff"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """What to run and how to tell that it runs well.

    `env` is added to this process's own environment. `prepare` runs before every start (write files, format a disk)
    and must be repeatable. `after` names the processes that must be healthy first. `user` is (uid, gid). While `held`
    says so, the process waits for another one, and `start_timeout_s` does not run.
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
    start_timeout_s: float = 60.0
    held: Callable[[], bool] = lambda: False
    stop_timeout_s: float = 15.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """How a process that keeps dying is restarted: doubling waits, and an end.

    After `limit` restarts in a row of which none lived for `stable_s`, the process is given up; before it has ever
    been healthy, after `limit_at_first` already, for then the likely cause is its configuration. None: never.
    """

    first_s: float = 0.2
    max_s: float = 5.0
    limit: int | None = 8
    limit_at_first: int | None = 2
    stable_s: float = 30.0

    def wait_s(self, attempt: int) -> float:
        """The wait before restart number `attempt`, counted from 0."""
        return min(self.max_s, self.first_s * 2.0 ** min(attempt, MAX_DOUBLINGS))


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """A moment in the life of a supervised process.

    `pid` and `guard` are those of the process and of its guard, `started` is when they began, and `since` when the
    state began (both Unix time in seconds).
    """

    name: str
    state: State
    pid: int | None
    guard: int | None
    started: float | None
    restarts: int
    since: float
    detail: str


DEFAULT_BACKOFF = Backoff()

RETRY_FOREVER = Backoff(first_s=0.5, max_s=10.0, limit=None, limit_at_first=None)
"""For who waits for servers that may be away for hours: never given up, not at the first start either."""
