"""An archive of the classes that Spark loads: a JVM maps them from it, instead of reading and checking each one.

`projections/spark/prepare.py` makes it once per installation, and every session in this process's own JVM uses it.
Without an archive, or with one of another Java, everything works, but takes some seconds longer to start.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from headwater.projections.spark.setup import archive_files
from headwater.projections.spark.setup.home import spark_home
from headwater.projections.spark.setup.jars import spark_jars
from headwater.projections.spark.setup.java import locate_java

FOLDER: Final = Path(sys.prefix) / "share" / "headwater" / "classes"
ENDING: Final = "jsa"
SILENT: Final = "-Xlog:cds*=off"
"""Otherwise the JVM would log each omitted class, and an archive that does not match."""


def use() -> tuple[str, ...]:
    """The JVM options to use the archive; none if there is no archive."""
    archive = found()
    return (f"-XX:SharedArchiveFile={archive}", "-XX:+VerifySharedSpaces", SILENT) if archive else ()


def found() -> Path | None:
    """The archive, if it is complete."""
    return archive_files.find_whole(FOLDER, stem(), ENDING)


def keep(made: Path) -> Path:
    """Make a file in `FOLDER` the archive; returns it."""
    return archive_files.keep(made, stem(), ENDING)


def stem() -> str:
    """First part of its name: an archive is valid for one Java and one class path."""
    import pyspark  # noqa: PLC0415 - half a second that only those who need Spark pay

    return archive_files.digest(locate_java(), [spark_home(), pyspark.__version__, *spark_jars()])
