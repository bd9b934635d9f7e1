"""Headwater's own processes beside the local stack: the handler, the projections and the API."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import httpx

from compose.settings import HOST, StackSettings, read_port
from projections.supervision.process import ProcessSpec

PROBE_TIMEOUT_S = 2.0
DEFAULT_API_PORT = 18080
API_PORT_VARIABLE = "HEADWATER_API_PORT"


def api_port(environ: Mapping[str, str]) -> int:
    """The API's port, from HEADWATER_API_PORT; raises SettingError naming it."""
    return read_port(environ, API_PORT_VARIABLE, DEFAULT_API_PORT)


def service_specs(settings: StackSettings, api_port: int, environment: Mapping[str, str]) -> list[ProcessSpec]:
    """How the three run against the stack's servers.

    environment: variables to add for all three, such as HEADWATER_ENVIRONMENT or HEADWATER_MODULES.
    """
    variables = {
        **settings.endpoints.environment(),
        "HEADWATER_STATE": str(settings.state),
        API_PORT_VARIABLE: str(api_port),
        **environment,
    }
    return [
        _spec("commands", settings.logs, variables),
        _spec("projections", settings.logs, variables, stop_timeout_s=30.0),
        _spec("api", settings.logs, variables, ready_url=f"http://{HOST}:{api_port}/health/ready"),
    ]


def _spec(
    module: str,
    logs: Path,
    variables: Mapping[str, str],
    ready_url: str | None = None,
    stop_timeout_s: float = 15.0,
) -> ProcessSpec:
    return ProcessSpec(
        name=module,
        argv=(sys.executable, "-m", module),
        log=logs / f"{module}.log",
        env=variables,
        probe=lambda: None if ready_url is None else _ready(ready_url),
        stop_timeout_s=stop_timeout_s,
        start_timeout_s=120.0,
    )


def _ready(url: str) -> str | None:
    try:
        answer = httpx.get(url, timeout=PROBE_TIMEOUT_S)
    except httpx.HTTPError as error:
        return f"no answer yet: {error}"
    return None if answer.is_success else f"not ready: {answer.text[:200]}"
