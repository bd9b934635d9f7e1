"""The envelope's codec, positions, partitions and times."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from headwater.eventlog.envelope import (
    Envelope,
    Position,
    decode,
    encode,
    encode_event,
    format_time,
    partition_of,
    timestamp_ms,
)
from headwater.eventlog.errors import NotAnEnvelope

TIME = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
FULL = Envelope(
    id="listing/L1/7",
    type="listing.price_changed",
    stream="listing/L1",
    time=TIME,
    data={"price": 1, "city": "Åkra"},
    source="/headwater/listing",
    data_version=2,
    sequence=7,
    expected_version=0,
    correlation_id="c",
    causation_id="d",
    traceparent="00-e",
    actor="ci",
)


class FakeTime(datetime):
    """As libraries make it that set the clock."""


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
counts = st.integers(0, 2**53)
envelopes = st.builds(
    Envelope,
    id=texts,
    type=texts,
    stream=texts,
    time=st.datetimes(timezones=st.just(UTC)),
    data=st.dictionaries(texts, st.none() | st.booleans() | counts | texts),
    source=texts,
    data_version=counts,
    sequence=counts,
    expected_version=st.none() | counts,
    correlation_id=st.none() | texts,
    causation_id=st.none() | texts,
    traceparent=st.none() | texts,
    recorded_time=st.none() | st.datetimes(timezones=st.just(UTC)),
    actor=st.none() | texts,
)


@pytest.mark.parametrize("actor", [7, None, "", {"id": "x"}, ["x"], True])
def test_a_record_whose_actor_means_something_else_is_still_read(actor: Any) -> None:
    document = orjson.loads(encode(FULL)) | {"actor": actor}
    assert decode(orjson.dumps(document)) == structs.replace(FULL, actor=None)


def test_the_document_is_the_one_that_is_fixed() -> None:
    assert orjson.loads(encode(FULL)) == {
        "specversion": "1.0",
        "id": "listing/L1/7",
        "source": "/headwater/listing",
        "type": "listing.price_changed",
        "subject": "listing/L1",
        "time": "2026-01-02T03:04:05.678901Z",
        "datacontenttype": "application/json",
        "dataversion": 2,
        "sequence": 7,
        "expectedversion": 0,
        "correlationid": "c",
        "causationid": "d",
        "traceparent": "00-e",
        "actor": "ci",
        "data": {"price": 1, "city": "Åkra"},
    }


@given(envelopes)
def test_what_is_encoded_is_decoded_again(envelope: Envelope) -> None:
    assert decode(encode(envelope)) == envelope


def test_a_body_that_is_json_already_takes_the_place_of_the_data() -> None:
    assert decode(encode(FULL, b'{"price":2}')).data == {"price": 2}


@given(st.binary() | st.text().map(str.encode))
def test_bytes_that_are_no_envelope_are_refused_and_nothing_else_happens(value: bytes) -> None:
    with pytest.raises(NotAnEnvelope):
        decode(value)


@pytest.mark.parametrize("name", ["id", "source", "type", "subject", "time"])
@pytest.mark.parametrize("wrong", [None, "", 7, ["x"]])
def test_an_attribute_that_is_missing_or_no_text_is_named(name: str, wrong: object) -> None:
    document = orjson.loads(encode(FULL)) | {name: wrong}
    with pytest.raises(NotAnEnvelope, match=f'"{name}"'):
        decode(orjson.dumps(document))


@pytest.mark.parametrize("name", ["sequence", "dataversion", "expectedversion"])
@pytest.mark.parametrize("wrong", [-1, 1.5, "1", True])
def test_a_count_that_is_none_is_named(name: str, wrong: object) -> None:
    document = orjson.loads(encode(FULL)) | {name: wrong}
    with pytest.raises(NotAnEnvelope, match=f'"{name}"'):
        decode(orjson.dumps(document))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b'"price":1', b'"price":"\xff"', "malformed JSON"),
        (b'"price":1', b'"price":"\\ud800"', "malformed JSON"),
        (b'"price":1', b'"price":NaN', "malformed JSON"),
        (b'"price":1', b'"price":' + b"[" * 2_000 + b"]" * 2_000, "malformed JSON"),
        (b'"specversion"', b'"comment":"\xff","specversion"', "malformed JSON"),  # in a member that nobody reads
        (b'"specversion":"1.0"', b'"specversion":"0.3"', '"specversion"'),
        (b'"sequence":7', b'"sequence":18446744073709551616', "64 bits"),
        (b'"data":{', b'"more":{},"data":null,"x":{', '"data" is NoneType'),
        (b'"data":{', b'"more":{},"data":[1],"x":{', '"data" is list'),
    ],
)
def test_what_looks_like_an_envelope_is_refused_with_the_reason(old: bytes, new: bytes, reason: str) -> None:
    value = encode(FULL)
    assert old in value
    with pytest.raises(NotAnEnvelope, match=reason):
        decode(value.replace(old, new, 1))


def test_an_empty_id_of_a_related_message_is_not_written() -> None:
    empty = structs.replace(FULL, correlation_id="", causation_id="", traceparent="")
    none = structs.replace(FULL, correlation_id=None, causation_id=None, traceparent=None)
    assert decode(encode(empty)) == none


def test_data_is_read_as_it_was_written() -> None:
    body = b'{"small":9007199254740993,"large":18446744073709551615,"larger":18446744073709551616,"tiny":1e-7}'
    assert decode(encode(FULL, body)).data == orjson.loads(body)


@given(envelopes, st.datetimes(timezones=st.just(UTC)), texts, st.dictionaries(texts, counts, min_size=1))
def test_an_event_is_written_like_any_envelope(
    command: Envelope, recorded: datetime, source: str, data: dict[str, int]
) -> None:
    event = structs.replace(
        command,
        id=f"{command.stream}/7",
        type="thing.done",
        source=source,
        data_version=2,
        sequence=7,
        data=data,
        expected_version=None,
        recorded_time=recorded,
        correlation_id=command.correlation_id or command.id,
        causation_id=command.id,
    )
    times = format_time(command.time), format_time(recorded)
    assert encode_event(command, *times, source, "thing.done", 2, 7, orjson.dumps(data)) == encode(event)


@given(st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1), timezones=st.timezones()))
def test_written_times_are_ordered_like_times(time: datetime) -> None:
    text = format_time(time)
    assert len(text) == len("2026-01-02T03:04:05.678901Z")
    utc = time.astimezone(UTC)
    assert datetime.fromisoformat(text) == utc
    assert format_time(utc + timedelta(microseconds=1)) > text


def test_a_time_elsewhere_is_written_in_utc() -> None:
    assert format_time(TIME.astimezone(timezone(timedelta(hours=-7)))) == "2026-01-02T03:04:05.678901Z"
    assert format_time(TIME.replace(microsecond=0)) == "2026-01-02T03:04:05.000000Z"
    assert format_time(FakeTime(2026, 1, 2, tzinfo=UTC)) == "2026-01-02T00:00:00.000000Z"
    assert timestamp_ms(TIME) == 1_767_323_045_678


def test_the_partition_is_crc32_of_the_key() -> None:
    assert partition_of("listing/Å", 7) == zlib.crc32("listing/Å".encode()) % 7
    assert zlib.crc32(b"123456789") == 0xCBF43926


def test_positions_are_ordered_and_read_back() -> None:
    assert Position.parse("3:1042") == Position(3, 1042)
    assert str(Position(3, 1042)) == "3:1042"
    assert Position(1, 9) < Position(1, 10) < Position(2, 0)


@pytest.mark.parametrize("text", ["", ":", "3", "3:", ":4", "-1:4", "3:4:5", "a:b", "³:4", "1:" + "9" * 40])
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a position"):
        Position.parse(text)
