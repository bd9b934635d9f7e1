"""Events with numbers in values that are no scalars, as any producer may write them, and views that keep these."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from headwater.commands.declaring.aggregate import Event
from headwater.eventlog.envelope import Envelope, Position
from headwater.projections.stores.declared import Postgres
from headwater.projections.table.computations import envelope
from headwater.projections.table.expressions import Source
from headwater.projections.table.folds import collect, last, nested, top
from headwater.projections.table.items import item
from headwater.projections.table.json_text import loads
from headwater.projections.table.view import TableView


class Line(BaseModel):
    """One line."""

    sku: str
    weight: int | float | None
    tags: list[float] | None


class Noted(Event, type="note.noted"):
    """Brings a value of any kind."""

    note_id: str
    rank: int
    word: str
    value: Any
    lines: list[Line]


Noted.id_field = "note_id"

NOTES = TableView(
    name="notes",
    key="note_id",
    columns={
        "value": last({Noted: "value"}),
        "lines_now": last({Noted: "lines"}),
        "record": last({Noted: envelope("record")}),
        "story": collect({Noted: {"value": "value", "rank": "rank"}}, limit=5),
        "values": collect({Noted: "value"}, limit=3),
        "best": top(3, {Noted: {"value": "value"}}, by="rank"),
        "lines": nested(
            "sku",
            {Noted: item("lines", "sku")},
            {"weight": last({Noted: item("lines", "weight")}), "tags": last({Noted: item("lines", "tags")})},
        ),
    },
    stores=(Postgres(),),
)
BY_WORD = TableView(
    name="by_word",
    key="word",
    columns={"rank": last({Noted: "rank"}), "word_too": last({Noted: "word"})},
    stores=(Postgres(),),
)
BY_LINE = TableView(
    name="by_line",
    key=item("lines", "sku"),
    key_name="sku",
    columns={"weight": last({Noted: item("lines", "weight")}), "value": last({Noted: "value"})},
    stores=(Postgres(),),
    each={Noted: "lines"},
)
VIEWS = (NOTES, BY_LINE, BY_WORD)

ODD: tuple[str, ...] = (
    *("0", "-0", "-0.0", "0.0", "1e22", "1E22", "1e-7", "5e-324", "2.2250738585072014e-308", "1.7976931348623157e308"),
    *("12345678.9", "1e8", "1.50", "0.001", "0.0009", "9999999.0", "10000000.0", "1e16", "123456789012345680.0"),
    *("9223372036854775807", "-9223372036854775808", "18446744073709551615", "18446744073709551616", "1" + 40 * "0"),
    *("-123456789012345678901234567890", "0.1000000000000000055511151231257827", "true", "false", "null"),
    *('"1.50"', '"12"', '"007"', '"12345678901234567890.50"', '"1e8"', '"1E+2"', '"null"', '"true"', '"é\\u00e9\\n"'),
    *('""', '" "', '"{"', '"[1.50]"', '"{\\"a\\": 1E8}"', '"1.0E8"', '"\\ud83d\\ude00"', "{}", "[]", '{"a":{"b":[]}}'),
    *('{"x": 12345678.9, "big": 1e8, "x": 1}', '[ 1.0,2e3, {"a" : "\\u00e9/"} ]', '{"\\u00e9": null, "n": 1e-9}'),
)
"""JSON texts of values, with many spellings of numbers."""


def doubles(seed: int, count: int) -> list[float]:
    """Finite doubles of any bits, and of usual sizes."""
    chance, found = random.Random(seed), list[float]()
    while len(found) < count:
        (anything,) = struct.unpack("d", chance.randbytes(8))
        usual = round(chance.uniform(-1, 1) * 10 ** chance.randint(-6, 12), chance.randint(0, 9))
        found += [each for each in (anything, usual) if each - each == 0]
    return found[:count]


def noted(texts: Iterable[str]) -> list[Source]:
    """An event per JSON text.

    The text is its value, in some with others in a list or an object. A number is also the weight of a line; and if it
    is short, its word, and in some the key of the line, although both should be texts.
    """
    found: list[Source] = []
    for at, text in enumerate(texts):
        number = text if text[:1] in "-0123456789" else "null"
        told = number != "null" and _is_short(number)
        sku = number if at % 5 == 0 and told else f'"s{at % 7}"'
        line = f'{{"sku":{sku},"weight":{number},"tags":[{number if number != "null" else "1e7"}]}}'
        word = text if told or text[:1] in ('"', "t", "f") else f'"w{at % 7}"'
        value = (text, f'[{text},"x"]', f'{{"v":{text}}}')[at % 3]
        data = f'{{"note_id":"n{at % 50}","rank":{at % 11},"word":{word},"value":{value},"lines":[{line}]}}'
        version = at // 50 + 1
        key = f"note/n{at % 50}/{version}"
        record = (
            f'{{"specversion":"1.0","id":"{key}","type":"note.noted","subject":"note/n{at % 50}",'
            f'"sequence":{version},"dataversion":1,"data":{data}}}'
        )
        time = datetime(2026, 1, 1, tzinfo=UTC)
        made = Envelope(key, "note.noted", f"note/n{at % 50}", time, loads(data.encode()), sequence=version)
        found.append(Source(made, Position(0, at), 1_767_225_600_000 + at, record))
    return found


def _is_short(number: str) -> bool:
    """Whether every Java writes it alike: before version 19, some doubles from 10^16 on got a digit too many."""
    return abs(float(number)) < 1e16 or len(number) < 12 or number.lstrip("-").isdigit()
