"""Numbers are kept as they are written, or refused: nothing rounds them before they are checked."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import Observation
from headwater.commands.codec import read_command
from headwater.commands.declaring.exact_numbers import decimal_fields, inexact_numbers, may_be_rounded
from headwater.commands.declaring.observation import ObservationRegistry
from headwater.commands.errors import MalformedCommand, MalformedObservation
from headwater.commands.reacting.outbox import command_of
from headwater.eventlog.ports import Record
from tests.support.purses import PURSES, Paid, Pay
from tests.support.seeds import examples

LONG = "123456789012345678901234567890"
DIGITS = "0.12345678901234567890"


class Weighed(Observation, type="weighed"):
    weight: Decimal | None = None
    note: Any = None


PAY = PURSES.command("purse.pay")
WEIGHED = ObservationRegistry([("here", Weighed)])


def body(members: str) -> bytes:
    return b'{"purse_id": "P", %b}' % members.encode()


@pytest.mark.parametrize(
    ("members", "place"),
    [
        (f'"paid": {LONG}', ("paid",)),
        (f'"paid": -{LONG}', ("paid",)),
        ('"paid": 18446744073709551616', ("paid",)),
        (f'"paid": {DIGITS}', ("paid",)),
        ('"paid": 1e-400', ("paid",)),
        ('"paid": 1E-0400', ("paid",)),
        ('"paid": 1e-1000', ("paid",)),
        ('"share": 1e-400', ("share",)),
        ('"share": -0.01e-1000', ("share",)),
        ('"note": [1e-400]', ("note", 0)),
        ('"paid": 1234567890.123456789', ("paid",)),
        (f'"lines": [{{"amount": 1}}, {{"amount": {DIGITS}}}]', ("lines", 1, "amount")),
        ('"note": 18446744073709551616', ("note",)),
        (f'"note": {{"deep": [{LONG}]}}', ("note", "deep", 0)),
        (f'"share": {LONG}', ("share",)),
        ('"note": ' + "9" * 300, ("note",)),
    ],
)
def test_a_number_that_is_not_kept_is_refused_with_its_place(members: str, place: tuple[str | int, ...]) -> None:
    with pytest.raises(MalformedCommand) as error:
        read_command(PAY, body(members))
    (detail,) = error.value.details
    assert detail["loc"] == place
    assert detail["msg"].endswith("send it as text")
    assert len(detail["msg"]) < 300


@pytest.mark.parametrize(
    ("members", "amount"),
    [
        (f'"paid": "{LONG}"', LONG),
        (f'"paid": "{DIGITS}"', DIGITS),
        ('"paid": 9223372036854775807', "9223372036854775807"),
        ('"paid": 12345678901234.5', "12345678901234.5"),
        ('"paid": 0.1', "0.1"),
        ('"paid": 0.10000000000000000000', "0.1"),
        ('"paid": 1.5e3', "1500"),
        ('"paid": 1e-300', "1e-300"),
    ],
)
def test_what_is_kept_is_exact(members: str, amount: str) -> None:
    assert read_command(PAY, body(members)).command.paid == Decimal(amount)  # type: ignore[attr-defined]


@pytest.mark.parametrize("written", ["0.10000000000000001", "3.14159265358979323846", "1e-320", "0e-400"])
def test_a_float_is_a_double_and_so_is_what_has_no_type(written: str) -> None:
    command: Any = read_command(PAY, body(f'"share": {written}, "note": {written}')).command
    assert (command.share, command.note) == (float(written), float(written))


@settings(deadline=None, max_examples=examples(200))
@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=Decimal("-1e30"), max_value=Decimal("1e30")))
def test_any_decimal_is_exact_or_refused(amount: Decimal) -> None:
    text = str(amount)
    try:
        json.loads(text)
    except ValueError:
        return  # such as 1E+5 and 00
    try:
        read: Any = read_command(PAY, body(f'"paid": {text}')).command
    except MalformedCommand:
        return
    assert read.paid == amount


def test_no_text_is_searched_that_needs_not_be() -> None:
    assert not may_be_rounded(body('"paid": 12345.67, "note": "2026-01-31T12:00:00.123456Z"'))
    assert decimal_fields(Pay) == {"paid", "lines"}
    assert decimal_fields(Paid) == frozenset()


@pytest.mark.parametrize("text", [LONG, DIGITS, f"[{DIGITS}]", f'["{LONG}"]', '{"paid": {"": 1e-400}}'])
def test_what_is_no_command_is_an_answer(text: str) -> None:
    with pytest.raises(MalformedCommand):
        read_command(PAY, text.encode())
    with pytest.raises(MalformedObservation):
        WEIGHED.read("weighed", text.encode())


def test_a_text_that_is_nested_deeply_is_an_answer() -> None:
    nested = "[" * 5_000 + LONG + "]" * 5_000
    assert inexact_numbers(nested.encode(), Pay)


@pytest.mark.parametrize(
    "data", [f'"weight": {DIGITS}', f'"weight": {LONG}', f'"note": {LONG}', f'"note": [{LONG}]', '"note": 1e-400']
)
def test_an_observation_is_exact_or_refused(data: str) -> None:
    text = b'{"id": "1", "source": "s", "data": {%b}}' % data.encode()
    with pytest.raises(MalformedObservation) as error:
        WEIGHED.read("weighed", text)
    assert [detail["loc"][:2] for detail in error.value.details] == [("data", data.split('"')[1])]


@pytest.mark.parametrize("members", [f'"paid": {DIGITS}', f'"paid": {LONG}', '"note": 18446744073709551616'])
def test_a_command_of_an_outbox_is_exact_or_refused(members: str) -> None:
    content = b'{"type": "purse.pay", "body": %b}' % body(members)
    message = {
        "message": {"prefix": "headwater.command", "content": base64.b64encode(content).decode()},
        "source": {"lsn": 1, "ts_ms": 1},
    }
    record = Record("messages", 0, 0, "", json.dumps(message).encode(), 1)
    with pytest.raises(MalformedCommand):
        command_of(PURSES, "shop", record)
