"""A supervised process: how to run it, how to check it, what it said last, and the errors of starting it."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

READ_BYTES: Final = 64 * 1024
"""At the end of a log."""
SHOWN_CHARACTERS: Final = 500
_LOGGED: Final = re.compile(r"\d{4}-\d\d-\d\d [\d:,.]+ (?P<level>[A-Z]+) (?P<logger>\S+) (?P<message>.*)")
"""A line of text as `eventlog.programs.logs` writes it."""
_ERRORS: Final = frozenset({"ERROR", "CRITICAL"})
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


class SupervisionError(RuntimeError):
    """Root of the errors of starting and supervising processes; a process's `prepare` raises a subclass."""


class StartFailed(SupervisionError):
    """A process did not become healthy."""

    def __init__(self, part: str, reason: str, log: Path) -> None:
        self.part, self.reason, self.log = part, reason, log
        super().__init__(f"'{part}' did not become healthy: {reason}; its log is '{log}'")


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
    is started anew once it has done next to nothing for `start_timeout_s`: on a busy machine a new start would only
    take longer.
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


def cpu_s(pid: int) -> float:
    """The CPU time that a process and those below it have used; 0 if it has ended."""
    import psutil  # noqa: PLC0415 - the API, which supervises nothing, does without it

    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0.0
    used_s = 0.0
    for member in family:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            times = member.cpu_times()
            used_s += times.user + times.system
    return used_s


def last_log_lines(log: Path, since: int) -> str:
    """The last error that a process wrote to its log, in one line; empty if there is none. since: bytes to leave out.

    It is the last line, or if that is no error, the last one that is logged as an error, or else the last line. Lines
    that are indented belong to one before them, and say nothing alone.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(since, file.seek(0, 2) - READ_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    written = [line for line in text.splitlines() if line.strip()]
    begun = [line for line in written if not line[0].isspace()]
    lines = [line for line in (_CONTROL.sub(" ", line).strip() for line in begun or written) if line]
    if not lines:
        return ""
    logged = [_parsed(line) for line in lines]
    errors = [entry["message"] for entry in logged if entry and entry["level"] in _ERRORS]
    last = logged[-1]
    text_line = lines[-1] if last is None else errors[-1] if errors else last["message"]
    return text_line if len(text_line) <= SHOWN_CHARACTERS else f"{text_line[: SHOWN_CHARACTERS - 1]}…"


def _parsed(line: str) -> Mapping[str, str] | None:
    """The level and the message of a line in one of the formats of `eventlog.programs.logs`; None if it is in none."""
    if line.startswith("{"):
        try:
            parsed = json.loads(line)
            said = [str(parsed["message"]), *_named(str(parsed.get("error", "")))]
            return {"level": str(parsed["level"]), "message": _CONTROL.sub(" ", ": ".join(said))}
        except (ValueError, KeyError, TypeError):
            return None
    match = _LOGGED.fullmatch(line)
    return match and match.groupdict()


def _named(trace: str) -> list[str]:
    """The line of a traceback that names the error: Python's last one, or the first one of Java."""
    lines = [line for line in trace.splitlines() if line.strip()]
    return [] if not lines else [lines[0] if lines[-1][0].isspace() else lines[-1]]
