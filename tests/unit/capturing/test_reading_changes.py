"""Reading Debezium's records: every operation, every type, and every way in which a record is not what was declared."""

from __future__ import annotations

import base64
import contextlib
import enum
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from headwater.eventlog.capturing import Captured, Truncated
from headwater.eventlog.capturing.changes import Change, ChangeDecoder, Operation
from headwater.eventlog.capturing.errors import UnreadableChange
from headwater.eventlog.capturing.positions import WalPosition, lsn_text, read_lsn
from headwater.eventlog.capturing.values import PLACEHOLDER, stand_ins
from tests.unit.capturing.records import record


class Mood(enum.StrEnum):
    GOOD = "good"
    BAD = "bad"


class Thing(Captured, table="public.things", key="id"):
    id: int
    name: str
    note: str | None


class Everything(Captured, table="public.everything", key="id"):
    id: int
    text: str | None = None
    number: int | None = None
    ratio: float | None = None
    flag: bool | None = None
    amount: Decimal | None = None
    at: datetime | None = None
    day: date | None = None
    clock: time | None = None
    span: timedelta | None = None
    uid: UUID | None = None
    octets: bytes | None = None
    mood: Mood | None = None
    document: dict[str, Any] | None = None
    words: list[str] | None = None
    days: list[date] | None = None
    numbers: list[int] | None = None
    octet_list: list[bytes] | None = None
    uids: list[UUID] | None = None
    short: Annotated[str | None, Truncated(5)] = None


THINGS = ChangeDecoder(Thing)
EVERYTHING = ChangeDecoder(Everything)
KEY = b'{"id":1}'
OTHER_FORMS = [str(each) for each in stand_ins(Everything.columns["octets"]) if each != PLACEHOLDER]
"""What stands for a long value of another type."""


def read(**values: Any) -> Change:
    return EVERYTHING.decode(KEY, record({"id": 1, **values}))


@pytest.mark.parametrize(
    ("op", "operation"), [("c", Operation.INSERT), ("u", Operation.UPDATE), ("r", Operation.SNAPSHOT)]
)
def test_a_record_with_a_row_is_the_row_at_its_place_in_the_database(op: str, operation: Operation) -> None:
    change = THINGS.decode(KEY, record({"id": 1, "name": "A", "note": None}, op=op))
    assert change == Change(
        operation,
        "1",
        {"id": 1, "name": "A", "note": None},
        (),
        WalPosition(24023128, 24023130, 1, 0 if op == "r" else 555),
        1700000000123,
    )
    assert str(change.position) == "0/16E905A"
    assert not change.deletes


def test_a_delete_a_tombstone_and_a_truncate_have_no_row() -> None:
    deleted = THINGS.decode(KEY, record(None, {"id": 1, "name": "", "note": None}, op="d"))
    assert (deleted.operation, deleted.key, deleted.row, deleted.deletes) == (Operation.DELETE, "1", None, True)
    tombstone = THINGS.decode(KEY, None)
    assert tombstone == Change(Operation.TOMBSTONE, "1", None)
    assert tombstone.deletes
    truncated = THINGS.decode(None, record(op="t"))
    assert (truncated.operation, truncated.key, truncated.deletes) == (Operation.TRUNCATE, "", False)


def test_positions_sort_by_commit_then_place_then_order() -> None:
    def position(**at: Any) -> WalPosition:
        found = THINGS.decode(KEY, record({"id": 1, "name": "A", "note": None}, **at)).position
        assert isinstance(found, WalPosition)
        return found

    first = position(commit=None, lsn=100, order=0, op="r")  # a snapshot has no earlier commit
    # the second transaction began earlier, so its change is at a lower place, but it was committed later
    second, third = position(commit=150, lsn=140), position(commit=200, lsn=120)
    fourth = position(commit=200, lsn=120, order=2)  # several rows of one COPY share a place
    assert first < second < third < fourth


