"""The deployment that `headwater run` keeps up on this machine: its settings, for programs that others start.

`headwater run` writes them into a file of its state folder, and holds a lock on that file while it runs; so the file of
one that was killed is not taken for a running deployment. The file may have secrets: only its user reads it.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shlex
import sys
from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from headwater.eventlog.programs.command_line import print_error

FILE: Final = "deployment.json"
STATE: Final = "HEADWATER_STATE"
STATE_FOLDER: Final = ".headwater"
"""The state folder, where HEADWATER_STATE names no other: in the current folder."""
NAMES_ONE: Final = tuple(
    f"HEADWATER_{name}" for name in ("ENVIRONMENT", "KAFKA", "POSTGRES", "ELASTICSEARCH", "VALKEY")
)
"""Variables, each also with `_FILE`, of which one is enough to mean another deployment than the one that runs here."""


class Running(NamedTuple):
    """A deployment that runs. settings: its environment variables. secret: the names of those that are secrets."""

    settings: dict[str, str]
    secret: list[str]


@contextmanager
def published(state: Path, settings: Mapping[str, str], secret: Collection[str]) -> Iterator[None]:
    """Let other programs find this deployment while the context is open; see `Running` for the arguments."""
    path, unfinished = state / FILE, state / f"{FILE}.new"
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        json.dump(Running({**settings}, [*secret])._asdict(), file, indent=2)
        file.flush()
        unfinished.replace(path)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def running_in(state: Path) -> Running | None:
    """The deployment whose state is in this folder, if it runs now and belongs to this user."""
    try:
        with (state / FILE).open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return Running(**json.load(file))
    except OSError:
        pass
    return None


def use_running_deployment(environ: MutableMapping[str, str]) -> None:
    """Add the settings of the deployment that runs in this folder to those of this process.

    Nothing is added if the variables name a deployment, or a server, themselves: settings of two are never mixed.
    """
    if any(environ.get(name) or environ.get(f"{name}_FILE") for name in NAMES_ONE):
        return
    running = running_in(Path(environ.get(STATE) or STATE_FOLDER))
    for name, value in running.settings.items() if running else ():
        if not environ.get(name):
            environ[name] = value
            if name == "PYTHONPATH":  # this process has read it already
                sys.path += [folder for folder in value.split(os.pathsep) if folder not in sys.path]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the settings of the deployment that runs here as a shell reads them: `eval "$(headwater env)"`."""
    parser = argparse.ArgumentParser("headwater env", description=main.__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(os.environ.get(STATE) or STATE_FOLDER),
                        help="the state folder of the deployment; default: HEADWATER_STATE, or .headwater")  # fmt: skip
    parser.add_argument("--secrets", action="store_true", help="print secrets on a terminal, too")
    given = parser.parse_args(arguments)
    running = running_in(given.folder)
    if running is None:
        print_error(
            f'error: no deployment of yours runs with its state in "{given.folder}": start one with `headwater run`, '
            "or name the state folder of the one that you mean"
        )
        return 1
    hidden = [] if given.secrets or not sys.stdout.isatty() else running.secret
    for name, value in running.settings.items():
        if name not in hidden:
            print(f"export {name}={shlex.quote(value)}")
    if hidden:
        print(f"# secrets, which --secrets prints here: {' '.join(hidden)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
