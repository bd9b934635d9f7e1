"""What a connector's failure says, and how times are written in rows."""

from __future__ import annotations

from datetime import datetime

import pytest

from headwater.eventlog.capturing import Captured
from headwater.eventlog.capturing.changes import ChangeDecoder
from headwater.eventlog.capturing.kafka_connect import with_advice
from tests.unit.capturing.records import record


class Moment(Captured, table="public.moments", key="at"):
    at: datetime
    seen: datetime | None


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("2024-01-01T00:00:06Z", "2024-01-01T00:00:06Z"),
        ("2024-01-01T00:00:06.000Z", "2024-01-01T00:00:06Z"),
        ("2024-01-01T00:00:06.120Z", "2024-01-01T00:00:06.12Z"),
        ("2024-01-01T00:00:00.100000Z", "2024-01-01T00:00:00.1Z"),
        ("2024-01-01T00:00:10Z", "2024-01-01T00:00:10Z"),
        ("infinity", None),
        ("0000-12-31T10:00:00.000000Z", None),
    ],
)
def test_a_time_has_one_text_whether_a_snapshot_or_a_change_has_it(written: str, text: str | None) -> None:
    row = {"at": "2024-01-01T00:00:00.000Z", "seen": written}
    change = ChangeDecoder(Moment).decode(b'{"at": "2024-01-01T00:00:00.000Z"}', record(after=row))
    assert change.row == {"at": "2024-01-01T00:00:00.000Z", "seen": text}
    assert change.key == "2024-01-01T00:00:00.000Z", "keys of rows that views have stay as they were"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (
            "The message is 5000101 bytes when serialized which is larger than 4194304, which is the value of the "
            "max.request.size configuration.",
            "a row needs more than 4,194,304 bytes: shorten a long column with Truncated(…), or take it out",
        ),
        ("Text '00:00:00+15:59:59' could not be parsed, unparsed text found at index 14", "has an offset with seconds"),
        ("Conversion of interval failed", "an interval has 2147483648 hours or more"),
    ],
)
def test_a_connector_that_stops_at_a_value_says_what_helps(reason: str, words: str) -> None:
    assert with_advice(reason).startswith(f"{reason}; ")
    assert words in with_advice(reason)
    assert "run headwater sources apply" in with_advice(reason)


def test_other_failures_are_shown_as_they_are() -> None:
    assert with_advice("the database is away") == "the database is away"