@pytest.mark.parametrize(
    ("column", "recorded", "expected"),
    [
        ("text", "Grüße 👋", "Grüße 👋"),
        ("number", -(2**63), -(2**63)),
        ("number", "42", 42),  # a numeric column
        ("ratio", 1.5, 1.5),
        ("ratio", 3, 3.0),
        ("ratio", "12.50", 12.5),  # a numeric column
        ("ratio", "NaN", None),
        ("ratio", "-Infinity", None),
        ("flag", True, True),
        ("amount", "12.50", "12.50"),
        ("amount", 12, "12"),
        ("amount", "NAN", None),
        ("amount", "POSITIVE_INFINITY", None),
        ("amount", "NEGATIVE_INFINITY", None),
        ("ratio", "NEGATIVE_INFINITY", None),
        ("number", "NAN", None),
        ("at", "2026-01-31T12:00:00.123456Z", "2026-01-31T12:00:00.123456Z"),
        ("at", "infinity", None),
        ("at", "+294247-01-10T04:00:54.775807Z", None),
        ("at", "-0044-03-15T00:00:00Z", None),
        ("day", "2026-01-31Z", "2026-01-31"),
        ("day", "-5877611-06-21Z", None),
        ("clock", "23:59:59.5Z", "23:59:59.5"),
        ("span", "P1Y2M3DT4H5M6.78S", "P1Y2M3DT4H5M6.78S"),
        ("span", "P0Y0M-3DT0H0M0S", "P-3D"),
        ("span", "P0Y0M0DT0H5M0.0S", "PT5M"),
        ("span", "P0Y0M0DT0H0M1E-6S", "PT0.000001S"),
        ("span", "P0Y0M0DT0H0M0S", "PT0S"),
        ("uid", "0190b5d5-0000-7000-8000-000000000001", "0190b5d5-0000-7000-8000-000000000001"),
        ("octets", "AAH/", "AAH/"),
        ("mood", "good", "good"),
        ("document", '{"a": [1, null, "x"]}', {"a": [1, None, "x"]}),
        ("document", "[1]", [1]),
        ("document", "null", None),
        ("document", {"a": "b"}, {"a": "b"}),
        ("document", '{"a": [9223372036854775808]}', {"a": [9223372036854775808.0]}),
        ("document", '{"a": [9223372036854775807]}', {"a": [9223372036854775807]}),
        ("words", ["a", None, ""], ["a", None, ""]),
        ("words", '["a"]', ["a"]),  # a jsonb column
        ("words", [], []),
        ("days", ["2026-01-31Z", None], ["2026-01-31", None]),
    ],
)
def test_a_value_becomes_what_an_event_would_have(column: str, recorded: Any, expected: Any) -> None:
    row = read(**{column: recorded}).row
    assert row is not None
    assert row[column] == expected
    assert type(row[column]) is type(expected)


def test_a_row_reads_back_as_its_class() -> None:
    values = {
        "amount": "12.50",
        "at": "2026-01-31T12:00:00.123456Z",
        "day": "2026-01-31Z",
        "clock": "23:59:59.5Z",
        "span": "P0Y0M1DT2H0M0S",
        "uid": "0190b5d5-0000-7000-8000-000000000001",
        "octets": base64.b64encode(bytes(range(256))).decode(),
        "mood": "bad",
        "document": '{"a": 1}',
    }
    found = Everything.model_validate_json(orjson.dumps(read(**values).row))
    assert found.amount == Decimal("12.50")
    assert found.span == timedelta(days=1, hours=2)
    assert found.octets == bytes(range(256))
    assert found.mood is Mood.BAD
    assert found.day == date(2026, 1, 31)


@pytest.mark.parametrize(
    ("recorded", "span"),
    [
        ("P0Y0M0DT-2H0M0S", timedelta(hours=-2)),
        ("P0Y0M-1DT0H0M0S", timedelta(days=-1)),
        ("P0Y0M0DT0H0M-1.5S", timedelta(seconds=-1.5)),
        ("P-1Y-2M0DT0H0M0S", timedelta(days=-425)),
        ("P1Y-2M3DT4H-5M0.000001S", timedelta(days=308, hours=4, minutes=-5, microseconds=1)),
        ("P1Y2M3DT4H5M6.78S", timedelta(days=428, hours=4, minutes=5, seconds=6.78)),
    ],
)
def test_an_interval_with_negative_parts_reads_back_as_their_sum(recorded: str, span: timedelta) -> None:
    class Renamed(Captured, table="public.renamed", key="id"):
        id: int
        period: Annotated[timedelta | None, Field(alias="span")]

    class Longer(Renamed, table="public.longer", key="id"):
        more: str = ""

    row = orjson.dumps(read(span=recorded).row)
    assert Everything.model_validate_json(row).span == span
    assert Longer.model_validate_json(row).period == span


