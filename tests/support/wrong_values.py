"""Values of decimals, dates and UUIDs as events may have them: what each is read as, and those that are none."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from headwater.eventlog.envelope import Envelope, Position, encode, timestamp_ms
from headwater.projections.table.expressions import Source

READ: Final[Mapping[str, tuple[tuple[Any, str | None], ...]]] = {
    "price": (  # DECIMAL(10, 2)
        ("12.50", "12.50"),
        ("12.5", "12.50"),
        ("12.500", "12.50"),
        ("0012", "12.00"),
        (12.5, "12.50"),
        (12, "12.00"),
        (-0.0, "0.00"),
        ("-0.00", "0.00"),
        ("0E-8", "0.00"),
        ("1E+2", "100.00"),
        ("1.5e-1", "0.15"),
        (1e7, "10000000.00"),
        ("-99999999.99", "-99999999.99"),
        ("100000000.00", None),
        ("12.505", None),
        (12.505, None),
        (1e-9, None),
        (1e300, None),
        ("1E+400", None),
        (10**30, None),
        ("NaN", None),
        ("Infinity", None),
        ("-", None),
        ("", None),
        (" 12.50", None),
        ("1_000", None),
        ("12,50", None),
        (".5", None),
        ("5.", None),
        ("+5", None),
        ("\u0661\u0662", None),
        (True, None),
        ([], None),
        ({"cents": 5}, None),
    ),
    "due": (
        ("2026-01-31", "2026-01-31"),
        ("0001-01-01", "0001-01-01"),
        ("9999-12-31", "9999-12-31"),
        ("2026-02-30", None),
        ("0000-01-01", None),
        ("10000-01-01", None),
        ("2026-1-31", None),
        ("2026-01-31T00:00:00Z", None),
        ("20260131", None),
        (20_260_131, None),
        ("", None),
    ),
    "reference": (
        ("6F9619FF-8B86-D011-B42D-00C04FC964FF", "6f9619ff-8b86-d011-b42d-00c04fc964ff"),
        ("6f9619ff8b86d011b42d00c04fc964ff", None),
        ("{6f9619ff-8b86-d011-b42d-00c04fc964ff}", None),
        ("", None),
        (7, None),
    ),
}
"""By field of `Billed`, each value of JSON with its form in rows; None: it is none of this type."""
RIGHT: Final[Mapping[str, Any]] = {
    "thing_id": "T",
    "group": "g",
    "price": "1.00",
    "fee": None,
    "rate": None,
    "wide": None,
    "whole": None,
    "number": 0,
    "flag": True,
    "due": "2026-01-01",
    "settled": None,
    "reference": "00000000-0000-0000-0000-000000000000",
    "charges": [],
}


def billed(offset: int, **changes: Any) -> Source:
    """One event with these fields, in a row of its own."""
    data, time = {**RIGHT, "group": f"g{offset}", **changes}, datetime(2026, 1, 1, tzinfo=UTC)
    made = Envelope(f"thing/{offset}/1", "bill.billed", f"thing/{offset}", time, data, sequence=1)
    return Source(made, Position(0, offset), timestamp_ms(time), encode(made, json.dumps(data).encode()).decode())


def each_value() -> Iterator[tuple[Source, str, str | None]]:
    """An event per value, with the field that has it, and its form in rows."""
    offset = 0
    for name, values in READ.items():
        for value, form in values:
            yield billed(offset, **{name: value}), name, form
            offset += 1


def in_nullable_fields_and_items() -> list[tuple[Source, str]]:
    """Events whose wrong value is in a field that may be null, with the name that a dead letter has."""
    charge = {"sku": "a", "cost": "1.00", "rate": None, "on": None}
    return [
        (billed(1000, fee="1E+400"), "fee"),
        (billed(1001, rate="0.000001"), "rate"),
        (billed(1002, settled="2026-02-30"), "settled"),
        (billed(1003, charges=[charge, charge | {"cost": "1.005"}]), "charges[].cost"),
        (billed(1004, charges=[charge, charge | {"rate": "1.1"}]), "charges[].rate"),
        (billed(1005, charges=[charge | {"on": "tomorrow"}]), "charges[].on"),
    ]
