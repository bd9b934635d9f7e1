"""`make run`: the stack and the services, with the samples loaded, until Ctrl-C."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NoReturn

from rich.console import Console

from headwater.api.settings import ACCESS_LOG, ServerSettings
from headwater.commands.declaring.observation import ObservationRegistry
from headwater.commands.declaring.process import ProcessRegistry
from headwater.compose.errors import ComposeError
from headwater.compose.page import page, secrets, shared_settings
from headwater.compose.reloading import Reloader
from headwater.compose.samples.sample import Client, Deployment, open_http, sample_of
from headwater.compose.services import local_keys, required, service_specs, wait_for_views
from headwater.compose.settings import HOST, StackSettings
from headwater.compose.stack import Stack, parts_for, parts_text
from headwater.eventlog.capturing import SourceRegistry
from headwater.eventlog.capturing.settings import SourceSettings
from headwater.eventlog.errors import SettingError
from headwater.eventlog.programs.logs import formatter_of
from headwater.eventlog.programs.modules import VARIABLE, shipped_domains
from headwater.eventlog.programs.running_deployment import published
from headwater.eventlog.programs.variables import IN_FILE
from headwater.eventlog.security import SECURITY_VARIABLES
from headwater.eventlog.settings import LogVariables
from headwater.projections.registry import ViewRegistry

START_S: Final = 300.0
"""Views of a slow machine take minutes until each has a generation."""
STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(modules: Sequence[str], reload: bool = False) -> int:
    """Start everything, load the samples, print what to try, and stay until SIGINT or SIGTERM.

    modules: the names that HEADWATER_MODULES would have. reload: restart what a changed module concerns.
    """
    settings, port = StackSettings.from_environ(os.environ), ServerSettings.read(os.environ).port
    api, console = f"http://{HOST}:{port}", Console(stderr=True, highlight=False, markup=False)
    settings.make_logs()
    log_to_file(settings.logs / "run.log", console)
    stop_on_signals()
    check_declarations(modules)
    try:
        with ExitStack() as running:
            parts = parts_for(modules)
            console.print(f"starting {parts_text(parts)}")
            stack = running.enter_context(Stack(settings, parts, api_port=port))
            console.print("starting the handler, the projections and the API")
            environment = environment_of(settings, modules, os.environ)
            watched = watched_sources(modules, {**os.environ, **environment}, console)
            services = stack.supervise(service_specs(settings, port, environment, watched))
            running.callback(services.stop)
            running.callback(console.print, "stopping")
            services.start()
            deployment = Deployment(settings.endpoints, {**os.environ, **environment})
            asyncio.run(load(api, modules, deployment, console))
            keys = local_keys(settings, os.environ)
            shared = shared_settings(settings, {**os.environ, **environment, **keys}, modules)
            running.enter_context(published(settings.state, shared, [*secrets({**os.environ, **keys}, modules)]))
            print(page(api, settings, modules), flush=True)
            if reload:
                Reloader(modules, services, console).watch()
            while True:
                signal.pause()
    except KeyboardInterrupt:
        return 0


def stop_on_signals() -> None:
    """Let the first stop signal raise KeyboardInterrupt here."""
    for number in STOPPING:
        signal.signal(number, _leave)


def check_declarations(modules: Sequence[str]) -> None:
    """Load all declarations, so that a mistake in one is reported before a server is started."""
    ViewRegistry.load(modules)
    ProcessRegistry.load(modules)
    ObservationRegistry.load(modules)


def environment_of(settings: StackSettings, modules: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of the services beside the addresses of the stack's servers, which `service_specs` adds.

    Variables about another Kafka are emptied: the stack's own asks nobody who they are.
    """
    missing = {
        name: value
        for name, value in required(settings, modules).items()
        if name not in environ and name + IN_FILE not in environ
    }
    elsewhere = dict.fromkeys((*SECURITY_VARIABLES, "HEADWATER_CONNECT_KAFKA"), "")
    own = {
        **settings.endpoints.environment(),
        LogVariables.variable("environment"): LogVariables.read(environ).environment,
        ACCESS_LOG: "true",
        VARIABLE: ",".join(modules),
    }
    return {**missing, **elsewhere, **own}


def watched_sources(modules: Sequence[str], environ: Mapping[str, str], console: Console) -> list[str]:
    """The sources whose addresses are known; the console shows which variable another one lacks."""
    sources = []
    for name, source in SourceRegistry.load(modules).sources.items():
        try:
            SourceSettings.from_environment(source, environ)
        except SettingError as error:
            console.print(f'connectors of source "{name}" are not watched: {error}', soft_wrap=True)
        else:
            sources.append(name)
    return sources


def log_to_file(path: Path, console: Console) -> None:
    """Log to `path`; the terminal only shows if a part was given up."""
    file = logging.FileHandler(path)
    file.setFormatter(formatter_of(os.environ, "run"))
    logging.getLogger().addHandler(file)
    logging.getLogger().setLevel(logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs a line for every probe and listing
    given_up = _Shown(console)
    given_up.setLevel(logging.ERROR)
    logging.getLogger("headwater.projections.supervision").addHandler(given_up)


async def load(
    api: str, modules: Sequence[str], deployment: Deployment, console: Console, start_s: float = START_S
) -> None:
    """Load the samples among `modules`, and wait until the views show them, so that the first queries find rows.

    Commands of an earlier run are answered from their receipts. start_s: until every view must have a generation.
    """
    wait_for_views(api, start_s)
    async with open_http(api) as http:
        client, rows = Client(http), dict[str, str]()
        for domain in [name for name in modules if name in shipped_domains()]:
            sample = sample_of(domain)
            console.print(f"loading {domain}")
            await sample.prepare(client, deployment)
            for at, requests in enumerate(sample.loading()):
                await client.send_all(requests, [f"load-{domain}-{at}-{number}" for number in range(len(requests))])
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