@pytest.mark.parametrize("span", ["P-999999999999Y", "P-", "P--1D", "-", "PT-1H2"])
def test_an_interval_that_is_none_or_too_long_does_not_fit_its_class(span: str) -> None:
    with pytest.raises(ValidationError, match="span"):
        Everything.model_validate_json(orjson.dumps({"id": 1, "span": span}))


@pytest.mark.parametrize(
    ("column", "recorded", "said"),
    [
        ("number", "many", '"number"'),
        ("number", 1.5, "number"),
        ("number", True, "number"),
        ("number", "9223372036854775808", "declare it as Decimal"),
        ("document", "[" * 100_000, "document"),
        ("document", "1" * 400, "document"),
        ("text", 1, "text"),
        ("flag", "yes", "flag"),
        ("mood", "angry", "its value is not in its Enum: add it"),
        ("span", "1 day", "not an interval"),
        ("document", "{", "document|JSON|truncated"),
        ("words", '{"a": 1}', "not a list"),
        ("days", [1], '"days"'),
    ],
)
def test_a_value_of_another_type_is_named_with_its_column(column: str, recorded: Any, said: str) -> None:
    with pytest.raises(UnreadableChange, match=said) as unreadable:
        read(**{column: recorded})
    assert unreadable.value.table == "public.everything"
    assert recorded not in ("many", "angry", "1 day") or recorded not in str(unreadable.value)


@pytest.mark.parametrize("column", ["text", "octets", "words", "octet_list", "numbers", "uids", "document", "amount"])
def test_a_long_value_that_an_update_did_not_change_is_left_out_and_named(column: str) -> None:
    for stand_in in stand_ins(Everything.columns[column]):
        change = read(**{column: stand_in})
        assert change.row is not None
        assert column not in change.row
        assert change.unchanged == (column,)
        assert EVERYTHING.lacks_value(record({"id": 1, column: stand_in}))


@pytest.mark.parametrize("column", ["octets", "octet_list", "numbers", "uids"])
def test_a_value_that_somebody_has_written_is_a_value_once_the_row_was_read_again(column: str) -> None:
    for looks_so in stand_ins(Everything.columns[column]):
        if looks_so in (PLACEHOLDER, [PLACEHOLDER]):
            continue  # no text in PostgreSQL has its first character
        for op in ("c", "r"):
            written = record({"id": 1, column: looks_so}, op=op)
            change = EVERYTHING.decode(KEY, written)
            assert change.unchanged == ()
            assert not EVERYTHING.lacks_value(written)


@pytest.mark.parametrize("text", [PLACEHOLDER[1:], f"it says {PLACEHOLDER[1:]}", *OTHER_FORMS])
def test_a_text_that_looks_like_a_stand_in_is_a_text(text: str) -> None:
    for op in ("c", "u", "r"):
        written = record({"id": 1, "text": text, "document": orjson.dumps({"a": text}).decode()}, op=op)
        change = EVERYTHING.decode(KEY, written)
        assert change.row is not None
        assert (change.row["text"], change.unchanged) == (text, ())
        assert not EVERYTHING.lacks_value(written)


def test_it_is_the_old_value_if_the_record_has_the_whole_old_row() -> None:
    long = "x" * 3000
    before = {"id": 1, "name": "A", "note": long}
    change = THINGS.decode(KEY, record({"id": 1, "name": "B", "note": PLACEHOLDER}, before))
    assert (change.row, change.unchanged) == ({"id": 1, "name": "B", "note": long}, ())


@pytest.mark.parametrize("old", [None, "", PLACEHOLDER, "0"])
def test_an_old_row_that_has_only_the_key_does_not_count(old: str | None) -> None:
    after = {"id": 1, "name": PLACEHOLDER, "note": "n"}
    change = THINGS.decode(KEY, record(after, {"id": 1, "name": old, "note": None}))
    assert (change.row, change.unchanged) == ({"id": 1, "note": "n"}, ("name",))


