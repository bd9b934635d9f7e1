"""What the modules on disk declare, read in a process of its own: this one keeps what it has imported.

`python -m headwater.compose.declared MODULE…` prints it as JSON, or the mistake in one line, with exit code 1.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

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

_INSTALLED: Final = {"site-packages", "dist-packages"}
_NOT_EDITED: Final = {PACKAGE, *sys.stdlib_module_names, "__main__"}


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
        [sys.executable, *SAFE_PATH, "-m", "headwater.compose.declared", *modules],
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode != 0:
        raise ComposeError(ran.stderr.strip().splitlines()[-1] if ran.stderr.strip() else "its import ended Python")
    found = json.loads(ran.stdout.splitlines()[-1])  # a module may print while it is imported
    return Declared(found["read_side"], tuple(found["files"]))


def main(modules: Sequence[str]) -> int:
    """Print what these modules declare; returns the exit code."""
    try:
        ProcessRegistry.load(modules)
        found = Declared(_read_side(modules), tuple(sorted(_files())))
    except (EventLogError, CommandError, ProjectionError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 1
    print(json.dumps({"read_side": found.read_side, "files": found.files}))
    return 0


def _read_side(modules: Sequence[str]) -> str:
    views = ViewRegistry.load(modules).views.values()
    events, observations = CommandRegistry.load(modules).events, ObservationRegistry.load(modules).types
    parts = [
        *(repr((view.name, view.tag, view.fingerprint, view.row_types)) for view in views),
        *(repr((name, _past(event.history), event.model_json_schema())) for name, event in events.items()),
        *(repr((name, each.model_json_schema())) for name, each in observations.items()),
    ]
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()


def _past(history: History) -> list[Any]:
    """What older versions of an event are read as, as far as the text of its upcasters says."""
    found: list[Any] = [history.types]
    for version, upcaster in history.upcasters:
        function = upcaster.how if isinstance(upcaster, Step) else upcaster
        source = ""
        with suppress(OSError, TypeError):  # of a builtin such as `int`
            source = inspect.getsource(function) if function is not None else ""
        found.append((version, repr(upcaster) if isinstance(upcaster, Step) else "", source))
    return found


def _files() -> set[str]:
    """The files of all modules that this process has imported, except those that nobody edits."""
    found = set()
    for name, module in list(sys.modules.items()):
        top, file = name.partition(".")[0], getattr(module, "__file__", None)
        if top in _NOT_EDITED and not name.startswith(f"{SAMPLES}."):
            continue
        if file and file.endswith(".py") and not _INSTALLED & set(Path(file).parts):
            found.add(str(Path(file).resolve()))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
