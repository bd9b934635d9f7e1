"""Downloads jars with the Ivy in pyspark: it knows the address of Maven Central."""

import os
import re
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, cast
from xml.sax.saxutils import quoteattr

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from headwater.projections.spark.setup.java import find_java

_PARALLEL = 4  # Ivy downloads one file after another; a quarter of the list each hides the round trips
_DONE = re.compile(r"^\s*\[SUCCESSFUL \]")
_SYSTEM_TRUST_STORE = Path("/etc/ssl/certs/java/cacerts")


class JarError(RuntimeError):
    """A jar is not available or does not match the lock."""


@dataclass(frozen=True, slots=True, order=True)
class Coordinate:
    """The name of an archive in a Maven repository."""

    organisation: str
    module: str
    version: str

    @classmethod
    def parse(cls, text: str) -> "Coordinate":
        """Read `organisation:module:version`."""
        parts = text.split(":")
        if len(parts) != 3 or not all(parts):
            raise JarError(f"'{text}' is not a coordinate: write organisation:module:version")
        return cls(*parts)

    @property
    def file_name(self) -> str:
        """The archive's file name in every Maven repository."""
        return f"{self.module}-{self.version}.jar"

    def __str__(self) -> str:
        return f"{self.organisation}:{self.module}:{self.version}"


def retrieve(wanted: Sequence[Coordinate], scratch: Path, *, transitive: bool, label: str) -> dict[Coordinate, Path]:
    """Download what is wanted into `scratch` and return the files by coordinate.

    With `transitive`, the dependencies are downloaded too. A scratch folder of an interrupted run is continued. Raises
    JarError if something is missing, for example because the machine is offline.
    """
    # Ivy's cache is for one process, and a dependency graph must be resolved whole.
    parts = 1 if transitive else min(_PARALLEL, len(wanted))
    shares = [wanted[index::parts] for index in range(parts)]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress, ThreadPoolExecutor(parts) as pool:
        task = progress.add_task(label, total=None if transitive else len(wanted))
        running = [
            pool.submit(_run, share, scratch / str(index), transitive, lambda: progress.advance(task))
            for index, share in enumerate(shares)
        ]
        found: dict[Coordinate, Path] = {}
        for future in running:
            found |= future.result()
    return found


def _run(
    wanted: Sequence[Coordinate], scratch: Path, transitive: bool, on_jar: Callable[[], None]
) -> dict[Coordinate, Path]:
    scratch.mkdir(parents=True, exist_ok=True)
    settings, module, log = scratch / "settings.xml", scratch / "ivy.xml", scratch / "ivy.log"
    settings.write_text(_settings(scratch / "cache", use_poms=transitive))
    module.write_text(_module(wanted, transitive))
    jars = scratch / "jars"
    pattern = f"{jars}/[organisation]/[module]/[revision]/[module]-[revision].[ext]"
    command = [*_ivy(), "-settings", str(settings), "-ivy", str(module), "-retrieve", pattern]
    with (
        log.open("w") as sink,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process,
    ):
        for line in cast(IO[str], process.stdout):
            sink.write(line)
            if _DONE.match(line):
                on_jar()
    found = {
        Coordinate(file.parts[-4], file.parts[-3], file.parts[-2]): file
        for file in (path.absolute() for path in jars.glob("*/*/*/*.jar"))
    }
    absent = [coordinate for coordinate in wanted if coordinate not in found]
    if process.returncode != 0 or absent:
        named = ", ".join(f"'{coordinate}'" for coordinate in absent[:3]) or "a dependency"
        raise JarError(
            f"could not download {len(absent)} of {len(wanted)} jars ({named}); this needs the network once: "
            f"connect it, name a mirror in HEADWATER_MAVEN, or point HEADWATER_CACHE at a filled cache; see '{log}'"
        )
    return found


def _ivy() -> list[str]:
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise JarError("pyspark is not installed, and Ivy comes with it; run 'make setup'")
    jars = sorted((Path(pyspark.origin).parent / "jars").glob("ivy-[0-9]*.jar"))
    if not jars:
        raise JarError(f"no Ivy next to '{pyspark.origin}': reinstall pyspark")
    # A Java that is not a system package lacks the machine's own certificate authorities.
    trust = [f"-Djavax.net.ssl.trustStore={_SYSTEM_TRUST_STORE}"] if _SYSTEM_TRUST_STORE.exists() else []
    return [str(find_java()), *trust, "-cp", str(jars[-1]), "org.apache.ivy.Main"]


def _settings(cache: Path, *, use_poms: bool) -> str:
    mirror = os.environ.get("HEADWATER_MAVEN", "")
    if mirror and not re.fullmatch(r"[a-z]+://[^\s\x00-\x1f\ud800-\udfff]+", mirror):
        raise JarError(
            "environment variable HEADWATER_MAVEN is no URL: set it to a mirror of Maven Central, or to nothing"
        )
    root = f" root={quoteattr(mirror)}" if mirror else ""
    return f"""<ivysettings>
  <settings defaultResolver="maven"/>
  <caches defaultCacheDir={quoteattr(str(cache))}/>
  <resolvers><ibiblio name="maven" m2compatible="true" usepoms="{str(use_poms).lower()}"{root}/></resolvers>
</ivysettings>
"""


def _module(wanted: Sequence[Coordinate], transitive: bool) -> str:
    # Without POM files (a locked download reads none) a module has only Ivy's own 'default' configuration.
    conf = "default->compile(*),master(*),runtime(*)" if transitive else "default->default"
    # Forced: a wanted version stays, even if another module asks for a later one.
    dependencies = "\n".join(
        f"    <dependency org={quoteattr(want.organisation)} name={quoteattr(want.module)}"
        f' rev={quoteattr(want.version)} conf="{conf}" transitive="{str(transitive).lower()}" force="true"/>'
        for want in wanted
    )
    return f"""<ivy-module version="2.0">
  <info organisation="headwater" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""
