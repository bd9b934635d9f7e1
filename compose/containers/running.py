"""`headwater run --containers`: the compose file's servers and programs, with the samples loaded, until Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Final

from rich.console import Console

from headwater.api.settings import ServerSettings
from headwater.compose.errors import ComposeError, NoEngine
from headwater.compose.page import page, secrets, shared_settings
from headwater.compose.run import STOPPING, check_declarations, load, stop_on_signals
from headwater.compose.samples.sample import Deployment
from headwater.compose.settings import COMPOSE_FILE, HOST, StackSettings
from headwater.eventlog.programs.modules import VARIABLE, shipped_domains
from headwater.eventlog.programs.running_deployment import published
from headwater.eventlog.settings import LogVariables

IMAGE_VARIABLE: Final = "HEADWATER_IMAGE"
ENGINES: Final = (
    (("docker", "compose"), ("docker", "info")),
    (("podman", "compose"), ("podman", "info")),
    (("podman-compose",), ("podman", "info")),
)
"""The commands that run a compose file, each with the one that fails if its engine does not answer."""
PROFILE: Final = ("--profile", "app")
ANSWER_S: Final = 30.0
START_S: Final = 900.0
"""Images may have to be fetched, and the read side's first start takes longest."""


def find_engine() -> tuple[str, ...]:
    """The first command of ENGINES that answers; raises NoEngine if none does."""
    tried = {}
    for command, engine in ENGINES:
        name = " ".join(command)
        # it must know profiles: Debian's podman-compose 1.0 does not
        for asked in ((*command, *PROFILE, "version"), engine):
            if (said := _failure(asked)) is not None:
                tried[name] = said
                break
        else:
            return command
    raise NoEngine(tried)


def _failure(command: Sequence[str]) -> str | None:
    """Why a command does not work here; None if it does."""
    if shutil.which(command[0]) is None:
        return "is not installed"
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S, check=False)
    except subprocess.TimeoutExpired:
        return f"{' '.join(command)} did not answer within {ANSWER_S:.0f} s"
    if ran.returncode == 0:
        return None
    lines = (ran.stderr or ran.stdout).strip().splitlines()
    return f"{' '.join(command)}: {lines[-1] if lines else f'exit code {ran.returncode}'}"


def variables(modules: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """What the compose file reads; raises ComposeError if modules of the user are in no image that is named.

    modules: as `read_modules` returns them.
    """
    own = [name for name in modules if name not in shipped_domains()]
    if own and not environ.get(IMAGE_VARIABLE):
        raise ComposeError(
            f"the image headwater:{version('headwater')} has the samples and not {', '.join(own)}: build an image with "
            f"your package, as docs/containers.md says, and set {IMAGE_VARIABLE} to its name"
        )
    return {
        VARIABLE: ",".join(modules),
        LogVariables.variable("environment"): LogVariables.read(environ).environment,
    }


def main(modules: Sequence[str]) -> int:
    """Start everything, load the samples, print what to try, and stop all containers at SIGINT or SIGTERM.

    modules: the names that HEADWATER_MODULES would have. Volumes are kept, as the local stack's data are.
    """
    settings, api = StackSettings.from_environ(os.environ), f"http://{HOST}:{ServerSettings.read(os.environ).port}"
    console = Console(stderr=True, highlight=False, markup=False)
    stop_on_signals()
    given = {**os.environ, **variables(modules, os.environ)}
    check_declarations(modules)
    compose = [*find_engine(), "--file", str(COMPOSE_FILE), *PROFILE]
    try:
        console.print(f"starting containers with {compose[0]}")
        _run([*compose, "up", "--detach"], given)
        deployment = Deployment(settings.endpoints, {**given, **settings.endpoints.environment()})
        try:
            asyncio.run(load(api, modules, deployment, console, START_S))
        except ComposeError:
            _run([*compose, "logs", "--tail", "20"], given, shown=True)
            raise
        settings.state.mkdir(parents=True, exist_ok=True)
        with published(settings.state, shared_settings(settings, given, modules), secrets(given, modules)):
            print(page(api, settings, modules, in_containers=" ".join(compose)), flush=True)
            while True:
                signal.pause()
    except KeyboardInterrupt:
        return 0
    finally:
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)
        console.print("stopping")
        _run([*compose, "down"], given)


def _run(command: Sequence[str], environ: Mapping[str, str], *, shown: bool = False) -> None:
    """Run it in a session of its own, so that Ctrl-C does not end it before its work is done. shown: what it prints."""
    output = None if shown else subprocess.DEVNULL
    ran = subprocess.Popen(command, env=environ, stdout=output, start_new_session=True)
    if ran.wait() != 0:
        raise ComposeError(f"'{' '.join(command)}' ended with exit code {ran.returncode}; see its output above")
