"""The commands `up`, `down`, `status`, `logs`, `run`, `prepare` and `lock`."""

import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Collection
from dataclasses import asdict
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from headwater.commands.errors import CommandError
from headwater.compose import detached
from headwater.compose.domains import read_deployed
from headwater.compose.errors import ComposeError
from headwater.compose.settings import StackSettings
from headwater.compose.stack import JAR_LOCK, Stack, fetch_jars, make_archives, parts_for, parts_text
from headwater.compose.state import StateDirectory
from headwater.eventlog.errors import EventLogError
from headwater.eventlog.programs.command_line import called_as
from headwater.eventlog.programs.logs import log_to_stderr
from headwater.eventlog.programs.modules import shipped_domains
from headwater.projections.errors import ProjectionError
from headwater.projections.spark.setup.jars import SPARK_LOCK, JarError, lock_group, read_lock, write_lock
from headwater.projections.spark.setup.java import JavaError
from headwater.projections.supervision.process import State, SupervisionError
from headwater.replay.output import show_table

Domains = Annotated[
    str,
    typer.Option(metavar="DOMAINS", help=f"Sample domains: all, or some of {', '.join(shipped_domains())}."),
]

app = typer.Typer(
    help="Run Headwater's local stack: real servers as child processes, without Docker.", no_args_is_help=True
)
_POLL_S = 0.25
_out, _err = Console(), Console(stderr=True)
_LOCK_HEADER = """Jars by coordinate (organisation:module:version) and sha256, verified at every download.
To change one, edit 'wants' and run: headwater stack lock"""


def main() -> None:
    """Run the command line; expected errors are printed in one line, with exit code 1."""
    try:
        app(prog_name=called_as())
    except (SupervisionError, EventLogError, CommandError, ProjectionError, JarError, JavaError) as error:
        _err.print(f"[red]error:[/red] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(1)


@app.command()
def up(
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Run in the background: return when all servers are healthy.")
    ] = False,
) -> None:
    """Start all servers and stop them at Ctrl-C, or leave them running with --detach.

    Kafka Connect is started only if the modules in HEADWATER_MODULES declare a source.
    """
    settings = StackSettings.from_environ(os.environ)
    if StateDirectory(settings.state).is_owned():
        _out.print(f"already running in '{settings.state}'", highlight=False, soft_wrap=True)
        return
    parts = parts_for(read_deployed("", os.environ))
    fetch_jars(parts)  # before detaching, so that the progress is shown
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    if detach:
        with _err.status(f"starting {parts_text(parts)}"):
            detached.start(settings)
        _show_endpoints(settings, parts)
        return
    log_to_stderr(os.environ, "stack")
    try:
        with Stack(settings, parts):
            _show_endpoints(settings, parts)
            signal.pause()
    except KeyboardInterrupt:
        _out.print("stopped")


@app.command()
def run(
    domains: Domains = "",
    reload: Annotated[bool, typer.Option("--reload", help="Restart what a changed module concerns.")] = False,
    containers: Annotated[
        bool, typer.Option("--containers", help="Run all of it in containers, by docker or podman.")
    ] = False,
) -> None:
    """Start the servers, the handler, the projections and the API, load the samples, and stop at Ctrl-C.

    Without DOMAINS, the modules in HEADWATER_MODULES are run, or the sample listings.
    """
    modules = read_deployed(domains, os.environ)
    if containers and reload:
        raise typer.BadParameter("--reload needs the programs on this machine: leave out --containers")
    if containers:
        from headwater.compose.containers.running import main as run_containers  # noqa: PLC0415 - as below

        raise typer.Exit(run_containers(modules))
    from headwater.compose.run import main as run_everything  # noqa: PLC0415 - needs the extra `demo`

    raise typer.Exit(run_everything(modules, reload))


@app.command()
def down() -> None:
    """Stop all servers. Their data is kept."""
    settings = StackSettings.from_environ(os.environ)
    detached.stop(settings)
    _out.print("stopped")


@app.command()
def status(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show the state of the servers. Exit code 0 only if all are healthy."""
    settings = StackSettings.from_environ(os.environ)
    state = StateDirectory(settings.state)
    record = state.read() if state.is_owned() else None
    processes = () if record is None else record.processes
    if as_json:
        print(json.dumps([asdict(process) for process in processes], indent=2))
    elif not processes:
        _out.print(f"no stack is running in '{settings.state}'", highlight=False, soft_wrap=True)
    else:
        columns = ("part", "state", "pid", "restarts", "detail")
        show_table(
            columns,
            # as text: the digits of a pid are not grouped
            [
                (one.name, one.state.value, one.pid and str(one.pid), one.restarts, one.detail or None)
                for one in processes
            ],
        )
    if not processes or any(process.state is not State.HEALTHY for process in processes):
        raise typer.Exit(1)


@app.command()
def logs(
    part: Annotated[str, typer.Argument(help="The log of one part; default: all.")] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until Ctrl-C.")] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="How many of the last lines of each log to print.")
    ] = 20,
) -> None:
    """Show the logs of the servers."""
    folder = StackSettings.from_environ(os.environ).logs
    files = {file.stem: file for file in sorted(folder.glob("*.log")) if not file.name.endswith(".old.log")}
    if part and part not in files:
        known = ", ".join(f"'{name}'" for name in files) or "none yet"
        raise ComposeError(f"no log of '{part}' in '{folder}'; use one of {known}")
    ends = dict[str, int]()
    try:
        while True:
            for name, file in files.items() if not part else [(part, files[part])]:
                with file.open(errors="replace") as log:
                    if name in ends and file.stat().st_size >= ends[name]:  # else a new file has replaced the old one
                        log.seek(ends[name])
                    for line in deque(log, maxlen=None if name in ends else lines):
                        text = Text(f"{name:>13} │ ", style="cyan") + Text(line.rstrip("\n"))
                        _out.print(text, soft_wrap=True)
                    ends[name] = log.tell()
            if not follow:
                return
            time.sleep(_POLL_S)
    except KeyboardInterrupt:
        return


@app.command()
def prepare() -> None:
    """Speed up the start of the servers, once per installation: archives of their classes are made."""
    log_to_stderr(os.environ, "stack")
    make_archives()


@app.command()
def lock() -> None:
    """Resolve the wanted jars again, and write their versions and checksums to the jar locks."""
    for path in (SPARK_LOCK, JAR_LOCK):
        groups = [lock_group(group) for group in read_lock(path).values()]
        write_lock(path, groups, _LOCK_HEADER)
        _out.print(f"wrote '{path}'", highlight=False, soft_wrap=True)


def _leave(*_: object) -> NoReturn:
    raise SystemExit(0)


def _show_endpoints(settings: StackSettings, parts: Collection[str]) -> None:
    """Show the addresses of the servers that run."""
    for variable, value in settings.endpoints.environment(with_connect="connect" in parts).items():
        _out.print(f"{variable}={value}", highlight=False, soft_wrap=True)
