"""What a local session of Spark has on this machine: its home, an archive of its classes, and its working folder."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Final

from headwater.projections.spark.setup.jars import spark_jars
from headwater.projections.spark.setup.java import locate_java

log = logging.getLogger(__name__)

HOMES: Final = Path(sys.prefix) / "share" / "headwater" / "spark"
CLASSES: Final = Path(sys.prefix) / "share" / "headwater" / "classes"
"""The folder of the archive. `projections/spark/prepare.py` makes it once per installation."""
SILENT: Final = "-Xlog:cds*=off"
"""Otherwise the JVM would log each omitted class, and an archive that does not match."""
_LOCK: Final = ".lock"
_held: Final[list[int]] = []
"""Locks of this process's folders, until it ends: descriptors, of which Python does not say that nobody closes them."""


def spark_home() -> Path:
    """The folder for SPARK_HOME: links to the parts of the installed PySpark that a local session needs.

    Spark puts `$SPARK_HOME/python/lib/pyspark.zip` first on the path of every Python worker. From a zip file, Python
    compiles each module in each process, which takes half a second of processor time, and some workers start per batch.
    Without the file, a worker imports the installed PySpark.

    If this installation is not writable, it is PySpark's own.
    """
    import pyspark  # noqa: PLC0415 - half a second that only those who need Spark pay

    installed = Path(pyspark.__path__[0])
    home = HOMES / pyspark.__version__
    if home.exists():
        return home
    try:
        HOMES.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=HOMES) as folder:
            linked = Path(folder, "linked")
            linked.mkdir()
            for part in ("bin", "jars"):
                (linked / part).symlink_to(installed / part)
            linked.rename(home)
    except OSError:
        return home if home.exists() else installed  # another process may have made it
    return home


def archive_digest(java: Path, parts: Iterable[object]) -> str:
    """Stands for a Java, and for what else an archive of classes is valid for, such as a class path."""
    java = java.resolve()
    release = java.parent.parent / "release"
    valid_for = [str(java), release.read_text() if release.exists() else "", *map(str, parts)]
    return hashlib.sha256("\n".join(valid_for).encode()).hexdigest()[:16]


def find_archive(folder: Path, stem: str, ending: str) -> Path | None:
    """The archive, if it is complete: its name has its size, because a truncated archive would end the JVM.

    stem: what its name begins with, without a dot.
    """
    files = folder.glob(f"{stem}.*.{ending}")
    return next((file for file in files if file.name.split(".")[1] == str(file.stat().st_size)), None)


def keep_archive(file: Path, stem: str, ending: str) -> Path:
    """Give a file that is complete the name by which `find_archive` finds it; returns it."""
    return file.replace(file.with_name(f"{stem}.{file.stat().st_size}.{ending}"))


def clear_archives(folder: Path) -> None:
    """Make the folder without archives of earlier versions; raises OSError if it cannot be written to."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def spark_stem() -> str:
    """How the name of the archive of Spark's classes begins: it is valid for one Java and one class path."""
    import pyspark  # noqa: PLC0415 - half a second that only those who need Spark pay

    return archive_digest(locate_java(), [spark_home(), pyspark.__version__, *spark_jars()])


def archive_options() -> tuple[str, ...]:
    """The options with which a JVM maps Spark's classes from the archive, instead of reading and checking each one.

    None if there is no archive, or one of another Java: then all works, but takes some seconds longer to start.
    """
    archive = find_archive(CLASSES, spark_stem(), "jsa")
    return (f"-XX:SharedArchiveFile={archive}", "-XX:+VerifySharedSpaces", SILENT) if archive else ()


def working_folder(state: Path) -> Path | None:
    """A new folder in `state` for the working files of this process's Spark: shuffled rows, copies of RocksDB's state.

    Spark removes what it has made there when it ends. What a killed process left is removed by the next one. None if
    there can be no folder: then Spark uses that of temporary files. Spark would take a path with a comma for two.
    """
    root = state.absolute() / "spark"
    if "," in str(root):
        return None
    try:
        root.mkdir(parents=True, exist_ok=True)
        with (root / _LOCK).open("w") as starting:  # or another process would remove a folder that is not yet locked
            fcntl.flock(starting, fcntl.LOCK_EX)
            for folder in root.iterdir():
                if folder.is_dir() and _is_abandoned(folder):
                    shutil.rmtree(folder, ignore_errors=True)
            folder = Path(mkdtemp(dir=root))
            _held.append(os.open(folder / _LOCK, os.O_CREAT | os.O_WRONLY, 0o666))
            fcntl.flock(_held[-1], fcntl.LOCK_EX)
    except OSError as error:
        log.warning("working files of Spark are in the folder of temporary files, because of %s: %s", root, error)
        return None
    return folder


def _is_abandoned(folder: Path) -> bool:
    """Whether no process holds it."""
    with (folder / _LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
