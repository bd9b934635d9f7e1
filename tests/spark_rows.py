"""One Spark session for all tests of a process, and Spark's rows and patches in the words of the reference."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from eventlog.settings import LogSettings
from projections import reference
from projections.expressions import Source
from projections.reading import row_of
from projections.spark.patches import patch_records
from projections.spark.session import SparkSettings, start_session
from projections.types import ColumnType
from projections.view import TableView

RECORDS = "key binary, value binary, `partition` int, `offset` bigint, timestamp timestamp"

Patches = dict[tuple[str, int, int], dict[str, Any]]


@cache
def session() -> SparkSession:
    return start_session(SparkSettings(), name="tests", threads=2)


def record(partition: int, offset: int, key: str, value: bytes | None, timestamp_ms: int = 1_767_323_045_678) -> Row:
    """One record as Spark's Kafka source gives it."""
    time = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return Row(key.encode(), value, partition, offset, time)


def records_of(sources: Iterable[Source]) -> list[Row]:
    return [
        record(each.position.partition, each.position.offset, each.envelope.id, each.record.encode(), each.timestamp_ms)
        for each in sources
    ]


def frame(records: Sequence[Row]) -> DataFrame:
    return session().createDataFrame(records, RECORDS)


def made_of(records: Sequence[Row], views: Sequence[TableView], settings: LogSettings) -> list[Row]:
    """What the live query's text makes of these records: rows of `topic, key, value, partition`."""
    return patch_records(frame(records), views, settings).collect()


def patches(made: Iterable[tuple[str, bytes | str]]) -> Patches:
    """The changes in patches, by record key, source partition and offset; progress left out."""
    found: Patches = {}
    for key, value in made:
        body = json.loads(value)
        if not key.startswith("progress/"):
            assert body["i"] == 0
            found[key, body["p"], body["o"]] = body["c"]
    return found


def expected_patches(views: Sequence[TableView], sources: Iterable[Source]) -> Patches:
    """What the reference makes of these events."""
    found: Patches = {}
    for source in sources:
        for view in views:
            patch = reference.lift(view, source)
            if patch is not None:
                key = f"{view.tag}/{row_of(view, source.envelope)}"
                change = {name: value for name, value in patch.items() if value is not None}
                found[key, source.position.partition, source.position.offset] = change
    return found


def expected_states(view: TableView, sources: Iterable[Source]) -> dict[str, dict[str, Any]]:
    """The state fields of every row after these events, nulls left out."""
    rows: dict[str, dict[str, Any]] = {}
    for source in sources:
        patch, key = reference.lift(view, source), row_of(view, source.envelope)
        if patch is not None and key is not None:
            reference.combine(view, rows.setdefault(key, {}), patch)
    return {key: {name: value for name, value in row.items() if value is not None} for key, row in rows.items()}


def states(view: TableView, rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Rows of a bulk load, in the form of `expected_states`."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        assert row[view.key_name] not in found, "a key has two rows"
        fields = {each.name: _plain(row[each.name], each.type) for each in view.layout.fields}
        found[row[view.key_name]] = {name: value for name, value in fields.items() if value is not None}
    return found


def _plain(value: Any, kind: ColumnType) -> Any:
    match value:
        case datetime():
            aware = value if value.tzinfo else value.replace(tzinfo=UTC)
            return aware.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case list() if kind is ColumnType.COUNTS:
            return {str(entry["v"]): entry["n"] for entry in value}
        case Row():
            return value.asDict()
        case _:
            return value


def differences(found: Mapping[Any, Mapping[str, Any]], expected: Mapping[Any, Mapping[str, Any]]) -> list[str]:
    """The first few places where two mappings of rows differ, field by field (pytest's own way takes minutes)."""
    told = [f"not expected: {key}" for key in found.keys() - expected.keys()]
    told += [f"missing: {key}" for key in expected.keys() - found.keys()]
    for key in found.keys() & expected.keys():
        ours, theirs = found[key], expected[key]
        told += [
            f"{key}: {name} is {ours.get(name)!r}, expected {theirs.get(name)!r}"
            for name in {*ours, *theirs}
            if ours.get(name) != theirs.get(name)
        ]
    return told[:8]
