"""Java archives by coordinate: a lock with checksums, and a verified cache outside the checkout, filled by Ivy."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, cast
from xml.sax.saxutils import quoteattr

from headwater.projections.spark.setup.java import find_java

_PARALLEL = 4  # Ivy downloads one file after another; a quarter of the list each hides the round trips
_DONE = re.compile(r"^\s*\[SUCCESSFUL \]")
_SYSTEM_TRUST_STORE = Path("/etc/ssl/certs/java/cacerts")
CACHE = "HEADWATER_CACHE"
"""The variable with the folder of downloads."""
SPARK_LOCK = Path(__file__).with_name("jars.lock")


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
    from rich.console import Console  # noqa: PLC0415 - every program of the read side imports this module
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

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
        files: dict[Coordinate, Path] = {}
        for future in running:
            files |= future.result()
    return files


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
    files = {
        Coordinate(file.parts[-4], file.parts[-3], file.parts[-2]): file
        for file in (path.absolute() for path in jars.glob("*/*/*/*.jar"))
    }
    absent = [coordinate for coordinate in wanted if coordinate not in files]
    if process.returncode != 0 or absent:
        named = ", ".join(f"'{coordinate}'" for coordinate in absent[:3]) or "a dependency"
        raise JarError(
            f"could not download {len(absent)} of {len(wanted)} jars ({named}); this needs the network once: "
            f"connect it, name a mirror in HEADWATER_MAVEN, or point HEADWATER_CACHE at a filled cache; see '{log}'"
        )
    return files


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


@dataclass(frozen=True, slots=True)
class Jar:
    """One archive as locked: its coordinate and the sha256 (hex) that its bytes must have."""

    coordinate: Coordinate
    sha256: str

    def path(self, cache: Path) -> Path:
        """Its path in the cache; the checksum is in the path, so an existing file has been verified."""
        return cache / "jars" / self.sha256 / self.coordinate.file_name


@dataclass(frozen=True, slots=True)
class Group:
    """The jars of one classpath: `wants` is written by hand, `jars` by `lock_group`."""

    name: str
    wants: tuple[Coordinate, ...]
    transitive: bool
    jars: tuple[Jar, ...]


def spark_jars() -> list[Path]:
    """What Spark needs beside its own jars, downloaded at first use; raises JarError if a jar is not available."""
    return group_jars(read_lock(SPARK_LOCK)["spark"])


def group_jars(group: Group, cache: Path | None = None) -> list[Path]:
    """The paths of a group's verified jars, in the lock's order; missing ones are downloaded first."""
    cache = cache or cache_directory(os.environ)
    try:
        if any(not jar.path(cache).exists() for jar in group.jars):
            with _locked(cache):
                _download(group, cache)
    except OSError as error:
        raise _unusable(str(cache), error) from error
    return [jar.path(cache) for jar in group.jars]


def cache_directory(environ: Mapping[str, str]) -> Path:
    """The folder of downloads: `HEADWATER_CACHE`, else the platform's cache directory for this user."""
    if chosen := environ.get(CACHE):
        try:
            return Path(chosen).expanduser().resolve()
        except (RuntimeError, OSError) as error:  # such as a user that does not exist
            raise _unusable(chosen, error) from error
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "headwater"
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "headwater"


def _unusable(cache: str, error: Exception) -> JarError:
    reason = getattr(error, "strerror", None) or error
    return JarError(f"cannot keep downloads in {cache[:200]!r} ({reason}): set {CACHE} to a folder that can be written")


def read_lock(path: Path) -> dict[str, Group]:
    """The groups of a lock file by name; raises JarError naming file and entry if one is malformed."""
    try:
        content = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise JarError(f"'{path}' is not a valid jar lock: {error}") from error
    groups = dict[str, Group]()
    for name, table in content.items():
        match table:
            case {"wants": list(wants), "transitive": bool(transitive), "jars": dict(jars)}:
                for coordinate, sha256 in jars.items():
                    if not isinstance(sha256, str) or len(sha256) != 64 or set(sha256) - set("0123456789abcdef"):
                        raise JarError(f"'{coordinate}' in group '{name}' of '{path}' has no sha256: {sha256!r}")
                locked = tuple(Jar(Coordinate.parse(coordinate), sha256) for coordinate, sha256 in jars.items())
                wanted = tuple(Coordinate.parse(str(want)) for want in wants)
                groups[name] = Group(name, wanted, transitive, locked)
            case _:
                raise JarError(f"group '{name}' in '{path}' needs 'wants', 'transitive' and a table 'jars'")
    return groups


def write_lock(path: Path, groups: Iterable[Group], header: str) -> None:
    """Write a lock that `read_lock` reads back unchanged; `header` is its leading comment."""
    lines = [f"# {line}".rstrip() for line in header.splitlines()]
    for group in groups:
        lines += ["", f"[{group.name}]", "wants = ["]
        lines += [f'    "{want}",' for want in group.wants]
        lines += ["]", f"transitive = {str(group.transitive).lower()}", "", f"[{group.name}.jars]"]
        lines += [f'"{jar.coordinate}" = "{jar.sha256}"' for jar in group.jars]
    path.write_text("\n".join(lines) + "\n")


def lock_group(group: Group, cache: Path | None = None) -> Group:
    """Resolve what a group wants and return it with all jars and checksums; the download goes to a scratch folder."""
    cache = cache or cache_directory(os.environ)
    with _locked(cache):
        scratch = cache / "ivy" / f"lock-{group.name}"
        shutil.rmtree(scratch, ignore_errors=True)  # an interrupted run may have wanted something else
        files = retrieve(group.wants, scratch, transitive=group.transitive, label=f"resolving {group.name}")
        jars = tuple(Jar(coordinate, _sha256(file)) for coordinate, file in sorted(files.items()))
        shutil.rmtree(scratch)
    return Group(group.name, group.wants, group.transitive, jars)


def _download(group: Group, cache: Path) -> None:
    missing = [jar for jar in group.jars if not jar.path(cache).exists()]
    if not missing:
        return  # another process downloaded them while this one waited for the lock
    scratch = cache / "ivy" / group.name
    coordinates = [jar.coordinate for jar in missing]
    files = retrieve(coordinates, scratch, transitive=False, label=f"downloading {group.name}")
    for jar in missing:
        file = files[jar.coordinate]
        actual = _sha256(file)
        if actual != jar.sha256:
            shutil.rmtree(scratch)
            raise JarError(
                f"'{jar.coordinate}' has sha256 {actual}, the lock says {jar.sha256}; "
                "nothing was installed: try again, and if it stays so, do not trust what this network serves"
            )
        target = jar.path(cache)
        target.parent.mkdir(parents=True, exist_ok=True)
        file.replace(target)
    shutil.rmtree(scratch)


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def _locked(cache: Path) -> Iterator[None]:
    """Only one process at a time fills the cache; the operating system releases the lock of a dead process."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
