"""Archives of the classes that a server's JVM loads: with its archive, it starts in half the time.

`headwater stack prepare` makes them, once per installation. A server without one starts slower, as does one whose
archive is of another Java.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headwater.compose.parts import wheels
from headwater.projections.spark.setup import archive_files

FOLDER: Final = Path(sys.prefix) / "share" / "headwater" / "servers"
ENDING: Final = "aot"
SILENT: Final = "-Xlog:aot*=off,cds*=off"
"""Otherwise the JVM would log each omitted class, and an archive that does not match."""


def use(server: str, jars: Sequence[Path]) -> tuple[str, ...]:
    """The JVM options to use the archive of a server; none if there is none. jars: its classpath."""
    archive = found(server, jars)
    return (f"-XX:AOTCache={archive}", SILENT) if archive else ()


def found(server: str, jars: Sequence[Path]) -> Path | None:
    """The archive, if it is complete."""
    return archive_files.find_whole(FOLDER, stem(server, jars), ENDING)


def record(into: Path) -> dict[str, str]:
    """The variables with which a JVM writes its archive into a file when it ends in order."""
    options = (os.environ.get("JAVA_TOOL_OPTIONS"), f"-XX:AOTCacheOutput={into}", SILENT)
    return {"JAVA_TOOL_OPTIONS": " ".join(filter(None, options))}


def keep(server: str, jars: Sequence[Path], recorded: Path) -> Path:
    """Make the archive in a file, which is in `FOLDER`, that of a server."""
    return archive_files.keep(recorded, stem(server, jars), ENDING)


def stem(server: str, jars: Sequence[Path]) -> str:
    """First part of its name: an archive is valid for one Java and one classpath."""
    return f"{server}-{archive_files.digest(wheels.java(), jars)}"
