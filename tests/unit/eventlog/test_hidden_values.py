"""Values of records in logs, in reasons of dead letters and in errors: pydantic's errors quote them."""

from __future__ import annotations

import logging
import sys
from typing import Annotated, Literal

import orjson
import pytest
from pydantic import BaseModel, Field, TypeAdapter, ValidationError, field_validator

from headwater.commands.codec import read_event, read_snapshot
from headwater.commands.errors import UnreadableEvent, UnreadableSnapshot
from headwater.commands.reacting.turn import described
from headwater.eventlog.envelope import EPOCH, Envelope
from headwater.eventlog.hidden_values import error_text, without_values
from headwater.eventlog.letters import Letter
from headwater.eventlog.programs.logs import FORMAT, WithoutValues
from headwater.samples.listings.domain import listing

PRIVATE = "4111 1111"


class Card(BaseModel):
    number: int
    kind: Literal["debit"] = "debit"

    @field_validator("kind", mode="before")
    @classmethod
    def known(cls, value: object) -> object:
        if value == "lost":
            raise ValueError("a lost card is reported by phone")
        return value


class Account(BaseModel):
    tag: Literal["account"]


class Person(BaseModel):
    tag: Literal["person"]


ANY = TypeAdapter[Account | Person](Annotated[Account | Person, Field(discriminator="tag")])


class Broken:
    def __repr__(self) -> str:
        return f"<\n{PRIVATE}, input_type=no]\n>"


def failure(value: object) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        (ANY if isinstance(value, dict) and "tag" in value else TypeAdapter(Card)).validate_python(value)
    return caught.value


VALUES = [
    {"number": PRIVATE},
    {"number": f"{PRIVATE}, input_type=str]"},
    {"kind": PRIVATE, "number": PRIVATE},
    {"number": Broken()},
    {"card": PRIVATE},
    PRIVATE,
    {"tag": PRIVATE},
    {"tag": f"it's {PRIVATE}"},
]


@pytest.mark.parametrize("value", VALUES)
def test_no_value_is_quoted(value: object) -> None:
    error = failure(value)
    assert PRIVATE in str(error), "else this shows nothing"
    for text in (error_text(error), without_values(str(error)), described(error)):
        assert PRIVATE not in text
        assert "input_value" not in text
        assert text.count("number") + text.count("tag") + text.count("Input should be a valid dictionary") > 0
    assert "\n" not in error_text(error)


def test_what_is_between_two_values_stays() -> None:
    text = "a, input_value=1, input_type=int] b, input_value=2\n3, input_type=str]\n"
    text += "c, input_value=4, Input tag 'x' found using"
    assert without_values(text) == "a] b]\nc, input_value=4, Input tag found using"


@pytest.mark.parametrize(
    "piece", [", input_value=", ", input_value=, input_type=", ", input_type=x", "Input tag '", "' found using "]
)
@pytest.mark.parametrize("around", ["", "\n", "]"])
def test_a_text_that_only_looks_so_takes_no_longer_than_another(piece: str, around: str) -> None:
    """2 MB, which a pattern that tries every place to the end of the text never finishes."""
    text = "Input tag '" + (piece + around) * (2_000_000 // len(piece + around))
    assert len(without_values(text)) <= len(text)


def test_what_a_validator_says_stays() -> None:
    text = error_text(failure({"number": 1, "kind": "lost"}))
    assert text == "kind: Value error, a lost card is reported by phone"


def test_many_faults_are_counted() -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(list[Card]).validate_python([{"number": PRIVATE}] * 12)
    assert error_text(caught.value).endswith("; and 2 more")


@pytest.mark.parametrize("value", VALUES)
def test_a_log_line_with_a_traceback_quotes_none(value: object) -> None:
    try:
        raise RuntimeError("it failed") from failure(value)
    except RuntimeError:
        info = sys.exc_info()
    record = logging.LogRecord("a", logging.ERROR, "", 1, "of %s", (failure(value),), info)
    assert PRIVATE in logging.Formatter(FORMAT).format(record)
    record.exc_text = None
    line = WithoutValues(FORMAT).format(record)
    assert PRIVATE not in line
    assert "Traceback" in line
    assert "ValidationError" in line


@pytest.mark.parametrize("value", VALUES)
def test_the_reason_of_a_letter_quotes_none(value: object) -> None:
    written = Letter(str(failure(value)), "2026-01-01T00:00:00Z", b"k", b"v").to_json()
    assert PRIVATE not in orjson.loads(written)["reason"]


def test_errors_about_stored_records_quote_none() -> None:
    envelope = Envelope("listing/L1/1", "listing.price_changed", "listing/L1", EPOCH, {"price": PRIVATE}, sequence=1)
    with pytest.raises(UnreadableEvent, match="price: ") as unreadable:
        read_event(listing, envelope)
    snapshot = orjson.dumps({"version": 1, "shape": listing.shape, "time": 0, "state": {"price": PRIVATE}})
    with pytest.raises(UnreadableSnapshot, match="price: ") as changed:
        read_snapshot(listing, snapshot)
    assert PRIVATE not in f"{unreadable.value}{changed.value}"
