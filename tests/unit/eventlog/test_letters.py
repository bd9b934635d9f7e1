"""Dead letters: what is kept of a record, however strange or large it is."""

from __future__ import annotations

import orjson

from headwater.eventlog.letters import KEY_BYTES, LETTER_KEY_BYTES, VALUE_BYTES, Letter, letter_key, time_of
from headwater.eventlog.limits import MAX_ENTRY_BYTES, MAX_RECORD_BYTES, entry_size

TIME = time_of(1_767_323_045_678)


def test_a_letter_is_read_as_it_was_written() -> None:
    letter = Letter("no JSON", TIME, b"k\xff", b"\x00\xff{")
    assert letter.time == "2026-01-02T03:04:05.678000Z"
    written = letter.to_json(topic="events", partition=1, offset=7)
    assert Letter.from_json(written) == letter
    document = orjson.loads(written)
    assert (document["topic"], document["partition"], document["offset"]) == ("events", 1, 7)
    assert Letter.from_json(Letter("a tombstone", TIME, b"k", None).to_json()).value is None


def test_a_reason_may_quote_what_no_json_text_holds() -> None:
    assert Letter.from_json(Letter('"\udcff" is no id', TIME, None, None).to_json()).reason == '"?" is no id'


def test_the_largest_letter_is_a_record_that_kafka_takes_and_a_larger_value_is_left_where_it_is() -> None:
    whole = Letter("\x01" * MAX_RECORD_BYTES, TIME, b"k" * KEY_BYTES, b"v" * VALUE_BYTES)
    written = whole.to_json(topic="events", partition=0, offset=0)
    assert len(written) < MAX_RECORD_BYTES - 100_000
    assert Letter.from_json(written).value == whole.value
    larger = Letter.from_json(whole._replace(reason="no JSON", value=b"v" * (VALUE_BYTES + 1)).to_json())
    assert larger.value is None
    assert larger.reason == f"no JSON (value not kept: {VALUE_BYTES + 1} bytes are too large)"


def test_the_key_of_a_letter_fits_in_its_record_and_differs_for_each_place() -> None:
    row = "patches/postgres/v@1/" + "😀" * MAX_RECORD_BYTES
    keys = {letter_key(f"{row}/{number}") for number in range(3)}
    assert len(keys) == 3
    whole = Letter("\x01" * MAX_RECORD_BYTES, TIME, b"k" * KEY_BYTES, b"v" * VALUE_BYTES).to_json()
    for key in keys | {letter_key("x" * LETTER_KEY_BYTES)}:
        assert entry_size(key, whole) <= MAX_ENTRY_BYTES
        assert key.startswith(row[:21]) or key == "x" * LETTER_KEY_BYTES
