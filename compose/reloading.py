"""`headwater run --reload`: restarts what a changed module concerns."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from headwater.compose.declared import declared
from headwater.compose.errors import ComposeError
from headwater.projections.supervision.process import State
from headwater.projections.supervision.supervised import Supervisor

LOOK_S: Final = 0.3
"""Between two looks at the files; two equal looks end a change, since editors and `git` write several files."""
ALWAYS: Final = ("commands", "api")
"""The processes that run a module's functions, by their names in `service_specs`."""
READ_SIDE: Final = ("projections",)

Stamps = Mapping[str, tuple[int, int]]
"""Time and size of each file."""


class Reloader:
    """Watches the files of `modules`; each change of them restarts some of the running `services`."""

    def __init__(self, modules: Sequence[str], services: Supervisor, console: Console) -> None:
        """Raises ComposeError if the modules cannot be loaded."""
        self._modules, self._services, self._console = modules, services, console
        self._declared = declared(modules)
        self._stamps = stamps(self._declared.files)
        self._began = 0.0
        self._restarting: dict[str, int | None] = {}  # the process that is replaced, by name
        self._shown: set[str] = set()

    @property
    def restarting(self) -> Sequence[str]:
        """The processes that do not run the new code yet."""
        return tuple(self._restarting)

    def watch(self) -> None:
        """React to changes until this process is interrupted."""
        while True:
            time.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        """React to a change since the last look, if there is one, and show what has been restarted."""
        now = stamps(self._declared.files)
        if now != self._stamps:
            self._take(now)
        self._show()

    def _take(self, now: Stamps) -> None:
        while (later := _look_again(self._declared.files)) != now:
            now = later
        changed = sorted(file for file in {*now, *self._stamps} if now.get(file) != self._stamps.get(file))
        self._stamps = now
        self._console.print(f"changed: {', '.join(map(_short, changed))}", soft_wrap=True)
        try:
            new = declared(self._modules)
        except ComposeError as error:
            self._console.print(f"the code from before keeps running: {error}", style="red", soft_wrap=True)
            return
        names = [*ALWAYS, *(READ_SIDE if new.read_side != self._declared.read_side else ())]
        self._declared, self._stamps = new, {**stamps(new.files), **now}
        self._began = time.monotonic()
        self._shown.clear()
        for name in names:
            self._restarting[name] = self._services[name].status.pid
            self._services[name].renew()

    def _show(self) -> None:
        """Print what runs again, and once why something does not."""
        for name, replaced in list(self._restarting.items()):
            status = self._services[name].status
            if status.state is State.HEALTHY and status.pid != replaced:
                self._console.print(f"{name} runs the new code after {time.monotonic() - self._began:.1f} s")
                del self._restarting[name]
            elif (
                status.state in (State.BACKOFF, State.FAILED)
                and (detail := f"{name} {status.detail}") not in self._shown
            ):
                self._shown.add(detail)
                self._console.print(detail, style="red", soft_wrap=True)


def stamps(files: Sequence[str]) -> Stamps:
    """Of the files that exist."""
    found = {}
    for file in files:
        try:
            state = Path(file).stat()
        except OSError:  # an editor replaces a file in two steps
            continue
        found[file] = state.st_mtime_ns, state.st_size
    return found


def _look_again(files: Sequence[str]) -> Stamps:
    time.sleep(LOOK_S)
    return stamps(files)


def _short(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else path.name
