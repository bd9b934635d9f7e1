"""What `make run` prints for other terminals: a line of settings, and commands to try."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from compose.samples.shipped import to_try
from compose.services import required
from compose.settings import StackSettings
from eventlog.capturing import SourceRegistry
from eventlog.programs.logs import LOG_FORMAT, LOG_LEVEL
from eventlog.programs.modules import VARIABLE, shipped_domains
from eventlog.security import SECURITY_VARIABLES
from eventlog.settings import LogVariables
from projections.registry import ViewRegistry
from projections.spark.session import SparkVariables
from projections.spark.setup.jars import CACHE, cache_directory

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
Ctrl-C stops it. Its data is in {state}, its logs are in {logs}.

To try in another terminal:
"""

TO_TRY_ALWAYS: Final = (
    ("the state of the views", "{bin}/replay status"),
    ("rebuild a view while it answers queries", "{bin}/replay rebuild {view}"),
    ("follow the logs", "{bin}/headwater stack logs --follow"),
)
PACKAGES: Final = ("api", "commands", "compose", "eventlog", "headwater", "projections", "replay")
ROOT: Final = Path(__file__).parents[1]
"""Where these are."""
SERVERS: Final = ("kafka", "postgres", "elasticsearch", "valkey")
PROXIES: Final = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")


def page(api: str, settings: StackSettings, environ: Mapping[str, str], modules: Sequence[str]) -> str:
    """Settings and commands to try: each on one line below a comment, so that it can be pasted in a shell.

    environ: the variables of this process. modules: what runs, as in HEADWATER_MODULES.
    """
    views = ViewRegistry.load(modules).views
    names = {
        "api": api,
        "bin": shlex.quote(str(Path(sys.executable).parent)),
        "view": next((name for name in views if name != "streams"), "streams"),
    }
    lines = [HEAD.format(api=api, state=settings.state, logs=settings.logs)]
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
    return [name for name in dict.fromkeys(names) if environ.get(name) and name not in own]


def import_path(environ: Mapping[str, str], modules: Sequence[str]) -> list[str]:
    """The folders that another terminal needs on PYTHONPATH to find the same modules."""
    path = [str(Path(each).absolute()) for each in environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    here = str(Path.cwd())
    # every program finds modules in the current folder, but a terminal is in another one
    if set(modules) - set(shipped_domains()) and sys.path.count(here) < 2:  # unless it is on the path anyway
        path.insert(0, here)
        if any((Path(here) / name / "__init__.py").is_file() for name in PACKAGES) and Path(here) != ROOT:
            path.insert(0, str(ROOT))
    return list(dict.fromkeys(path))
