"""An archive of the classes that Spark loads: a JVM maps them from it, and need not read and check each again.

Made once an installation (`python -m projections prepare`) and kept in it, used by every session in this process's own
JVM. Without one, or with one of another Java, all works the same, but takes some seconds more to start.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from eventlog.envelope import Envelope, encode
from eventlog.settings import LogSettings
from projections.expressions import literal
from projections.jars import spark_jars
from projections.java import locate_java
from projections.registry import ViewRegistry

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

FOLDER: Final = Path(sys.prefix) / "share" / "headwater" / "classes"
DUMP_S: Final = 300.0
_SILENT: Final = "-Xlog:cds*=off"
"""The JVM would tell of each class that it leaves out, and of an archive that does not fit."""


def use() -> tuple[str, ...]:
    """The JVM's options with which it takes classes from the archive; none where there is no archive."""
    archive = _found()
    return (f"-XX:SharedArchiveFile={archive}", "-XX:+VerifySharedSpaces", _SILENT) if archive else ()


def make() -> Path | None:
    """Make the archive where it is absent, in about half a minute; returns it.

    None, and a warning, where this installation cannot be written to, or where its Java makes none.
    """
    from projections.spark.session import SparkSettings, end, start_session  # noqa: PLC0415 - it asks for `use`

    if archive := _found():
        return archive
    log.info("making an archive of Spark's classes, so that Spark starts sooner from now on")
    shutil.rmtree(FOLDER, ignore_errors=True)  # those of earlier versions
    try:
        FOLDER.mkdir(parents=True)
    except OSError as error:
        log.warning("no archive of Spark's classes, it starts without one and slower: %s", error)
        return None
    made = FOLDER / f"{os.getpid()}.part"
    recording = (f"-XX:ArchiveClassesAtExit={made}", _SILENT)
    session = start_session(SparkSettings(java=recording), name="prepare", threads=4)
    try:
        _exercise(session)
    finally:
        end(session, DUMP_S)
    if not made.exists():
        log.warning("no archive of Spark's classes, it starts without one and slower: '%s' makes none", locate_java())
        return None
    return made.replace(FOLDER / f"{_stem()}.{made.stat().st_size}.jsa")


def _found() -> Path | None:
    """The archive, where it is whole: one that was cut off, as its name's number of bytes tells, would end the JVM."""
    found = (each for each in FOLDER.glob(f"{_stem()}.*.jsa") if each.name.split(".")[1] == str(each.stat().st_size))
    return next(found, None)


def _stem() -> str:
    """First part of its name: an archive fits one Java and one class path."""
    import pyspark  # noqa: PLC0415 - half a second that only those who need Spark pay

    java = locate_java().resolve()
    release = java.parent.parent / "release"
    parts = [str(java), release.read_text() if release.exists() else "", pyspark.__path__[0], pyspark.__version__]
    return hashlib.sha256("\n".join([*parts, *map(str, spark_jars())]).encode()).hexdigest()[:16]


def _exercise(session: SparkSession) -> None:
    """Fold and stream a little, without a server, so that the classes for it are loaded."""
    from projections.spark.folding import folded  # noqa: PLC0415
    from projections.spark.patches import patch_records  # noqa: PLC0415

    views = list(ViewRegistry.load().views.values())
    for view in views[:2]:
        folded(_records(session.range(1000)), view).mapInArrow(_counted, "rows bigint").collect()
    with TemporaryDirectory(prefix="headwater-") as folder:
        Path(folder, "rows.json").write_text('{"id": 1}\n')
        rows = session.readStream.schema("id bigint").json(folder)
        made = patch_records(_records(rows), views, LogSettings())
        checkpoint = Path(folder, "checkpoint").as_uri()
        query = made.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True)
        query.start().awaitTermination()


def _records(numbers: DataFrame) -> DataFrame:
    """Records as Kafka's source gives them, of which no view can read one; that it tries is enough."""
    event = Envelope("thing/1/1", "thing.done", "thing/1", datetime.now(UTC), {"done": True}, sequence=1)
    return numbers.selectExpr(
        f"cast({literal(event.id)} as binary) as key",
        f"cast({literal(encode(event).decode())} as binary) as value",
        "0 as partition",
        "id as offset",
        "current_timestamp() as timestamp",
    )


def _counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa  # noqa: PLC0415 - only the making of the archive needs it

    yield pa.RecordBatch.from_pydict({"rows": pa.array([sum(batch.num_rows for batch in batches)], pa.int64())})
