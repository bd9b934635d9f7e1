"""`python slim.py SITE_PACKAGES`: removes from the libraries of an image what no program of Headwater loads there.

Standard library only, as it runs in a stage of the image. A part that is missing is no error: a library may lose it.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from zipfile import ZIP_DEFLATED, ZipFile

UNUSED: Final = (
    "pandas/tests",
    "numpy/*/tests",
    "pyarrow/tests",
    "pyarrow/include",
    "pyarrow/*flight*",  # a protocol that nothing here speaks
    "pyspark/examples",
    "pyspark/jars/connect-repl",  # Scala's shell, and the server, of Spark Connect
    "pyspark/jars/spark-connect_2*.jar",
    "pyspark/jars/spark-repl_*.jar",  # Scala's shell of Spark itself
    "pyspark/jars/scala-compiler-*.jar",
    "pyspark/jars/spark-hive*.jar",  # a session has Spark's own catalog; what it needs to read ORC files stays
    "pyspark/jars/hive-beeline-*.jar",
    "pyspark/jars/hive-exec-*.jar",
    "pyspark/jars/hive-jdbc-*.jar",
    "pyspark/jars/hive-metastore-*.jar",
    "pyspark/jars/hive-service-rpc-*.jar",
    "pyspark/jars/datanucleus-*.jar",
    "pyspark/jars/derby*.jar",
    "pyspark/jars/netty-*-osx-*.jar",  # the other systems; for both processors, as their names differ
    "pyspark/jars/netty-*-windows-*.jar",
)
SYMBOLS: Final = (
    "aiohttp/**/*.so",
    "cryptography/**/*.so",
    "httptools/**/*.so",
    "multidict/*.so",
    "rocksdict/*.so",
    "uvloop/*.so",
)
"""Are built with the names of their functions for a debugger, and stand alone: no library beside them was moved."""
ROCKSDB: Final = "pyspark/jars/rocksdbjni-*.jar"
"""Has a library of 15 MB for each platform, of which a machine loads one."""
LIBRARIES: Final = {"x86_64": "librocksdbjni-linux64.so", "aarch64": "librocksdbjni-linux-aarch64.so"}


def main(words: Sequence[str]) -> int:
    """Remove it from the folder that the one word names; returns the exit code."""
    folder = Path(words[0])
    for pattern in UNUSED:
        for path in folder.glob(pattern):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    for jar in folder.glob(ROCKSDB):
        keep_library(jar, LIBRARIES.get(platform.machine()))
    for library in (path for pattern in SYMBOLS for path in folder.glob(pattern)):
        subprocess.run(["strip", "--strip-unneeded", library], check=True)
    return 0


def keep_library(jar: Path, kept: str | None) -> None:
    """Write the archive without the libraries of other platforms; it stays as it is if it lacks `kept`."""
    slim = jar.with_suffix(".slim")
    with ZipFile(jar) as old:
        if kept not in old.namelist():
            return
        with ZipFile(slim, "w", ZIP_DEFLATED) as new:
            for entry in old.infolist():
                if entry.filename == kept or not entry.filename.startswith("librocksdbjni-"):
                    new.writestr(entry, old.read(entry))
    slim.replace(jar)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
