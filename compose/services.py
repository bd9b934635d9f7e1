"""Headwater's own processes for the local stack: the handler, the projections, the API and the watch over sources."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import httpx

from api.settings import ApiVariables
from compose.settings import HOST, StackSettings
from eventlog.settings import LogSettings
from projections.parts import EVERYTHING, LIVE_START_S, ready_file
from projections.supervision.process import ProcessSpec

PROBE_TIMEOUT_S = 2.0


def api_port(environ: Mapping[str, str]) -> int:
    """The API's port, from HEADWATER_API_PORT; raises SettingError naming it."""
    return ApiVariables.read(environ).api_port


def required(settings: StackSettings, modules: Sequence[str]) -> dict[str, str]:
    """The variables without defaults: the database to capture, and the salt of its hashes, which is no secret here."""
    if "shop" not in modules:
        return {}
    return {"HEADWATER_SHOP_DATABASE": settings.endpoints.shop_database, "HEADWATER_SHOP_SALT": "local"}


def service_specs(
    settings: StackSettings, api_port: int, environment: Mapping[str, str], watched: Sequence[str] = ()
) -> list[ProcessSpec]:
    """How to run the processes with the stack's servers.

    environment: additional variables for all, such as HEADWATER_ENVIRONMENT or HEADWATER_MODULES. watched: names of
    sources whose connectors are restarted if they fail; without any, no process is needed for that.
    """
    variables = {
        **settings.endpoints.environment(),
        "HEADWATER_STATE": str(settings.state),
        ApiVariables.variable("api_port"): str(api_port),
        **environment,
    }
    log = LogSettings.from_environment(variables)
    ready = ready_file(log, EVERYTHING)
    specs = [
        _spec("commands", settings.logs, variables),
        replace(
            _spec("projections", settings.logs, variables),
            prepare=lambda: ready.unlink(missing_ok=True),
            probe=lambda: None if ready.exists() else "Spark is starting",
            start_timeout_s=2 * LIVE_START_S,
            stop_timeout_s=30.0,
        ),
        replace(_spec("api", settings.logs, variables), probe=lambda: _ready(f"http://{HOST}:{api_port}/health/ready")),
    ]
    if watched:
        watch = _spec("sources", settings.logs, variables)
        specs.append(replace(watch, argv=(sys.executable, "-m", "eventlog.sources", "watch", *watched)))
    return specs


def _spec(module: str, logs: Path, variables: Mapping[str, str]) -> ProcessSpec:
    return ProcessSpec(
        name=module,
        argv=(sys.executable, "-m", module),
        log=logs / f"{module}.log",
        env=variables,
        probe=lambda: None,
    )


def _ready(url: str) -> str | None:
    try:
        answer = httpx.get(url, timeout=PROBE_TIMEOUT_S)
    except httpx.HTTPError as error:
        return f"no answer yet: {error}"
    return None if answer.is_success else f"not ready: {answer.text[:200]}"
