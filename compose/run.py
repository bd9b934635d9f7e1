"""`make run`: the stack and the services, with the samples loaded, until Ctrl-C."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NoReturn

from rich.console import Console

from api.settings import ACCESS_LOG
from commands.declaring.observation import ObservationRegistry
from commands.declaring.process import ProcessRegistry
from compose.demo import SAMPLES, wait_for_views
from compose.errors import ComposeError
from compose.sample import Client, Deployment, open_http
from compose.services import api_port, required, service_specs
from compose.settings import HOST, StackSettings
from compose.stack import Stack, parts_for, parts_text
from compose.to_try import HEAD, TO_TRY, TO_TRY_ALWAYS
from eventlog.capturing import SourceRegistry
from eventlog.capturing.settings import SourceSettings
from eventlog.errors import SettingError
from eventlog.modules import DEFAULT_MODULES
from projections.registry import ViewRegistry
from projections.supervision.supervisor import Supervisor

MODULES: Final = "HEADWATER_MODULES"
STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(modules: Sequence[str]) -> int:
    """Start everything, load the samples, print what to try, and stay until SIGINT or SIGTERM.

    modules: the names that HEADWATER_MODULES would have.
    """
    settings, port = StackSettings.from_environ(os.environ), api_port(os.environ)
    api, console = f"http://{HOST}:{port}", Console(stderr=True, highlight=False, markup=False)
    log_to_file(settings.logs / "run.log", console)
    for number in STOPPING:
        signal.signal(number, _leave)
    check_declarations(modules)
    try:
        with ExitStack() as running:
            parts = parts_for(modules)
            console.print(f"starting {parts_text(parts)}")
            running.enter_context(Stack(settings, parts))
            console.print("starting the handler, the projections and the API")
            environment = environment_of(settings, modules, os.environ)
            watched = watched_sources(modules, {**os.environ, **environment}, console)
            services = Supervisor(service_specs(settings, port, environment, watched))
            running.callback(services.stop)
            running.callback(console.print, "stopping")
            services.start()
            deployment = Deployment(settings.endpoints, {**os.environ, **environment})
            asyncio.run(load(api, modules, deployment, console))
            print(page(api, settings, os.environ, modules), flush=True)
            while True:
                signal.pause()
    except KeyboardInterrupt:
        return 0


def check_declarations(modules: Sequence[str]) -> None:
    """Load all declarations, so that a mistake in one is reported before a server is started."""
    ViewRegistry.load(modules)
    ProcessRegistry.load(modules)
    ObservationRegistry.load(modules)


def environment_of(settings: StackSettings, modules: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of the services beside the addresses of the stack's servers, which `service_specs` adds."""
    missing = {name: value for name, value in required(settings, modules).items() if name not in environ}
    return {**missing, **settings.endpoints.environment(), ACCESS_LOG: "true", MODULES: ",".join(modules)}


def watched_sources(modules: Sequence[str], environ: Mapping[str, str], console: Console) -> list[str]:
    """The sources whose addresses are known; the console shows which variable another one lacks."""
    found = []
    for name, source in SourceRegistry.load(modules).sources.items():
        try:
            SourceSettings.from_environment(source, environ)
        except SettingError as error:
            console.print(f'connectors of source "{name}" are not watched: {error}', soft_wrap=True)
        else:
            found.append(name)
    return found


def page(api: str, settings: StackSettings, environ: Mapping[str, str], modules: Sequence[str]) -> str:
    """Commands to try: each on one line below a comment, so that it can be pasted in a shell."""
    folder = Path(sys.executable).parent
    here = Path.cwd()
    names = {"api": api, "bin": shlex.quote(str(folder.relative_to(here) if folder.is_relative_to(here) else folder))}
    views = ViewRegistry.load(modules).views
    names["view"] = next((name for name in views if name != "streams"), "streams")
    if tuple(modules) != DEFAULT_MODULES:
        environ = {**environ, MODULES: ",".join(modules)}
    lines = [HEAD.format(api=api, state=settings.state, logs=settings.logs)]
    exported = required(settings, modules) | variables(settings, environ)
    exports = [f"export {name}={shlex.quote(value)}" for name, value in exported.items()]
    if exports:
        lines += ["# settings for the commands below", *exports, ""]
    for title, command in (*(each for name in modules for each in TO_TRY.get(name, ())), *TO_TRY_ALWAYS):
        lines += [f"# {title}", command.format(**names)]
    return "\n".join(lines)


def variables(settings: StackSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that another terminal needs to reach these servers; empty if all have their defaults."""
    given = {name: value for name, value in environ.items() if name.startswith("HEADWATER_") and "_PORT" not in name}
    usual = StackSettings(settings.state).endpoints.environment()
    ours = settings.endpoints.environment()
    moved = {name: value for name, value in ours.items() if value != usual[name]}
    return {name: value for name, value in sorted(given.items()) if name not in ours} | moved


def log_to_file(path: Path, console: Console) -> None:
    """Log to `path`; the terminal only shows if a part was given up."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = logging.FileHandler(path)
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger().addHandler(file)
    logging.getLogger().setLevel(logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs a line for every probe and listing
    given_up = _Shown(console)
    given_up.setLevel(logging.ERROR)
    logging.getLogger("projections.supervision").addHandler(given_up)


async def load(api: str, modules: Sequence[str], deployment: Deployment, console: Console) -> None:
    """Load the samples among `modules`, and wait until the views show them, so that the first queries find rows.

    Commands of an earlier run are answered from their receipts.
    """
    wait_for_views(api)
    async with open_http(api) as http:
        client, rows = Client(http), dict[str, str]()
        for domain in [name for name in modules if name in SAMPLES]:
            sample = SAMPLES[domain]()
            console.print(f"loading {domain}")
            await sample.prepare(client, deployment)
            for requests in sample.loading():
                await asyncio.gather(*(client.send(request, command_id) for command_id, request in requests.items()))
            rows |= sample.rows
        if not rows:
            return
        console.print("waiting until the views show them")
        try:
            await client.settle(rows)
        except ComposeError as error:  # continue, because slow views catch up later
            console.print(str(error), soft_wrap=True)


class _Shown(logging.Handler):
    """Shows messages on the console."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        self._console.print(record.getMessage(), style="red", soft_wrap=True)


def _leave(*_: object) -> NoReturn:
    """Stop whatever is running; only the first signal counts, because a second one would interrupt the stop."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
