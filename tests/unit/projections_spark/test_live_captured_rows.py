"""Rows of captured tables in views: the live query's SQL reads them as the definition does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from headwater.eventlog.settings import LogSettings
from headwater.eventlog.source_positions import topic_and_partition
from headwater.projections.spark.patch_sql import patch_records
from headwater.projections.stores.names import patch_partition
from headwater.projections.table.event_data import Unreadable
from headwater.projections.table.view import TableView
from tests.support.captured_things import VIEWS, random_records
from tests.support.seeds import examples
from tests.support.spark_rows import Patches, patches, session
from tests.support.states import differences
from tests.support.topic_records import TopicRecord, patches_in

LACKS = "lacks a column, or has it with another type: "
SETTINGS = LogSettings(environment="t_unit", partitions=3, patch_partitions=3)


def expected(
    views: Sequence[TableView], made: Sequence[TopicRecord]
) -> tuple[Patches, dict[tuple[str, int], set[str]]]:
    """What the definition makes of records: patches, and why which record cannot be read."""
    found: Patches = {}
    reasons: dict[tuple[str, int], set[str]] = {}
    for record in made:
        for view in views:
            if topic_and_partition(record.source)[0] not in view.topics:
                continue
            try:
                for patch in patches_in(view, record):
                    change = {name: value for name, value in patch.fields.items() if value is not None}
                    found[f"{view.tag}/{patch.key}", patch.source, *patch.place] = change
            except Unreadable as error:
                reasons.setdefault((record.source, record.offset), set()).add(str(error))
    return found, reasons


def common(reasons: set[str]) -> str:
    """The reason in the one dead letter of a record that several views cannot read."""
    (start,) = {reason.partition(LACKS)[0] for reason in reasons}
    names = {name for reason in reasons for name in reason.partition(LACKS)[2].split(", ")}
    return start + LACKS + ", ".join(sorted(names)) if names != {""} else start


def _plain(found: Patches) -> dict[Any, dict[str, Any]]:
    """One text of JSON may be written in two ways."""
    made = {}
    for key, row in found.items():
        made[key] = {
            name: json.loads(value) if name in ("extra", "tags", "numbers") and value[:1] in ("[", "{") else value
            for name, value in row.items()
        }
    return made


@pytest.mark.complete
@pytest.mark.jvm
@pytest.mark.soak
@pytest.mark.parametrize("number", range(examples(1)))
def test_the_live_query_reads_captured_rows_as_defined(number: int) -> None:
    made = random_records(number)
    rows = [
        (SETTINGS.topic(topic), record.key, record.value, partition, record.offset, record.timestamp_ms)
        for record in made
        for topic, partition in [topic_and_partition(record.source)]
    ]
    schema = "topic string, key binary, value binary, `partition` int, `offset` bigint, ms bigint"
    kafka = (
        session()
        .createDataFrame(rows, schema)
        .selectExpr("topic", "key", "value", "`partition`", "`offset`", "timestamp_millis(ms) as timestamp")
    )
    out = patch_records(kafka, VIEWS, SETTINGS).collect()
    found = patches((row.key, row.value) for row in out if row.topic.endswith("patches"))
    wanted, reasons = expected(VIEWS, made)
    assert len(wanted) > 100
    assert differences(_plain(found), _plain(wanted)) == []
    tagged = {view.tag: view for view in VIEWS}
    for row in out:
        tag, _, key = row.key.partition("/")
        if row.topic.endswith("patches"):
            assert row.partition == patch_partition(tagged[tag], tag, key, SETTINGS.patch_partitions), row.key
    letters = {}
    for row in out:
        if row.topic.endswith("dead-letters"):
            letter = json.loads(row.value)
            letters[f"{letter['topic']}/{letter['partition']}", letter["offset"]] = letter["reason"]
    assert letters == {place: common(several) for place, several in reasons.items()}
