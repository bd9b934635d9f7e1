"""Spark's home folder without PySpark in zip files.

Spark puts `$SPARK_HOME/python/lib/pyspark.zip` first on the path of every Python worker. From a zip file, Python
compiles each module in each process, which takes half a second of processor time, and some workers start per batch.
Without the file, a worker imports the installed PySpark.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

FOLDER: Final = Path(sys.prefix) / "share" / "headwater" / "spark"
PARTS: Final = ("bin", "jars")


def spark_home() -> Path:
    """The folder for SPARK_HOME: links to the parts of the installed PySpark that a local session needs.

    If this installation is not writable, it is PySpark's own.
    """
    import pyspark  # noqa: PLC0415 - half a second that only those who need Spark pay

    installed = Path(pyspark.__path__[0])
    home = FOLDER / pyspark.__version__
    if home.exists():
        return home
    try:
        FOLDER.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=FOLDER) as folder:
            made = Path(folder, "made")
            made.mkdir()
            for part in PARTS:
                (made / part).symlink_to(installed / part)
            made.rename(home)
    except OSError:
        return home if home.exists() else installed  # another process may have made it
    return home


def use() -> None:
    """Let this process's Spark start there, unless the user chose another one."""
    os.environ.setdefault("SPARK_HOME", str(spark_home()))