def test_a_shortened_stand_in_is_one_too() -> None:
    assert read(short=PLACEHOLDER[:5]).unchanged == ("short",)
    assert read(short=PLACEHOLDER).unchanged == ("short",), "the live query marks so what is unchanged"
    assert read(short="abcde").row == {**dict.fromkeys(Everything.columns), "id": 1, "short": "abcde"}


@pytest.mark.parametrize("value", ["_", "__", "__hea"])
def test_a_shortened_value_that_begins_like_the_name_of_a_placeholder_is_a_value(value: str) -> None:
    row = read(short=value).row
    assert row is not None
    assert row["short"] == value


def test_columns_come_and_go() -> None:
    class Grown(Captured, table="public.things", key="id"):
        id: int
        stock: int = 7
        hue: str | None

    decoder = ChangeDecoder(Grown)
    assert decoder.decode(KEY, record({"id": 1})).row == {"id": 1, "stock": 7, "hue": None}
    assert decoder.decode(KEY, record({"id": 1, "stock": 2, "more": [{}]})).row == {"id": 1, "stock": 2, "hue": None}
    with pytest.raises(UnreadableChange, match=r'"public\.things".*lacks the column "name".*default'):
        THINGS.decode(KEY, record({"id": 1, "note": None}))
    with pytest.raises(UnreadableChange, match=r'column "name" is null: add \| None'):
        THINGS.decode(KEY, record({"id": 1, "name": None, "note": None}))


def test_what_is_read_as_null_needs_a_column_that_may_be_null() -> None:
    class Measured(Captured, table="public.things", key="id"):
        id: int
        value: float

    with pytest.raises(UnreadableChange, match=r"'NaN', which is read as null: add \| None"):
        ChangeDecoder(Measured).decode(KEY, record({"id": 1, "value": "NaN"}))


def test_keys_are_text() -> None:
    class Line(Captured, table="public.lines", key=("order_id", "day")):
        order_id: UUID
        day: date

    class Word(Captured, table="public.words", key="word"):
        word: str

    uid = "0190b5d5-0000-7000-8000-000000000001"
    key = orjson.dumps({"order_id": uid, "day": "2026-01-31Z"})
    assert ChangeDecoder(Line).decode(key, None).key == f'["{uid}","2026-01-31"]'
    assert ChangeDecoder(Word).decode(b'{"word": "1"}', None).key == "1"
    assert THINGS.decode(b'{"id": 9007199254740993}', None).key == "9007199254740993"


@pytest.mark.parametrize(
    ("column", "recorded"),
    [
        ("day", "-5877611-06-21Z"),
        ("at", "infinity"),
        ("at", "+294247-01-10T04:00:54.775807Z"),
        ("amount", "NAN"),
        ("amount", "NEGATIVE_INFINITY"),
    ],
)
def test_a_key_that_would_be_null_is_refused_by_name(column: str, recorded: str) -> None:
    """All such rows would have the same key."""

    class Timed(Captured, table="public.timed", key=("id", column)):
        id: int
        day: date
        at: datetime
        amount: Decimal

    decoder, key = ChangeDecoder(Timed), orjson.dumps({"id": 1, column: recorded})
    for read_key in (lambda: decoder.decode(key, None), lambda: decoder.key_values(key)):
        with pytest.raises(UnreadableChange, match=f'"{column}" of its key is .*, which is read as null'):
            read_key()


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (None, None, "neither a key nor a value"),
        (None, record({"id": 1, "name": "A", "note": None}), "REPLICA IDENTITY"),
        (b'{"id": null}', None, "REPLICA IDENTITY"),
        (b"{}", None, "REPLICA IDENTITY"),
        (b"not json", None, "malformed|JSON"),
        (KEY, b"not json", "malformed|JSON"),
        (KEY, b"[" * 100_000, "not a record|object"),
        (KEY, b"[]", "object"),
        (KEY, b"{}", "op"),
        (KEY, record({"id": 1, "name": "A", "note": None}, op="x"), '"x"'),
        (KEY, record(None, op="u"), "no row"),
        (KEY, record({"id": 1, "name": "A", "note": None}, sequence='["x"]'), "sequence|length|expected|Expected"),
        (KEY, record({"id": 1, "name": "A", "note": None}, sequence='["x","y"]'), "not a record of Debezium"),
    ],
)
def test_what_is_no_change_is_an_error_of_its_own(key: bytes | None, value: bytes | None, said: str) -> None:
    with pytest.raises(UnreadableChange, match=said):
        THINGS.decode(key, value)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(list(Everything.columns)), JSON_VALUES), st.sampled_from("curdtx"))
