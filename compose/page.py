"""What `make run` has for other terminals: the settings of the deployment, and commands to try."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from headwater.compose.samples.sample import to_try
from headwater.compose.settings import StackSettings
from headwater.eventlog.capturing import SourceRegistry
from headwater.eventlog.programs.logs import LOG_FORMAT, LOG_LEVEL
from headwater.eventlog.programs.modules import VARIABLE, shipped_domains
from headwater.eventlog.programs.variables import IN_FILE
from headwater.eventlog.security import SECURITY_VARIABLES
from headwater.eventlog.settings import LogVariables
from headwater.projections.registry import ViewRegistry
from headwater.projections.spark.session import SparkVariables
from headwater.projections.spark.setup.jars import CACHE, cache_directory

SHARED: Final = (
    *(LogVariables.variable(field) for field in LogVariables.model_fields),
    *(SparkVariables.variable(field) for field in SparkVariables.model_fields),
    LOG_LEVEL,
    LOG_FORMAT,
    "SPARK_MASTER",
    "JAVA_HOME",
)
"""Variables that other programs read, too, and whose values are no secrets."""
HEAD: Final = """
Headwater is running. The documentation of the API is at {api}/docs.
The console, which shows how everything is and why, is at {api}/console.
Ctrl-C stops it. {where}

To try in another terminal:
"""
WHERE: Final = "Its data is in {state}, its logs are in {logs}."
IN_CONTAINERS: Final = "Its data is in the volumes of its containers."

SETTINGS: Final = 'eval "$({bin}/headwater env {state})"'
TO_TRY_ALWAYS: Final = (
    ("the state of the views", "{bin}/replay status"),
    ("rebuild a view while it answers queries", "{bin}/replay rebuild {view}"),
    ("follow the logs", "{logs}"),
)
KEYS: Final = ("HEADWATER_KEYS", "HEADWATER_MASTER_KEY")
PROXIES: Final = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")


def page(api: str, settings: StackSettings, modules: Sequence[str], *, in_containers: str = "") -> str:
    """Commands to try: each on one line below a comment, so that it can be pasted in a shell.

    modules: what runs, as in HEADWATER_MODULES. in_containers: the command line of compose, if Headwater runs in
    containers.
    """
    views = ViewRegistry.load(modules).views
    programs = shlex.quote(str(Path(sys.executable).parent))
    names = {
        "api": api,
        "bin": programs,
        "logs": f"{in_containers} logs --follow" if in_containers else f"{programs}/headwater stack logs --follow",
        "state": shlex.quote(str(settings.state)),
        "view": next((name for name in views if name != "streams"), "streams"),
    }
    where = IN_CONTAINERS if in_containers else WHERE
    lines = [HEAD.format(api=api, where=where.format(state=settings.state, logs=settings.logs))]
    lines += ["# once per terminal; not needed in this folder", SETTINGS.format(**names), ""]
    samples = [name for name in modules if name in shipped_domains()]
    for title, command in (*(example for name in samples for example in to_try(name)), *TO_TRY_ALWAYS):
        lines += [f"# {title}", command.format(**names)]
    return "\n".join(lines)


def shared_settings(settings: StackSettings, environ: Mapping[str, str], modules: Sequence[str]) -> dict[str, str]:
    """The variables with which other programs on this machine reach this deployment, whatever a terminal has set.

    environ: the variables of its processes, with those of `environment_of`.
    """
    given = {name: environ[name] for name in (*SHARED, *secrets(environ, modules)) if environ.get(name)}
    elsewhere = {name: "" for name in SECURITY_VARIABLES if name in environ}
    elsewhere |= {name + IN_FILE: "" for name in settings.endpoints.environment() if environ.get(name + IN_FILE)}
    shared = given | elsewhere | settings.endpoints.environment(with_connect=bool(SourceRegistry.load(modules).sources))
    shared |= {VARIABLE: ",".join(modules), LogVariables.variable("state"): str(settings.state)}
    if environ.get(CACHE) or environ.get("XDG_CACHE_HOME"):
        shared[CACHE] = str(cache_directory(environ))
    if path := import_path(environ, modules):
        shared["PYTHONPATH"] = os.pathsep.join(path)
    if any(environ.get(name) for name in PROXIES):
        shared["no_proxy"] = "127.0.0.1"
    return shared


def secrets(environ: Mapping[str, str], modules: Sequence[str]) -> list[str]:
    """The variables of this deployment that may hold secrets; an address of a database may have a password."""
    sources = SourceRegistry.load(modules).sources.values()
    names = [
        name
        for source in sources
        for name in (source.database, f"{source.prefix}_CONNECT_DATABASE", source.salt)
        if name
    ]
    every = (variable for name in (*dict.fromkeys(names), *KEYS) for variable in (name, name + IN_FILE))
    return [variable for variable in every if environ.get(variable)]


def import_path(environ: Mapping[str, str], modules: Sequence[str]) -> list[str]:
    """The folders that another terminal needs on PYTHONPATH to find the same modules."""
    path = [str(Path(folder).absolute()) for folder in environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    here = str(Path.cwd())
    # every program finds modules in the current folder, but a terminal is in another one
    if set(modules) - set(shipped_domains()) and sys.path.count(here) < 2:  # unless it is on the path anyway
        path.insert(0, here)
    return list(dict.fromkeys(path))
