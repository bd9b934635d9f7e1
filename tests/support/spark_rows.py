"""One Spark session for all tests of a process, and Spark's rows and patches in the words of the reader."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import DEAD_LETTERS, EVENTS
from headwater.projections.loading.decoding import OLDER
from headwater.projections.loading.older_events import OlderEvent
from headwater.projections.reading import reader
from headwater.projections.spark.patch_sql import patch_records
from headwater.projections.spark.session import SparkSettings, start_session
from headwater.projections.table.event_data import Unreadable
from headwater.projections.table.expressions import Source
from headwater.projections.table.monoids import row_value
from headwater.projections.table.view import TableView
from headwater.projections.testing.streams import KAFKA_RECORD_DDL
from tests.support.states import touched

SETTINGS = LogSettings(environment="t_unit", partitions=3, patch_partitions=3)

Patches = dict[tuple[str, str, int, int], dict[str, Any]]


@cache
def session() -> SparkSession:
    """Without a second attempt of a task: each starts a Python of its own, and what fails in a test fails for good."""
    return start_session(SparkSettings(master="local[2]"), name="tests", threads=2)


def record(
    partition: int, offset: int, key: str | None, value: bytes | None, timestamp_ms: int = 1_767_323_045_678
) -> Row:
    """One record of `events` as Spark's Kafka source gives it."""
    time = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return Row(
        topic=SETTINGS.topic(EVENTS),
        key=None if key is None else key.encode(),
        value=value,
        partition=partition,
        offset=offset,
        timestamp=time,
    )


def records_of(sources: Iterable[Source]) -> list[Row]:
    return [
        record(
            source.position.partition,
            source.position.offset,
            source.envelope.id,
            source.record.encode(),
            source.timestamp_ms,
        )
        for source in sources
    ]


def frame(records: Sequence[Row]) -> DataFrame:
    return session().createDataFrame(records, KAFKA_RECORD_DDL)


def made_of(records: Sequence[Row], views: Sequence[TableView], settings: LogSettings) -> list[Row]:
    """What the live query's text makes of these records: rows of `topic, key, value, partition`.

    Events of older versions are as the loaders of all partitions read them.
    """
    return as_loaded(patch_records(frame(records), views, settings).collect(), views, settings)


def as_loaded(made: Iterable[Row], views: Sequence[TableView], settings: LogSettings) -> list[Row]:
    """Records of `patches` and `dead-letters`, with what loaders make of the events of older versions among them."""
    found: list[Row] = []
    for row in made:
        found += _of_older(row, views, settings) if row.key.startswith(f"{OLDER}/") else [row]
    return found


def _of_older(row: Row, views: Sequence[TableView], settings: LogSettings) -> Iterator[Row]:
    event, partitions = OlderEvent.of(row.value.encode()), settings.patch_partitions
    try:
        for tag, patch, *_ in event.patches({view.tag: view for view in views}, row.partition, partitions):
            place = {"p": int(patch.source), "o": patch.place.offset, "i": patch.place.number}
            value = json.dumps({**place, "t": event.record.timestamp_ms, "c": patch.fields}, ensure_ascii=False)
            yield Row(topic=row.topic, key=f"{tag}/{patch.key}", value=value, partition=row.partition)
    except Unreadable as error:
        if (letter := event.letter(str(error), row.partition, partitions)) is not None:
            topic = settings.topic(DEAD_LETTERS)
            yield Row(topic=topic, key=letter.key, value=letter.text.decode(), partition=0)


def patches(made: Iterable[tuple[str, bytes | str]]) -> Patches:
    """The changes in patches, by record key, source, offset and number; progress left out."""
    found: Patches = {}
    for key, value in made:
        body = json.loads(value)
        if not key.startswith("progress/"):
            place = (key, _source(body["p"]), body["o"], body["i"])
            assert place not in found or found[place] == body["c"]
            found[place] = body["c"]
    return found


def _source(found: int | str) -> str:
    assert isinstance(found, int) is str(found).isdigit(), "a number stands for a partition of `events`, and text not"
    return str(found)


def expected_patches(views: Sequence[TableView], sources: Iterable[Source]) -> Patches:
    """What the reference makes of these events."""
    found: Patches = {}
    for source in sources:
        for view in views:
            for patch in reader.lift(view, source):
                change = {name: value for name, value in patch.fields.items() if value is not None}
                found[f"{view.tag}/{patch.key}", patch.source, *patch.place] = change
    return found


def states(view: TableView, rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Rows of a bulk load, in the form of `expected_states`."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        assert row[view.key_name] not in found, "a key has two rows"
        found[row[view.key_name]] = touched(
            {field.name: row_value(_plain(row[field.name]), field.type) for field in view.layout.fields}
        )
    return found


def _plain(value: Any) -> Any:
    """Spark's rows as Arrow has them."""
    match value:
        case datetime():
            return value if value.tzinfo else value.replace(tzinfo=UTC)
        case list():
            return [_plain(each) for each in value]
        case Row():
            return {name: _plain(each) for name, each in value.asDict().items()}
        case _:
            return value
