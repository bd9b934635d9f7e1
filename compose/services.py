"""Headwater's own processes for the local stack: the handler, the projections, the API and the watch over sources."""

from __future__ import annotations

import json
import os
import secrets
import ssl
import subprocess
import sys
import time
import uuid
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import httpx

from headwater.api.settings import ServerSettings
from headwater.api.tls import CERTIFICATE, PRIVATE_KEY
from headwater.compose.errors import ComposeError
from headwater.compose.samples.sample import authorization
from headwater.compose.settings import HOST, StackSettings
from headwater.eventlog.programs.metrics import MetricsVariables
from headwater.eventlog.programs.modules import SAFE_PATH
from headwater.eventlog.programs.variables import IN_FILE
from headwater.eventlog.settings import LogSettings
from headwater.projections.running_parts import EVERYTHING, LIVE_START_S, ready_file
from headwater.projections.supervision.process import ProcessSpec

PROBE_TIMEOUT_S = 2.0
TLS_VARIABLES: Final = (CERTIFICATE, PRIVATE_KEY)
METRICS_PORTS: Final = {"commands": 0, "projections": 20, "api": 40, "sources": 60}
"""What is added to HEADWATER_METRICS_PORT for each program, which may use several ports from there on."""
_NO_AUTHORITIES: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For addresses without encryption: httpx would read the certificates of all authorities for each request, in 25 ms of
the processor, ten times a second while the API starts."""
API_INSTANCE: Final = "HEADWATER_API_INSTANCE"
"""Gives an API the name that its readiness shows, so that whoever has started it knows which one answers."""


def required(settings: StackSettings, modules: Sequence[str]) -> dict[str, str]:
    """The variables without defaults: the database to capture, and the salt of its hashes, which is no secret here."""
    if "shop" not in modules:
        return {}
    return {"HEADWATER_SHOP_DATABASE": settings.endpoints.shop_database, "HEADWATER_SHOP_SALT": "local"}


def local_keys(settings: StackSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """The store of keys of persons and its master key, which only personal fields need, unless `environ` has others."""
    if any(environ.get(name + end) for name in ("HEADWATER_KEYS", "HEADWATER_MASTER_KEY") for end in ("", IN_FILE)):
        return {}
    file = settings.state / "master_key"  # made once, and kept with the stack's data
    if not file.exists():
        settings.state.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as key_file:
                key_file.write(b64encode(secrets.token_bytes(32)))
    return {"HEADWATER_KEYS": settings.endpoints.postgres, "HEADWATER_MASTER_KEY": file.read_text()}


def service_specs(
    settings: StackSettings, api_port: int, environment: Mapping[str, str], watched: Sequence[str] = ()
) -> list[ProcessSpec]:
    """How to run the processes with the stack's servers.

    environment: additional variables for all, such as HEADWATER_ENVIRONMENT or HEADWATER_MODULES. watched: names of
    sources whose connectors are restarted if they fail; without any, no process is needed for that.
    """
    variables = {
        **settings.endpoints.environment(),
        **{name + IN_FILE: "" for name in settings.endpoints.environment()},  # of other servers
        "HEADWATER_STATE": str(settings.state),
        **local_keys(settings, {**os.environ, **environment}),
        ServerSettings.variable("port"): str(api_port),
        **environment,
    }
    log = LogSettings.from_environment(variables)
    live, instance = ready_file(log, EVERYTHING), uuid.uuid4().hex
    specs = [
        _spec("commands", settings.logs, variables),
        replace(
            _spec("projections", settings.logs, variables),
            prepare=lambda: live.unlink(missing_ok=True),
            probe=lambda: None if live.exists() else "Spark is starting",
            start_timeout_s=2 * LIVE_START_S,
            stop_timeout_s=30.0,
        ),
        replace(
            # without encryption: it listens on this machine only
            _spec("api", settings.logs, {**variables, **dict.fromkeys(TLS_VARIABLES, ""), API_INSTANCE: instance}),
            probe=lambda: ready(f"http://{HOST}:{api_port}/health/ready", log.environment, instance),
        ),
    ]
    if watched:
        watch = _spec("sources", settings.logs, variables)
        specs.append(
            replace(watch, argv=(sys.executable, *SAFE_PATH, "-m", "headwater.eventlog.capturing", "watch", *watched))
        )
    return specs


def _spec(module: str, logs: Path, variables: Mapping[str, str]) -> ProcessSpec:
    if (first := MetricsVariables.read({**os.environ, **variables}).metrics_port) is not None:
        port = str(first + METRICS_PORTS[module])
        variables = {**variables, MetricsVariables.variable("metrics_port"): port}
    return ProcessSpec(
        name=module,
        argv=(sys.executable, *SAFE_PATH, "-m", f"headwater.{module}"),
        log=logs / f"{module}.log",
        env=variables,
        probe=lambda: None,
    )


def ready(url: str, environment: str, instance: str) -> str | None:
    """None if the API of this environment that was started as `instance` is ready, else the reason.

    Another one, which took the port, would get the commands of samples. An API that shows neither is taken as it is.
    """
    try:
        answer = httpx.get(url, timeout=PROBE_TIMEOUT_S, trust_env=False, verify=_NO_AUTHORITIES)
    except httpx.HTTPError as error:
        return f"no answer yet: {error}"
    try:
        document = answer.json()
    except ValueError:
        document = None
    shown = document if isinstance(document, dict) else {}
    for name, expected in (("environment", environment), ("instance", instance)):
        if (shown_value := shown.get(name, expected)) != expected:
            return f'another API answers at {url}: its {name} is "{shown_value}", not "{expected}"; stop it'
    return None if answer.is_success else f"not ready: {answer.text[:200]}"


def wait_for_views(api: str, timeout_s: float = 300.0) -> None:
    """Return when every view has a live generation; raises ComposeError if one has none in time."""
    deadline, missing = time.monotonic() + timeout_s, "no answer"
    while time.monotonic() < deadline:
        try:
            answer = httpx.get(f"{api}/views", trust_env=False, headers=authorization(os.environ))
        except httpx.TransportError:  # a container that starts
            time.sleep(0.2)
            continue
        if answer.is_success:
            missing = ", ".join(view["name"] for view in answer.json()["views"] if not view.get("generation"))
            if not missing:
                return
        time.sleep(0.2)
    raise ComposeError(f"no live generation after {timeout_s:.0f} s: {missing}; see projections.log")


def replay(variables: Mapping[str, str], *words: str) -> dict[str, Any]:
    """Run `replay` with these words and `--json`; its document. Raises ComposeError if it fails."""
    ran = subprocess.run(
        [sys.executable, *SAFE_PATH, "-m", "headwater.replay", *words, "--json"],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise ComposeError(f"replay {' '.join(words)} ended with {ran.returncode}: {ran.stderr or ran.stdout}")
    document: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
    return document
