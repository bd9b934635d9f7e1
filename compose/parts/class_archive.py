"""Archives of the classes that a server's JVM loads: with its archive, it starts in half the time.

`headwater stack prepare` makes them, once per installation. A server without one starts slower, as does one whose
archive is of another Java.
"""

import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from compose.parts import wheels

FOLDER: Final = Path(sys.prefix) / "share" / "headwater" / "servers"
SILENT: Final = "-Xlog:aot*=off,cds*=off"
"""Otherwise the JVM would log each omitted class, and an archive that does not match."""


def use(server: str, jars: Sequence[Path]) -> tuple[str, ...]:
    """The JVM options to use the archive of a server; none if there is none. jars: its classpath."""
    archive = found(server, jars)
    return (f"-XX:AOTCache={archive}", SILENT) if archive else ()


def found(server: str, jars: Sequence[Path]) -> Path | None:
    """The archive, if it is complete: its name has its size, because a truncated archive would end the JVM."""
    begin = stem(server, jars)
    whole = (each for each in FOLDER.glob(f"{begin}.*.aot") if each.name.split(".")[1] == str(each.stat().st_size))
    return next(whole, None)


def record(into: Path) -> dict[str, str]:
    """The variables with which a JVM writes its archive into a file when it ends in order."""
    options = (os.environ.get("JAVA_TOOL_OPTIONS"), f"-XX:AOTCacheOutput={into}", SILENT)
    return {"JAVA_TOOL_OPTIONS": " ".join(filter(None, options))}


def keep(server: str, jars: Sequence[Path], recorded: Path) -> Path:
    """Make the archive in a file, which is in `FOLDER`, that of a server."""
    return recorded.replace(FOLDER / f"{stem(server, jars)}.{recorded.stat().st_size}.aot")


def stem(server: str, jars: Sequence[Path]) -> str:
    """First part of its name: an archive is valid for one Java and one classpath."""
    java = wheels.java().resolve()
    release = java.parent.parent / "release"
    parts = [str(java), release.read_text() if release.exists() else "", *map(str, jars)]
    return f"{server}-{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:16]}"