def test_any_row_is_either_read_or_refused_by_name(row: dict[str, Any], op: str) -> None:
    import msgspec

    value = msgspec.json.encode({"op": op, "after": row, "source": {}, "transaction": None})
    try:
        change = EVERYTHING.decode(KEY, value)
    except UnreadableChange:
        return
    if change.row is not None:
        assert set(change.row) | set(change.unchanged) == set(Everything.columns)
        assert not set(change.row) & set(change.unchanged)
        assert PLACEHOLDER not in str(change.row)


@given(st.binary() | st.none(), st.binary() | st.none())
def test_any_bytes_are_either_read_or_refused_by_name(key: bytes | None, value: bytes | None) -> None:
    with contextlib.suppress(UnreadableChange):
        THINGS.decode(key, value)


@given(st.integers(), st.floats(), st.decimals(), st.dates(), st.datetimes(), st.times(), st.text(), st.binary())
def test_values_of_every_type_survive(
    number: int, ratio: float, amount: Decimal, day: date, at: datetime, clock: time, text: str, octets: bytes
) -> None:
    number %= 2**63
    recorded = {
        "number": number,
        "ratio": ratio if math.isfinite(ratio) else str(ratio),
        "amount": str(amount)
        if amount.is_finite()
        else "NaN"
        if amount.is_nan()
        else ("NEGATIVE_INFINITY" if amount < 0 else "POSITIVE_INFINITY"),
        "day": f"{day.isoformat()}Z",
        "at": f"{at.isoformat()}Z",
        "clock": f"{clock.isoformat()}Z",
        "text": text,
        "octets": base64.b64encode(octets).decode(),
    }
    row = read(**recorded).row
    assert row is not None
    assert row["number"] == number
    assert row["ratio"] == (ratio if math.isfinite(ratio) else None)
    assert row["amount"] == (str(amount) if amount.is_finite() else None)
    assert date.fromisoformat(row["day"]) == day
    assert datetime.fromisoformat(row["at"]).replace(tzinfo=None) == at
    assert time.fromisoformat(row["clock"]) == clock
    assert row["text"] == text
    assert base64.b64decode(row["octets"]) == octets


@given(st.integers(0, 2**64 - 1))
def test_a_place_in_the_log_is_written_as_postgresql_does(lsn: int) -> None:
    assert read_lsn(lsn_text(lsn)) == lsn


@pytest.mark.parametrize("text", ["", "1", "/", "0/", "x/1", "0/123456789", "0/-1", "0/1/2"])
def test_what_is_no_place_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(ValueError, match="write it like 0/16B3748"):
        read_lsn(text)


@pytest.mark.parametrize("document", ['{"n":1e400}', '{"a":[-1e400]}', "[1" + "0" * 400 + ".5]"])
def test_json_with_a_number_that_no_float_holds_is_refused_by_name(document: str) -> None:
    with pytest.raises(UnreadableChange, match='the column "document": its JSON has a number that no float holds'):
        ChangeDecoder(Everything).decode(b'{"id":1}', record({"id": 1, "document": document}))


@pytest.mark.parametrize("document", ['"\\ud800"', '{"\\uDC00":1}', '["a", "\\udc00\\ud800"]'])
def test_json_with_half_a_character_is_refused_by_name(document: str) -> None:
    with pytest.raises(
        UnreadableChange, match=r'the column "document": its JSON has \\u[dD]\w00, which is half of a char'
    ):
        ChangeDecoder(Everything).decode(b'{"id":1}', record({"id": 1, "document": document}))
