"""Shows the logs of a stack's processes, the way `tail` does."""

import time
from collections import deque
from pathlib import Path

from rich.console import Console
from rich.text import Text

from headwater.compose.errors import ComposeError
from headwater.compose.settings import StackSettings

_POLL_S = 0.25


def show_logs(settings: StackSettings, part: str, *, lines: int, follow: bool) -> None:
    """Print the last lines of one log or all; with `follow`, also new lines, until Ctrl-C."""
    files = {file.stem: file for file in sorted(settings.logs.glob("*.log")) if not file.name.endswith(".old.log")}
    if part:
        if part not in files:
            known = ", ".join(f"'{name}'" for name in files) or "none yet"
            raise ComposeError(f"no log of '{part}' in '{settings.logs}'; use one of {known}")
        files = {part: files[part]}
    console = Console()
    positions = {name: _print_tail(console, name, file, lines) for name, file in files.items()}
    try:
        while follow:
            for name, file in files.items():
                positions[name] = _print_from(console, name, file, positions[name])
            time.sleep(_POLL_S)
    except KeyboardInterrupt:
        return


def _print_tail(console: Console, name: str, file: Path, lines: int) -> int:
    with file.open(errors="replace") as log:
        for line in deque(log, maxlen=lines):
            _print_line(console, name, line)
        return log.tell()


def _print_from(console: Console, name: str, file: Path, position: int) -> int:
    if file.stat().st_size < position:
        position = 0  # a new file has replaced the old one
    with file.open(errors="replace") as log:
        log.seek(position)
        while line := log.readline():
            _print_line(console, name, line)
        return log.tell()


def _print_line(console: Console, name: str, line: str) -> None:
    console.print(Text(f"{name:>13} │ ", style="cyan") + Text(line.rstrip("\n")), soft_wrap=True)
