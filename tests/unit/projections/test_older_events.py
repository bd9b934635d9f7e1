"""Events of older versions in `patches`: who reads a partition makes the patches of its rows."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from headwater.api.changes.patch_tail import Touch, patches_of, touches
from headwater.eventlog.envelope import Position
from headwater.eventlog.ports import Record
from headwater.eventlog.source_positions import SourcePosition
from headwater.eventlog.topics import EVENTS, PATCHES
from headwater.projections.loading.decoding import NotAPatch
from headwater.projections.loading.older_events import OlderEvent, changed_rows
from headwater.projections.reading import reader
from headwater.projections.reading.records import Unreadable
from headwater.projections.stores.names import patch_partition
from headwater.projections.table.expressions import Source
from tests.support.versioned import REASONS, readable, unreadable, weighed

PARTITIONS = 3
VIEWS = {weighed.tag: weighed}


def handed_on(source: Source, partition: int) -> Record:
    """The record of `patches` that the live query makes of an event of an older version, for this partition."""
    value: dict[str, Any] = {"p": 0, "o": source.position.offset, "t": source.timestamp_ms, "v": [weighed.tag, "x@1"]}
    value |= {"k": b64encode(source.envelope.id.encode()).decode(), "d": b64encode(source.record.encode()).decode()}
    return Record(PATCHES, partition, 7, "older/0", json.dumps(value).encode(), 1)


@pytest.mark.parametrize("source", readable(), ids=lambda source: f"version {source.envelope.data_version}")
def test_each_row_is_changed_in_its_partition_as_if_sql_had_made_the_patch(source: Source) -> None:
    (expected,) = reader.lift(weighed, source)
    own = patch_partition(weighed, weighed.tag, expected.key, PARTITIONS)
    for partition in range(PARTITIONS):
        record = handed_on(source, partition)
        found = list(OlderEvent.of(record.value).patches(VIEWS, partition, PARTITIONS))
        assert [each.patch for each in found] == ([expected] if partition == own else [])
        assert list(changed_rows(record, VIEWS, PARTITIONS)) == ([expected.key] if partition == own else [])
        position = SourcePosition(EVENTS, Position(0, source.position.offset))
        touched = touches(patches_of([record], VIEWS, PARTITIONS))
        assert touched == ({weighed.tag: {expected.key: Touch(own, 7, position)}} if partition == own else {})


def test_what_cannot_be_read_has_one_letter() -> None:
    for source, reason in zip(unreadable(), REASONS, strict=True):
        letters = []
        for partition in range(PARTITIONS):
            record = handed_on(source, partition)
            event = OlderEvent.of(record.value)
            with pytest.raises(Unreadable) as error:
                list(event.patches(VIEWS, partition, PARTITIONS))
            assert str(error.value) == reason
            letters += [event.letter(str(error.value), partition, PARTITIONS)]
            assert list(changed_rows(record, VIEWS, PARTITIONS)) == []
            assert list(patches_of([record], VIEWS, PARTITIONS)) == []
        (letter,) = [letter for letter in letters if letter is not None]
        assert letter.key == f"events/0/{source.position.offset}"
        assert json.loads(letter.text)["reason"] == reason


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"{", "JSONDecodeError"),
        (b"[]", "TypeError"),
        (b'{"p":0,"o":1,"t":1,"v":[],"k":"?","d":""}', "Error"),
        (b'{"too_large":5000000}', "it had 5000000 bytes, more than Kafka allows: rebuild the view"),
        (None, "JSONDecodeError"),
    ],
)
def test_what_is_none(value: bytes | None, says: str) -> None:
    with pytest.raises(NotAPatch, match=says):
        OlderEvent.of(value)
