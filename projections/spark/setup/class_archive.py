"""An archive of the classes that Spark loads: a JVM maps them from it, and need not read and check each again.

Made once per installation by `projections/spark/prepare.py` and kept in it, used by every session in this process's own
JVM. Without one, or with one of another Java, all works the same, but takes some seconds more to start.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Final

from projections.spark.setup.jars import spark_jars
from projections.spark.setup.java import locate_java

FOLDER: Final = Path(sys.prefix) / "share" / "headwater" / "classes"
SILENT: Final = "-Xlog:cds*=off"
"""The JVM would tell of each class that it leaves out, and of an archive that does not fit."""


def use() -> tuple[str, ...]:
    """The JVM's options with which it takes classes from the archive; none where there is no archive."""
    archive = found()
    return (f"-XX:SharedArchiveFile={archive}", "-XX:+VerifySharedSpaces", SILENT) if archive else ()


def found() -> Path | None:
    """The archive, where it is whole: one that was cut off, as its name's number of bytes tells, would end the JVM."""
    whole = (each for each in FOLDER.glob(f"{stem()}.*.jsa") if each.name.split(".")[1] == str(each.stat().st_size))
    return next(whole, None)


def stem() -> str:
    """First part of its name: an archive fits one Java and one class path."""
    import pyspark  # noqa: PLC0415 - half a second that only those who need Spark pay

    java = locate_java().resolve()
    release = java.parent.parent / "release"
    parts = [str(java), release.read_text() if release.exists() else "", pyspark.__path__[0], pyspark.__version__]
    return hashlib.sha256("\n".join([*parts, *map(str, spark_jars())]).encode()).hexdigest()[:16]
