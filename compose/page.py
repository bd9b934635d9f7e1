"""What `make run` prints for other terminals: a line of settings, and commands to try."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from headwater.compose.samples.sample import to_try
from headwater.compose.services import required
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
"""Variables that `replay` reads too, and whose values are no secrets."""
HEAD: Final = """
Headwater is running. The documentation of the API is at {api}/docs.
The console, which shows how everything is and why, is at {api}/console.
Ctrl-C stops it. {where}

To try in another terminal:
"""
WHERE: Final = "Its data is in {state}, its logs are in {logs}."
IN_CONTAINERS: Final = "Its data is in the volumes of its containers."

TO_TRY_ALWAYS: Final = (
    ("the state of the views", "{bin}/replay status"),
    ("rebuild a view while it answers queries", "{bin}/replay rebuild {view}"),
    ("follow the logs", "{logs}"),
)
SERVERS: Final = ("kafka", "postgres", "elasticsearch", "valkey")
PROXIES: Final = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")


def page(
    api: str, settings: StackSettings, environ: Mapping[str, str], modules: Sequence[str], *, in_containers: str = ""
) -> str:
    """Settings and commands to try: each on one line below a comment, so that it can be pasted in a shell.

    environ: the variables of this process. modules: what runs, as in HEADWATER_MODULES. in_containers: the command line
    of compose, if Headwater runs in containers.
    """
    views = ViewRegistry.load(modules).views
    programs = shlex.quote(str(Path(sys.executable).parent))
    names = {
        "api": api,
        "bin": programs,
        "logs": f"{in_containers} logs --follow" if in_containers else f"{programs}/headwater stack logs --follow",
        "view": next((name for name in views if name != "streams"), "streams"),
    }
    where = IN_CONTAINERS if in_containers else WHERE
    lines = [HEAD.format(api=api, where=where.format(state=settings.state, logs=settings.logs))]
    shown = (f"{name}={shlex.quote(value)}" for name, value in exported(settings, environ, modules).items())
    lines += ["# settings for the commands below", f"export {' '.join(shown)}"]
    if hidden := withheld(environ, modules):
        lines.append(f"# set these yourself, because their values may be secret: {' '.join(hidden)}")
    lines.append("")
    samples = [name for name in modules if name in shipped_domains()]
    for title, command in (*(each for name in samples for each in to_try(name)), *TO_TRY_ALWAYS):
        lines += [f"# {title}", command.format(**names)]
    return "\n".join(lines)


def exported(settings: StackSettings, environ: Mapping[str, str], modules: Sequence[str]) -> dict[str, str]:
    """The variables with which the commands of any other terminal reach this deployment and no other one.

    Those of the deployment are always among them, because the terminal may have others. No value is a secret.
    """
    endpoints, hidden = settings.endpoints, withheld(environ, modules)
    given = {name: environ[name] for name in SHARED if environ.get(name)}
    given |= {name: "" for name in SECURITY_VARIABLES if environ.get(name)}  # they are about another Kafka
    given |= {name: "" for each in SERVERS if environ.get(name := f"HEADWATER_{each.upper()}{IN_FILE}")}
    found = given | {
        LogVariables.variable("environment"): LogVariables.read(environ).environment,
        VARIABLE: ",".join(modules),
        LogVariables.variable("state"): str(settings.state),
        **{f"HEADWATER_{name.upper()}": getattr(endpoints, name) for name in SERVERS},
        **required(settings, modules),
    }
    if SourceRegistry.load(modules).sources:
        found["HEADWATER_CONNECT"] = endpoints.connect
    if environ.get(CACHE) or environ.get("XDG_CACHE_HOME"):
        found[CACHE] = str(cache_directory(environ))
    if path := import_path(environ, modules):
        found["PYTHONPATH"] = os.pathsep.join(path)
    if any(environ.get(name) for name in PROXIES):
        found["no_proxy"] = "127.0.0.1"
    return {name: value for name, value in found.items() if name not in hidden}


def withheld(environ: Mapping[str, str], modules: Sequence[str]) -> list[str]:
    """The variables of sources that the user has set; a salt is a secret, and an address may have a password."""
    sources = SourceRegistry.load(modules).sources.values()
    names = [name for each in sources for name in (each.database, f"{each.prefix}_CONNECT_DATABASE", each.salt) if name]
    # the stack has a database of this sample itself, and its address replaces the user's
    own = {"HEADWATER_SHOP_DATABASE"} if "shop" in modules else set()
    set_here = (name for each in dict.fromkeys(names) if each not in own for name in (each, each + IN_FILE))
    return [name for name in set_here if environ.get(name)]


def import_path(environ: Mapping[str, str], modules: Sequence[str]) -> list[str]:
    """The folders that another terminal needs on PYTHONPATH to find the same modules."""
    path = [str(Path(each).absolute()) for each in environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    here = str(Path.cwd())
    # every program finds modules in the current folder, but a terminal is in another one
    if set(modules) - set(shipped_domains()) and sys.path.count(here) < 2:  # unless it is on the path anyway
        path.insert(0, here)
    return list(dict.fromkeys(path))
