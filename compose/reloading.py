"""`headwater run --reload`: restarts what a changed module concerns.

What the modules on disk declare is read in a process of its own, because this one keeps what it has imported:
`python -m headwater.compose.reloading MODULE…` prints it as JSON, or the mistake in one line, with exit code 1.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from headwater.commands.declaring.history import History, Step
from headwater.commands.declaring.observation import ObservationRegistry
from headwater.commands.declaring.process import ProcessRegistry
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import CommandError
from headwater.compose.errors import ComposeError
from headwater.eventlog.errors import EventLogError
from headwater.eventlog.programs.modules import PACKAGE, SAFE_PATH, SAMPLES
from headwater.projections.errors import ProjectionError
from headwater.projections.registry import ViewRegistry
from headwater.projections.supervision.process import State
from headwater.projections.supervision.supervised import Supervisor

LOOK_S: Final = 0.3
"""Between two looks at the files; two equal looks end a change, since editors and `git` write several files."""
ALWAYS: Final = ("commands", "api")
"""The processes that run a module's functions, by their names in `service_specs`."""
READ_SIDE: Final = ("projections",)

Stamps = Mapping[str, tuple[int, int]]
"""Time and size of each file."""
_INSTALLED: Final = {"site-packages", "dist-packages"}
_NOT_EDITED: Final = {PACKAGE, *sys.stdlib_module_names, "__main__"}


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
        time.sleep(LOOK_S)
        while (later := stamps(self._declared.files)) != now:
            now = later
            time.sleep(LOOK_S)
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
    stamp_by_path = {}
    for file in files:
        try:
            state = Path(file).stat()
        except OSError:  # an editor replaces a file in two steps
            continue
        stamp_by_path[file] = state.st_mtime_ns, state.st_size
    return stamp_by_path


def _short(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else path.name


@dataclass(frozen=True, slots=True)
class Declared:
    """read_side: digest of all that its processes know: views, and fields and versions of what these read.

    files: of the modules and of what they import, without installed packages and Headwater's own.
    """

    read_side: str
    files: tuple[str, ...]


def declared(modules: Sequence[str]) -> Declared:
    """What `modules` declare now; raises ComposeError with the mistake that makes them impossible to run."""
    ran = subprocess.run(
        [sys.executable, *SAFE_PATH, "-m", "headwater.compose.reloading", *modules],
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode != 0:
        raise ComposeError(ran.stderr.strip().splitlines()[-1] if ran.stderr.strip() else "its import ended Python")
    description = json.loads(ran.stdout.splitlines()[-1])  # a module may print while it is imported
    return Declared(description["read_side"], tuple(description["files"]))


def main(modules: Sequence[str]) -> int:
    """Print what these modules declare; returns the exit code."""
    try:
        ProcessRegistry.load(modules)
        declaration = Declared(_read_side(modules), tuple(sorted(_files())))
    except (EventLogError, CommandError, ProjectionError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 1
    print(json.dumps(asdict(declaration)))
    return 0


def _read_side(modules: Sequence[str]) -> str:
    views = ViewRegistry.load(modules).views.values()
    events, observations = CommandRegistry.load(modules).events, ObservationRegistry.load(modules).types
    parts = [
        *(repr((view.name, view.tag, view.fingerprint, view.row_types)) for view in views),
        *(repr((name, _past(event.history), event.model_json_schema())) for name, event in events.items()),
        *(repr((name, observation.model_json_schema())) for name, observation in observations.items()),
    ]
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()


def _past(history: History) -> list[Any]:
    """What older versions of an event are read as, as far as the text of its upcasters says."""
    past: list[Any] = [history.types]
    for version, upcaster in history.upcasters:
        function = upcaster.how if isinstance(upcaster, Step) else upcaster
        source = ""
        with suppress(OSError, TypeError):  # of a builtin such as `int`
            source = inspect.getsource(function) if function is not None else ""
        past.append((version, repr(upcaster) if isinstance(upcaster, Step) else "", source))
    return past


def _files() -> set[str]:
    """The files of all modules that this process has imported, except those that nobody edits."""
    files = set()
    for name, module in list(sys.modules.items()):
        top, file = name.partition(".")[0], getattr(module, "__file__", None)
        if top in _NOT_EDITED and not name.startswith(f"{SAMPLES}."):
            continue
        if file and file.endswith(".py") and not _INSTALLED & set(Path(file).parts):
            files.add(str(Path(file).resolve()))
    return files


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
