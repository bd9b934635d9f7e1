"""Java archives by coordinate: a lock with checksums, and a verified cache outside the checkout."""

import fcntl
import hashlib
import os
import shutil
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headwater.projections.spark.setup import ivy
from headwater.projections.spark.setup.ivy import Coordinate, JarError

__all__ = [
    "Coordinate",
    "Group",
    "Jar",
    "JarError",
    "group_jars",
    "lock_group",
    "read_lock",
    "spark_jars",
    "write_lock",
]

CACHE = "HEADWATER_CACHE"
"""The variable with the folder of downloads."""
SPARK_LOCK = Path(__file__).with_name("jars.lock")


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
    return {name: _read_group(path, name, table) for name, table in content.items()}


def _read_group(path: Path, name: str, table: Mapping[str, object]) -> Group:
    match table:
        case {"wants": list(wants), "transitive": bool(transitive), "jars": dict(jars)}:
            locked = tuple(_read_jar(path, name, key, value) for key, value in jars.items())
            return Group(name, tuple(Coordinate.parse(str(want)) for want in wants), transitive, locked)
    raise JarError(f"group '{name}' in '{path}' needs 'wants', 'transitive' and a table 'jars'")


def _read_jar(path: Path, group: str, coordinate: str, sha256: object) -> Jar:
    if not isinstance(sha256, str) or len(sha256) != 64 or set(sha256) - set("0123456789abcdef"):
        raise JarError(f"'{coordinate}' in group '{group}' of '{path}' has no sha256: {sha256!r}")
    return Jar(Coordinate.parse(coordinate), sha256)


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
        found = ivy.retrieve(group.wants, scratch, transitive=group.transitive, label=f"resolving {group.name}")
        jars = tuple(Jar(coordinate, _sha256(file)) for coordinate, file in sorted(found.items()))
        shutil.rmtree(scratch)
    return Group(group.name, group.wants, group.transitive, jars)


def _download(group: Group, cache: Path) -> None:
    missing = [jar for jar in group.jars if not jar.path(cache).exists()]
    if not missing:
        return  # another process downloaded them while this one waited for the lock
    scratch = cache / "ivy" / group.name
    coordinates = [jar.coordinate for jar in missing]
    found = ivy.retrieve(coordinates, scratch, transitive=False, label=f"downloading {group.name}")
    for jar in missing:
        file = found[jar.coordinate]
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
