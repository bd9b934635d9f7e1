"""Programs under test: their logs, and what they do if they do not end."""

from __future__ import annotations

import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from tests.support.waiting import BOUND_S, eventually

SHOWS_STACKS: Final[dict[str, str]] = {"PYTHONFAULTHANDLER": "1"}
"""Variables of a program that writes the stacks of its threads when it is aborted."""
WRITTEN_S: Final = 10.0
"""How long an aborted program may take to write them."""
CHARACTERS: Final = 300
"""Of a line in a message: one may be a whole document."""
LAST_LINES: Final = 25
"""Of each log in a message: of the output of a run, only the end is kept."""


def ended(process: subprocess.Popen[bytes], logs: Path, within_s: float = BOUND_S) -> int:
    """The exit code of a program, once it has ended.

    If it takes too long, it is aborted with all that it has started, and the error shows the end of each log below
    `logs`. Those of programs with SHOWS_STACKS have the stacks of all threads then.
    """
    try:
        return process.wait(within_s)
    except subprocess.TimeoutExpired:
        words = process.args
        abort(process.pid)
        raise AssertionError(f"{words!r} has not ended within {within_s:g} s:\n{ends_of(logs)}") from None


def abort(pid: int) -> None:
    """End a process and all that it has started; each writes the stacks of its threads to its log, if it can."""
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        found = [*parent.children(recursive=True), parent]
        for span in found:
            with suppress(psutil.NoSuchProcess):
                # a JVM writes its stacks when it is asked to quit, and goes on
                span.send_signal(signal.SIGQUIT if span.name() == "java" else signal.SIGABRT)
        _, left = psutil.wait_procs(found, timeout=WRITTEN_S)
        for each in left:
            with suppress(psutil.NoSuchProcess):
                each.kill()


def kill(process: psutil.Process) -> None:
    """Kill a process and all that it has started, at once; returns when they are gone."""
    found = [process]
    with suppress(psutil.NoSuchProcess):
        found = [*process.children(recursive=True), process]
    for each in found:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    eventually(lambda: all(map(_is_gone, found)), f"{found} are gone")


def _is_gone(process: psutil.Process) -> bool:
    """Whether it runs no more, also if nobody has asked how it ended."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def ends_of(logs: Path, lines: int = LAST_LINES) -> str:
    """The last lines of each log below a folder, or of one file."""
    files = sorted(logs.rglob("*.log")) if logs.is_dir() else [logs]
    return "\n".join(_end_of(file, lines) for file in files if file.exists()) or f"no log in {logs}"


def _end_of(file: Path, lines: int) -> str:
    """The last lines of a log, below its name; what is missing is said."""
    try:
        found = file.read_text(errors="replace").splitlines()[-lines:]
    except OSError as error:
        found = [str(error)]
    return "\n".join([f"\nthe end of {file.name}:", *(each[:CHARACTERS] for each in found)])
