"""An archive of the classes that Spark loads: a JVM maps them from it, instead of reading and checking each one.

`projections/spark/prepare.py` makes it once per installation, and every session in this process's own JVM uses it.
Without an archive, or with one of another Java, everything works, but takes some seconds longer to start.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Final

from projections.spark.setup.home import spark_home
from projections.spark.setup.jars import spark_jars
from projections.spark.setup.java import locate_java

FOLDER: Final = Path(sys.prefix) / "share" / "headwater" / "classes"
SILENT: Final = "-Xlog:cds*=off"
"""Otherwise the JVM would log each omitted class, and an archive that does not match."""


def use() -> tuple[str, ...]:
    """The JVM options to use the archive; none if there is no archive."""
    archive = found()
    return (f"-XX:SharedArchiveFile={archive}", "-XX:+VerifySharedSpaces", SILENT) if archive else ()


def found() -> Path | None:
    """The archive, if it is complete: its name has its size, because a truncated archive would end the JVM."""
    whole = (each for each in FOLDER.glob(f"{stem()}.*.jsa") if each.name.split(".")[1] == str(each.stat().st_size))
    return next(whole, None)


def stem() -> str:
    """First part of its name: an archive is valid for one Java and one class path."""
    import pyspark  # noqa: PLC0415 - half a second that only those who need Spark pay

    java = locate_java().resolve()
    release = java.parent.parent / "release"
    parts = [str(java), release.read_text() if release.exists() else "", str(spark_home()), pyspark.__version__]
    return hashlib.sha256("\n".join([*parts, *map(str, spark_jars())]).encode()).hexdigest()[:16]
