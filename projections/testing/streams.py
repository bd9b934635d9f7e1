"""The rows of a stream view after the records of a test: Spark runs its query, with files in place of Kafka.

Needs the extra `projections`. The first query of a process starts Spark, which takes seconds.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.commands.declaring.observation import Observation, Report, to_entry
from headwater.commands.testing.past import GivenToStream, Heartbeat, Past, Recorded, Reported
from headwater.eventlog.envelope import timestamp_ms
from headwater.eventlog.heartbeats import heartbeat_key
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import EVENTS, OBSERVATIONS
from headwater.projections.errors import StreamQueryFailed
from headwater.projections.reading.reader import finish
from headwater.projections.spark.session import SparkSettings, start_session
from headwater.projections.spark.stream_queries.failures import reason
from headwater.projections.spark.stream_queries.frames import UNREADABLE
from headwater.projections.spark.stream_queries.output import numbered, row_texts
from headwater.projections.spark.stream_queries.query import computed, output_mode, stream_session
from headwater.projections.stream.view import StreamView
from headwater.projections.table.json_text import json_value
from headwater.projections.table.layout import DELETED
from headwater.projections.testing.rows import SEED, answered_rows, differences, sealed_record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TAG: Final = "tested"
THREADS: Final = 2
TRIES: Final = 3
"""How often records are cut into batches at random: a query takes about a second."""
MOST_BATCHES: Final = 6
SETTINGS: Final = LogSettings(environment="tests", partitions=1, patch_partitions=1)
KAFKA_RECORD: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)
KAFKA_RECORD_DDL: Final = (
    "topic string, key binary, value binary, `partition` int, `offset` bigint, timestamp timestamp"
)


KafkaRecord = tuple[str, bytes, bytes | None, int, int, datetime]
"""Has the columns of KAFKA_RECORD."""


def records_of(given: Sequence[GivenToStream]) -> list[KafkaRecord]:
    """Their records, in `events` and in `observations`.

    Each is accepted at the latest time that was given until then; so one whose own time is earlier came later than it
    happened. Raises TypeError for anything else, and UnreadableEvent for an event that does not fit its type.
    """
    past, records = Past(), list[KafkaRecord]()
    for offset, step in enumerate(given):
        match step:
            case Heartbeat(time):
                past.pass_to(time)
                records += [
                    (SETTINGS.topic(topic), heartbeat_key(0).encode(), b"{}", 0, offset, time)
                    for topic in (EVENTS, OBSERVATIONS)
                ]
            case Observation() | Reported():
                records.append(_observed(step if isinstance(step, Reported) else Reported(step), past, offset))
            case _:
                made = past.add(step)
                kind = step.kind if isinstance(step, Recorded) else type(step)
                time = datetime.fromtimestamp(made.timestamp_ms / 1000, UTC)
                value = sealed_record(kind, made.value)
                records.append((SETTINGS.topic(EVENTS), made.key.encode(), value, 0, offset, time))
    return records


def _observed(reported: Reported, past: Past, offset: int) -> KafkaRecord:
    time = past.pass_to(reported.time)
    # not validated: a test may be about any time
    report = Report.model_construct(id=str(offset), source="test", time=time, data=reported.observation)
    entry = to_entry(report, past.now, None, None)
    sent = datetime.fromtimestamp(timestamp_ms(time) / 1000, UTC)
    return (SETTINGS.topic(OBSERVATIONS), entry.key.encode(), entry.value, 0, offset, sent)


def stream_rows(
    view: StreamView, batches: Sequence[Sequence[KafkaRecord]], made: Callable[[str], Any] = json_value
) -> dict[str, dict[str, Any]]:
    """The rows of `view` after these batches, by key, as the API answers them.

    made: makes what they have of JSON texts.

    Raises ViewDeclarationError for a query that cannot work, StreamQueryFailed for one that fails, and ValueError for a
    record that the view cannot read, which production counts and leaves out.
    """
    run = _Run(view)
    with TemporaryDirectory(prefix="headwater-stream-") as folder:
        run.until_idle(batches, Path(folder))
    if run.unreadable:
        raise ValueError(f'"{view.name}" cannot read {run.unreadable} of the records: they would be left out')
    left = {key: row for key, row in run.rows.items() if not row.get(DELETED)}
    rows = {key: finish(view, key, row) for key, row in left.items()}
    return answered_rows(view, rows, made)


def check_batches(view: StreamView, given: Sequence[GivenToStream], seed: int, tries: int = TRIES) -> None:
    """Check that the rows of `view` are the same in whatever batches the records come; the same for the same seed.

    Raises AssertionError with the rows that differ from those of one batch, as which a rebuild reads the log.
    """
    __tracebackhide__ = True
    chance, records = random.Random(seed), records_of(given)
    expected = stream_rows(view, [records], str)  # JSON texts as they are: 1 and 1.0 are equal in Python
    for _ in range(tries):
        batches = cut(records, chance)
        actual = stream_rows(view, batches, str)
        if actual != expected:
            sizes = ", ".join(str(len(batch)) for batch in batches)
            raise AssertionError(
                f'"{view.name}" has other rows if its records come in batches of {sizes} ({SEED}={seed} repeats it)\n'
                + "\n".join(differences(expected, actual, "in one batch", "in several"))
            )


def cut(records: Sequence[KafkaRecord], chance: random.Random) -> list[list[KafkaRecord]]:
    """The records in a random number of consecutive batches."""
    number = chance.randrange(2, MOST_BATCHES)
    at = sorted(chance.randrange(len(records) + 1) for _ in range(number - 1))
    parts = [list(records[start:end]) for start, end in zip([0, *at], [*at, len(records)], strict=True)]
    return [part for part in parts if part]


@dataclass
class _Run:
    """One run of a query. rows: the state fields of each key, as its last batch has sent them."""

    view: StreamView
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    unreadable: int = 0

    def until_idle(self, batches: Sequence[Sequence[KafkaRecord]], folder: Path) -> None:
        """Run the query over all batches, and over the one without records that sends what is final then."""
        from pyspark.errors import PySparkException  # noqa: PLC0415

        for number, batch in enumerate(batches):
            write_batch(folder / "records", batch, number)
        frame = read_batches(_session(), folder / "records")
        rows = computed(self.view, lambda _, source: frame.where(frame.topic == SETTINGS.topic(source.topic)))
        texts = row_texts(rows, self.view, TAG, SETTINGS)
        writer = texts.writeStream.outputMode(output_mode(self.view)).foreachBatch(self._take)
        try:
            query = writer.option("checkpointLocation", (folder / "checkpoint").as_uri()).start()
            try:
                query.processAllAvailable()
                for progress in query.recentProgress:
                    counted = progress["observedMetrics"].values()
                    self.unreadable += sum(metrics[UNREADABLE] for metrics in counted)
            finally:
                query.stop()
        except PySparkException as error:
            raise StreamQueryFailed(self.view.name, reason(error)) from error

    def _take(self, batch: DataFrame, number: int) -> None:
        for record in numbered(batch, number, SETTINGS).collect():
            self.rows[record.key.removeprefix(f"{TAG}/")] = json.loads(record.value)["c"]


def write_batch(folder: Path, batch: Sequence[Sequence[Any]], number: int) -> None:
    """A file that `read_batches` reads as batch `number`. batch: rows with the columns of KAFKA_RECORD."""
    columns = list(zip(*batch, strict=True)) or [()] * len(KAFKA_RECORD)
    arrays = [
        pa.array(list(column), column_field.type) for column, column_field in zip(columns, KAFKA_RECORD, strict=True)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{number:04}.parquet"
    pq.write_table(pa.Table.from_arrays(arrays, schema=KAFKA_RECORD), file)
    os.utime(file, (1_000_000 + number, 1_000_000 + number))  # its time decides when Spark reads it


def read_batches(session: SparkSession, folder: Path) -> DataFrame:
    """A stream of these files, each one a batch."""
    frame = session.readStream.schema(KAFKA_RECORD_DDL).option("maxFilesPerTrigger", 1)
    return frame.parquet(folder.as_uri())


@cache
def _session() -> SparkSession:
    """One for all tests of a process: Spark keeps a part of each for ever."""
    own = stream_session(start_session(SparkSettings(), name="tests", threads=THREADS), without_heartbeats=True)
    own.conf.set("spark.sql.shuffle.partitions", 1)
    return own
